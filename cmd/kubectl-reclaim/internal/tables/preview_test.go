package tables

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
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
		must.OK(t, cmd.ParseFlags(strings.Fields(line)))
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
		expect(t, name, c.format, c.want, "", func(out cli.Output) error {
			return (&previewOptions{Output: out}).show(c.preview)
		})
	}
}
