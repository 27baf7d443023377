package tables

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

func TestPrintRetainedClaims(t *testing.T) {
	since := metav1.Unix(1800, 0)
	list := claims.Retained{
		Claims: []claims.RetainedClaim{
			{Namespace: "shop", Name: "data-db-2", StatefulSet: "db", Ordinal: 2, Size: "10Gi", Created: metav1.Unix(0, 0),
				Since: &since, PV: "pv-2", ReclaimPolicy: "Delete", StorageClass: "fast", Driver: "d", Evidence: "its owner",
				Reason: "Retained", Volume: volumes.VolumeOutcome{Fate: volumes.VolumeDeleted}},
			{Namespace: "shop", Name: "data-old-0", SetGone: true, Size: "1Gi", Created: metav1.Unix(0, 0), Likely: true,
				Evidence: "its name", Reason: "SetGone", Volume: volumes.VolumeOutcome{Fate: volumes.VolumeNone}},
		},
		Totals: claims.RetainedTotals{Claims: 2, Size: "11Gi", Likely: 1}, Unread: []string{"PVs"},
	}
	const after = `
2 claims, 11Gi.
1 of them is only likely to be one (?): -o wide shows the known facts. The commands leave it out.
If the data is not needed, delete them. It cannot be undone where the volume is deleted, too:
  kubectl delete pvc -n shop data-db-2
Not read: PVs
`
	held := claims.Retained{Claims: slices.Clone(list.Claims[:1]),
		Totals: claims.RetainedTotals{Claims: 1, Size: "10Gi", Held: 1}}
	held.Claims[0].Held = true
	const nothing = "No claims that a StatefulSet has left behind were found in "
	for name, c := range map[string]struct {
		list      claims.Retained
		format    string
		all       bool
		want, say string
	}{
		"table": {list: list, format: "table", want: `
CLAIM            STATEFULSET   ORDINAL   SIZE   AGE   RETAINED FOR   PV     RECLAIM POLICY   VOLUME, IF DELETED
data-db-2        db            2         10Gi   60m   >=30m          pv-2   Delete           deleted
data-old-0 (?)   - (gone)      0         1Gi    60m   -              -      -                none
` + after},
		"held": {list: held, format: "table", want: `
CLAIM              STATEFULSET   ORDINAL   SIZE   AGE   RETAINED FOR   PV     RECLAIM POLICY   VOLUME, IF DELETED
data-db-2 (held)   db            2         10Gi   60m   >=30m          pv-2   Delete           deleted

1 claim, 10Gi.
1 of them is held (csi-reclaimer.io/hold). The commands leave it out.
`},
		"nothing":         {format: "table", say: nothing + "namespace shop.\n"},
		"nothing, in any": {format: "table", all: true, say: nothing + "any namespace.\n"},
		"nothing that was read": {list: claims.Retained{Unread: []string{"PVs"}}, format: "table", want: "Not read: PVs\n",
			say: nothing + "namespace shop in what could be read.\n"},
	} {
		expect(t, name, c.format, c.want, c.say, func(out cli.Output) error {
			return retained(out, c.all).showRetained(c.list, time.Unix(3600, 0), namespaceOr(c.all))
		})
	}
	wide, _ := printed(t, "wide", func(out cli.Output) error {
		return retained(out, false).showRetained(list, time.Unix(3600, 0), "shop")
	})
	explained.Expect(t, wide, "EVIDENCE", "its owner", "STORAGE CLASS", "Retained")
}

func retained(out cli.Output, all bool) *statusOptions {
	return &statusOptions{Output: out, retainedFlags: retainedFlags{retained: true, allNamespaces: all}}
}
