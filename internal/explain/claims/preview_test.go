package claims

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// lines formats each row of the preview in one line: the fate of claim and volume, and the time.
func lines(p Preview) (lines []string) {
	for _, r := range p.Claims {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s (%s) %s %s", r.Claim, r.Fate, r.Reason, r.Volume.Fate,
			r.When)))
	}
	return lines
}

const both = `{"whenDeleted":"Delete","whenScaled":"Delete"}`

func TestPreview(t *testing.T) {
	const (
		first         = "data-db-0 kept (InRange) kept"
		second        = "data-db-1 deleted (ScaledDown) deleted with pod db-1"
		third         = "data-db-2 deleted (ScaledDown) deleted with pod db-2"
		pendingScale  = "deleted (ScaledDown) waits if volume-guard runs"
		pendingDelete = "deleted (SetDeleted) waits if volume-guard runs"
		afterwait     = "deleted (ScaledDown) deleted after a grace period of 60s"
	)
	lastOf := func(third string) []string {
		return []string{first, "data-db-1 kept (InRange) kept", "data-db-2 " + third}
	}
	all := func(how string) []string {
		var lines []string
		for n := range 3 {
			lines = append(lines, fmt.Sprintf("data-db-%d %s", n, strings.ReplaceAll(how, "N", fmt.Sprint(n))))
		}
		return lines
	}
	for sentence, c := range map[string]struct {
		change func(*environment)
		to     Change
		want   []string
		said   []string
	}{
		"scaled down under Retain": {func(env *environment) { env.policy(retains, retains) }, ScaleTo(1),
			[]string{first, "data-db-1 kept (Retained) kept", "data-db-2 kept (Retained) kept"},
			[]string{"3 claims, 30Gi: 0 claims deleted; 0 volumes deleted (0), 3 kept", "!volume-guard"}},
		"scaled down under Delete": {func(*environment) {}, ScaleTo(1),
			[]string{first, second, third},
			[]string{"3 claims, 30Gi: 2 claims deleted; 2 volumes deleted (20Gi), 1 kept", "!volume-guard"}},
		"deleted under Retain": {func(*environment) {}, Delete(),
			all("kept (RetainedWhenDeleted) kept"), []string{"delete the set and its pods"}},
		"deleted under Delete": {func(env *environment) { env.policy(deletes, retains) }, Delete(),
			all("deleted (SetDeleted) deleted with pod db-N"), []string{"3 volumes deleted (30Gi)"}},
		"orphaned under Delete": {func(env *environment) { env.policy(deletes, deletes) }, Orphan(),
			all("kept (Orphaned) kept"), []string{"--cascade=orphan"}},
		"the reclaim policy of one is Retain": {func(env *environment) {
			env.pvs[2].Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}, ScaleTo(1), []string{first, second, "data-db-2 deleted (ScaledDown) kept with pod db-2"},
			[]string{"2 claims deleted; 1 volume deleted (10Gi), 2 kept"}},
		"a hold on the PV of one": {func(env *environment) {
			env.pvs[2].Annotations[volume.HoldAnnotation] = "audit"
			env.reclaimer()
		}, ScaleTo(1), []string{first, second, "data-db-2 deleted (ScaledDown) kept with pod db-2"}, nil},
		"a hold on the PV of one, and no csi-reclaimer is seen": {func(env *environment) {
			env.pvs[2].Annotations[volume.HoldAnnotation] = "audit"
		}, ScaleTo(1), []string{first, second, "data-db-2 deleted (ScaledDown) unknown with pod db-2"},
			[]string{"an external-provisioner ignores it", "1 volume deleted (10Gi), 1 kept, 1 unknown"}},
		"a hold on a claim, which Kubernetes does not know": {func(env *environment) {
			env.claims[2].Annotations[volume.HoldAnnotation] = "audit"
		}, ScaleTo(1), []string{first, second, third}, nil},
		"the driver is gone": {func(env *environment) { explained.Clear(&env.facts.Installed) },
			ScaleTo(2), lastOf("deleted (ScaledDown) waits with pod db-2"),
			[]string{"0 volumes deleted (0), 2 kept, 1 to be deleted, and held up"}},
		"PVs cannot be read": {func(env *environment) { explained.Forbid(&env.facts.PVs) },
			ScaleTo(2), lastOf("deleted (ScaledDown) unknown with pod db-2"),
			[]string{"PVs: forbidden. So it is not known whether the volumes are " +
				"deleted", "2 kept, 1 unknown", "!reclaimPolicy"}},
		"a claim without a volume": {func(env *environment) {
			env.claims[2].Spec.VolumeName = ""
			env.facts.Classes = explain.Found(map[string]*storagev1.StorageClass{"fast": {Provisioner: driver}})
		}, ScaleTo(2), lastOf("deleted (ScaledDown) none with pod db-2"),
			[]string{"0 volumes deleted (0), 2 kept\n", `"driver":"` + driver}},
		"a pod that was deleted by hand, with volume-guard": {func(env *environment) { env.deletedByHand(); env.guard() },
			ScaleTo(2), lastOf(afterwait),
			[]string{"volume-guard runs its controller statefulset-claims", "the default of --scale-down-grace"}},
		"a grace period of its own": {func(env *environment) {
			env.set.Annotations = map[string]string{statefulset.GraceAnnotation: "10m"}
			env.deletedByHand()
			env.guard()
		}, ScaleTo(2), lastOf("deleted (ScaledDown) deleted after a grace period of 10m"), []string{"!--scale-down-grace"}},
		"a pod that was deleted by hand, without volume-guard": {func(env *environment) { env.deletedByHand() },
			ScaleTo(2), lastOf(pendingScale),
			[]string{"no replica holds its Lease"}},
		"a pod that was deleted by hand, and Leases cannot be read": {func(env *environment) {
			env.deletedByHand()
			explained.Forbid(&env.facts.Leases)
		}, ScaleTo(2), lastOf(afterwait),
			[]string{"whether it does could not be read", "Leases: forbidden"}},
		"a claim that never had a pod": {func(env *environment) { env.removePod(); env.guard() },
			ScaleTo(2), lastOf("kept (NeverUsed) kept"), nil},
		"out of range already": {func(env *environment) { env.scaled(2); env.guard() },
			ScaleTo(1), []string{first, second, "data-db-2 kept (NeverUsed) kept"}, nil},
		"scaled up, so that a claim is used again": {func(env *environment) { env.scaled(1) },
			ScaleTo(3), lastOf("kept (InRange) kept"),
			[]string{"scale from 1 to 3 replicas"}},
		"by annotation": {func(env *environment) { env.annotate(both); env.guard() }, ScaleTo(1),
			[]string{first, second, third}, []string{"annotation csi-reclaimer.io/claim-retention",
				"controller statefulset-claims"}},
		"by annotation, without volume-guard": {func(env *environment) { env.annotate(both) }, ScaleTo(2),
			lastOf(pendingScale), nil},
		"by annotation, deleted without volume-guard, which has added its references": {func(env *environment) {
			env.annotate(both)
			mark(env.claims[2], "set", 2, statefulset.Delete)
			own(env.claims[2], "apps/v1", "StatefulSet", "db", "set")
		}, Delete(), []string{"data-db-0 " + pendingDelete, "data-db-1 " + pendingDelete,
			"data-db-2 deleted (SetDeleted) deleted with pod db-2"}, nil},
		"by annotation, a hold without effect, as volume-guard does not run": {func(env *environment) {
			env.annotate(both)
			mark(env.claims[2], "set", 2, statefulset.Delete)
			env.claims[2].Annotations[volume.HoldAnnotation] = "audit"
			own(env.claims[2], "apps/v1", "StatefulSet", "db", "set")
			env.claims = env.claims[2:]
		}, Delete(), []string{"data-db-2 deleted (VolumeGuardNotRunning) deleted with pod db-2"}, nil},
		"by annotation, a hold that volume-guard honors": {func(env *environment) {
			env.annotate(both)
			mark(env.claims[2], "set", 2, statefulset.Delete)
			env.claims[2].Annotations[volume.HoldAnnotation] = "audit"
			own(env.claims[2], "apps/v1", "StatefulSet", "db", "set")
			env.claims = env.claims[2:]
			env.guard()
		}, Delete(), []string{"data-db-2 kept (ClaimHeld) kept"}, nil},
		"by an annotation that is not valid": {func(env *environment) { env.annotate("Delete") }, ScaleTo(2),
			lastOf("kept (Retained) kept"),
			[]string{"An annotation of the StatefulSet is not valid"}},
		"an annotation beside the field": {func(env *environment) {
			env.policy(retains, retains)
			env.set.Annotations = map[string]string{statefulset.PolicyAnnotation: both}
		}, ScaleTo(2), lastOf("kept (Retained) kept"),
			[]string{"is ignored"}},
		"terminating already": {func(env *environment) {
			env.policy(retains, retains)
			env.claims[2].DeletionTimestamp = ptr.To(ago(0))
		}, ScaleTo(2),
			lastOf("deleted (ClaimTerminating) deleted already being deleted"), nil},
		"another owner": {func(env *environment) {
			own(env.claims[2], "v1", "ConfigMap", "c", "c")
		}, ScaleTo(2), lastOf("kept (OtherOwner) kept"), nil},
		"two templates, and ten ordinals": {func(env *environment) {
			env.policy(retains, retains)
			env.set.Spec.VolumeClaimTemplates = append(env.set.Spec.VolumeClaimTemplates,
				v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "audit"}})
			env.claims, env.pvs = nil, nil
			for _, n := range []int{10, 9} {
				env.addClaim("data", n)
				env.addClaim("audit", n)
			}
		}, ScaleTo(0), []string{"audit-db-9 kept (Retained) kept", "audit-db-10 kept (Retained) kept",
			"data-db-9 kept (Retained) kept", "data-db-10 kept (Retained) kept"}, []string{"4 claims, 40Gi"}},
		"claims that it does not give": {func(env *environment) {
			env.policy(retains, retains)
			env.claims[0].Name, env.claims[1].Name = "data-db", "data-db-01"
		}, ScaleTo(0), []string{"data-db-2 kept (Retained) kept"}, nil},
		"unchanged": {func(env *environment) { env.policy(retains, retains); env.scaled(0) }, ScaleTo(0),
			all("kept (Retained) kept"), []string{"has 0 replicas already"}},
	} {
		env := newEnvironment()
		env.policy(retains, deletes)
		c.change(env)
		p := env.preview(c.to)
		if got := lines(p); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", sentence, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
		t.Run(sentence, func(t *testing.T) {
			explained.Expect(t, explained.JSON(p)+"\n"+p.Totals.String()+"\n", c.said...)
		})
	}
}

// The set is deleted or changed between the reads, or the list of sets fails.
func TestPreviewOfChangedSet(t *testing.T) {
	env := newEnvironment()
	f := PreviewFacts{Facts: env.read(), Set: SetOf(env.set)}
	f.Sets.Value = nil
	if p := PreviewOf(f, ScaleTo(1)); len(p.Claims) != 3 || len(p.Warnings) != 1 {
		t.Errorf("it was deleted: %+v", p)
	}
	env.policy(retains, deletes)
	f = PreviewFacts{Facts: env.read(), Set: f.Set}
	if p := PreviewOf(f, ScaleTo(1)); p.Policy.WhenScaled != string(deletes) || p.Totals.ClaimsDeleted != 2 {
		t.Errorf("the policy of the first read counts: %+v", p)
	}
	f = PreviewFacts{Facts: env.read(), Set: f.Sets.Value[0]}
	explained.Forbid(&f.Sets)
	if p := PreviewOf(f, ScaleTo(1)); p.Totals.ClaimsDeleted != 2 || !strings.Contains(p.Unread[0], "StatefulSets") {
		t.Errorf("other sets are not read: %+v", p)
	}
	env.others = []*appsv1.StatefulSet{setOf("b", "other", "data-d")}
	env.set.Name = "d-b"
	env.claims[2].Name = "data-d-b-2"
	env.annotate(both)
	if p := env.preview(ScaleTo(1)); len(p.Claims) != 1 || p.Claims[0].Reason != "NamesCollide" {
		t.Errorf("names collide: %+v", p)
	}
}
