package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
)

func TestPreviewFlags(t *testing.T) {
	for line, want := range map[string]claims.Change{
		"--replicas=0": claims.ScaleTo(0), "--replicas=3": claims.ScaleTo(3), "--delete": claims.Delete(),
		"--cascade=background": claims.Delete(), "--delete --cascade=foreground": claims.Delete(),
		"--cascade=orphan": claims.Orphan(), "--delete --cascade=orphan": claims.Orphan(),
	} {
		o := &previewOptions{}
		cmd := &cobra.Command{}
		o.flags(cmd)
		if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		if got, err := o.change(cmd); err != nil || got != want {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
}

func TestParseSet(t *testing.T) {
	for _, arg := range []string{"sts/db", "statefulset/db", "statefulsets/db", "StatefulSet/db",
		"statefulsets.apps/db"} {
		if name, err := parseSet(arg); err != nil || name != "db" {
			t.Errorf("%s: %q, %v", arg, name, err)
		}
	}
}

// somePreview has a row with a value in each column, and a row with as few values as possible.
func somePreview() claims.Preview {
	return claims.Preview{
		StatefulSet: "shop/db", Change: "scale from 2 to 1 replica",
		Policy: claims.Policy{WhenDeleted: "Retain", WhenScaled: "Delete", Source: "somewhere"},
		Claims: []claims.Row{
			{Claim: "data-db-0", Template: "data", Size: "10Gi", Fate: "kept", Reason: "InRange",
				Volume: volumes.VolumeOutcome{Fate: volumes.VolumeNone}},
			{Claim: "data-db-1", Template: "data", Ordinal: 1, Pod: "db-1", Size: "10Gi", PV: "pv-1", ReclaimPolicy: "Delete",
				StorageClass: "fast", Driver: "d", Fate: "deleted", Reason: "ScaledDown", When: "with pod db-1",
				Volume: volumes.VolumeOutcome{Fate: volumes.VolumeDeleted, Text: "It goes.\x1b[2J"}},
			{Claim: "data-db-2", Template: "data", Ordinal: 2, Size: "10Gi", PV: "pv-2", Fate: "deleted",
				Reason: "ScaledDown", When: "at once", Volume: volumes.VolumeOutcome{Fate: volumes.VolumeDeleted,
					Text: "It goes.\x1b[2J"}},
		},
		Totals: claims.Totals{Claims: 3, Size: "30Gi", ClaimsDeleted: 2, VolumesDeleted: 2, SizeDeleted: "20Gi"},
		Reasons: []claims.Reason{{Reason: "InRange", Sentence: "It is needed."},
			{Reason: "ScaledDown", Sentence: "It is not."}},
		Assumed: []string{"all is well"}, Warnings: []string{"look"}, Unread: []string{"PVs"},
	}
}

func TestPrintPreview(t *testing.T) {
	for name, c := range map[string]struct {
		preview claims.Preview
		format  string
		want    string
	}{
		"table": {somePreview(), "table", `
StatefulSet shop/db: scale from 2 to 1 replica
Retention: whenDeleted Retain, whenScaled Delete (somewhere)
! look

CLAIM       POD    SIZE   PV     RECLAIM POLICY   THE CLAIM IS   WHEN            ITS VOLUME IS
data-db-0   -      10Gi   -      -                kept           -               none
data-db-1   db-1   10Gi   pv-1   Delete           deleted        with pod db-1   deleted
data-db-2   -      10Gi   pv-2   unknown          deleted        at once         deleted

3 claims, 30Gi: 2 claims deleted; 2 volumes deleted (20Gi)
InRange: It is needed.
ScaledDown: It is not.
Volume of pv-1, pv-2: It goes.^[[2J
Assumed: all is well
Not read: PVs
`},
		"without claims": {claims.Preview{StatefulSet: "shop/db", Change: "delete", Policy: claims.Policy{
			WhenDeleted: "Retain", WhenScaled: "Retain", Source: "none"}}, "table", `
StatefulSet shop/db: delete
Retention: whenDeleted Retain, whenScaled Retain
It has no claims from volumeClaimTemplates: no volume is touched.
`},
		"yaml": {claims.Preview{StatefulSet: "shop/db", Change: "delete", Claims: somePreview().Claims[1:2]}, "yaml", `
apiVersion: csi-reclaimer.io/v1alpha1
change: delete
claims:
- claim: data-db-1
  driver: d
  fate: deleted
  ordinal: 1
  pod: db-1
  pv: pv-1
  reason: ScaledDown
  reclaimPolicy: Delete
  size: 10Gi
  storageClass: fast
  template: data
  text: ""
  volume:
    fate: deleted
    text: "It goes.\e[2J"
  when: with pod db-1
kind: Preview
policy:
  source: ""
  whenDeleted: ""
  whenScaled: ""
statefulSet: shop/db
totals:
  claims: 0
  claimsDeleted: 0
  size: ""
  sizeDeleted: ""
  volumesDeleted: 0
  volumesKept: 0
  volumesUnknown: 0
  volumesWaiting: 0
`},
	} {
		var out bytes.Buffer
		o := &previewOptions{shared: &shared{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}},
			out: output{format: c.format}}
		if err := o.out.prepare(); err != nil {
			t.Fatal(err)
		}
		if err := o.show(c.preview); err != nil {
			t.Fatal(err)
		}
		if got, want := trimmed(out.String()), strings.TrimPrefix(c.want, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

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
		"nothing": {format: "table",
			say: "No claims that a StatefulSet has left behind were found in namespace shop.\n"},
		"nothing, in any":       {format: "table", all: true, say: "were found in any namespace.\n"},
		"nothing that was read": {list: claims.Retained{Unread: []string{"PVs"}}, format: "table", want: "Not read: PVs\n"},
	} {
		var out, said bytes.Buffer
		o := &statusOptions{shared: &shared{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &said}},
			out: output{format: c.format}, retainedFlags: retainedFlags{retained: true, allNamespaces: c.all}}
		if err := o.out.prepare(); err != nil {
			t.Fatal(err)
		}
		namespace := "shop"
		if c.all {
			namespace = ""
		}
		if err := o.showRetained(c.list, time.Unix(3600, 0), namespace); err != nil {
			t.Fatal(err)
		}
		if got, want := trimmed(out.String()), strings.TrimPrefix(c.want, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		if !strings.HasSuffix(said.String(), c.say) {
			t.Errorf("%s: %q, want %q", name, said.String(), c.say)
		}
	}
	var out bytes.Buffer
	o := &statusOptions{shared: &shared{IOStreams: genericiooptions.IOStreams{Out: &out}}, out: output{format: "wide"}}
	if err := o.showRetained(list, time.Unix(3600, 0), "shop"); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"EVIDENCE", "its owner", "STORAGE CLASS", "Retained"} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("-o wide lacks %q:\n%s", words, out.String())
		}
	}
}
