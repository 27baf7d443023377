//go:build unix

package statefulset

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
)

// plugin runs kubectl-reclaim and reads its JSON.
func (env *environment) plugin(into any, args ...string) {
	env.T.Helper()
	output := env.RunPlugin(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(output), into); err != nil {
		env.T.Fatalf("%v in\n%s", err, output)
	}
}

// preview returns the plugin's preview of the fate of the set's claims. It waits until no claim's volume is in flight:
// csi-reclaimer closes the entry of a volume a moment after it stores the PV, and until then the volume has no fate.
func (s *set) preview(args ...string) (p claims.Preview) {
	s.T.Helper()
	s.Eventually("no volume of the set is in flight", func() bool {
		p = claims.Preview{}
		s.plugin(&p, append([]string{"preview", "statefulset/" + s.name}, args...)...)
		return !slices.ContainsFunc(p.Claims, func(r claims.Row) bool {
			return r.Volume.Reason == string(reclaim.ReasonInFlight)
		})
	})
	if len(p.Unread) > 0 {
		s.T.Errorf("not all is read: %q", p.Unread)
	}
	return p
}

// expectPreview checks a preview: the fate of each claim and its volume, by ordinal.
func (s *set) expectPreview(p claims.Preview, want ...string) {
	s.T.Helper()
	var got []string
	for _, r := range p.Claims {
		got = append(got, fmt.Sprintf("%s %s %s", r.Claim, r.Fate, r.Volume.Fate))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.T.Errorf("the preview has %q, want %q: %+v", got, want, p)
	}
}

// expectTrue waits until claims and volumes are as a preview has said.
func (s *set) expectTrue(p claims.Preview) {
	s.T.Helper()
	for _, r := range p.Claims {
		deleted := r.Fate == "deleted"
		s.Eventually(fmt.Sprintf("claim %s is %s", r.Claim, r.Fate), func() bool {
			claim := s.claimNamed(r.Claim)
			return deleted == (claim == nil)
		})
		s.Eventually(fmt.Sprintf("volume of %s is %s", r.PV, r.Volume.Fate), func() bool {
			pv, err := s.Client.CoreV1().PersistentVolumes().Get(s.Ctx, r.PV, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return r.Volume.Fate == volumes.VolumeDeleted
			}
			s.Must(err)
			phase := v1.VolumeBound
			if deleted {
				phase = v1.VolumeReleased
			}
			return r.Volume.Fate == volumes.VolumeKept && pv.Status.Phase == phase
		})
	}
}

// lead has a Lease show that volume-guard runs: the one of these tests elects no leader.
func (env *environment) lead() {
	env.T.Helper()
	_, err := env.Client.CoordinationV1().Leases(env.Namespace).Create(env.Ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "volume-guard"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("the test"), LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	}, metav1.CreateOptions{})
	env.Must(err)
}

// TestPreview has the plugin preview a change of a set, makes the change, and compares the result with the preview.
func TestPreview(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.run([]scenario{
		{"a scale-down under Delete", func(env *environment) {
			env.lead()
			s := env.runningSet(3, onScaledown)
			p := s.preview("--replicas=1")
			s.expectPreview(p, "data-web-0 kept kept", "data-web-1 deleted deleted", "data-web-2 deleted deleted")
			env.ExpectOutput(env.RunPlugin("explain", "pvc/data-web-1"), "Scaled away  deleted (ScaledDown)",
				"Set deleted  kept (RetainedWhenDeleted)", "it had pod web-1 of the set")
			s.scale(1)
			s.expectTrue(p)
		}},
	},
		scenario{"a claim that has no pod, and one whose PV is retained", func(env *environment) {
			env.lead()
			s := env.runningSet(2, onScaledown)
			s.retainVolume(1)
			s.losePod(1)
			p := s.preview("--replicas=1")
			s.expectPreview(p, "data-web-0 kept kept", "data-web-1 deleted kept")
			if when := p.Claims[1].When; when != "after a grace period of 60s" {
				t.Errorf("it is deleted %q", when)
			}
			s.scale(1)
			s.expectTrue(p)
		}},
		scenario{"a deletion under Delete, with a PV that is held", func(env *environment) {
			env.lead()
			s := env.runningSet(2, onSetDeletion)
			held := s.claim(1).Spec.VolumeName
			s.patchPV(held, annotationPatch(holdAnnotation, "audit"))
			p := s.preview("--delete")
			s.expectPreview(p, "data-web-0 deleted deleted", "data-web-1 deleted kept")
			s.delete(metav1.DeletePropagationBackground)
			s.expectTrue(p)
			s.patchPV(held, annotationPatch(holdAnnotation, ""))
		}},
		scenario{"a deletion of the set alone", func(env *environment) {
			env.lead()
			s := env.runningSet(1, onBoth)
			p := s.preview("--cascade=orphan")
			s.expectPreview(p, "data-web-0 kept kept")
			s.delete(metav1.DeletePropagationOrphan)
			s.waitGone()
			s.expectTrue(p)
		}},
		scenario{"retained", testRetained},
	)
}

// testRetained has claims be left behind, and deletes them as the plugin says.
func testRetained(env *environment) {
	s := env.runningSet(2, keepAll)
	list := func() (l claims.Retained) {
		env.plugin(&l, "status", "--retained")
		return l
	}
	if l := list(); len(l.Claims) != 0 || len(l.Unread) != 0 {
		env.T.Errorf("while all is in use: %+v", l)
	}
	s.scale(1)
	s.waitPods(0, 1)
	l := list()
	if len(l.Claims) != 1 || l.Totals.Size != "1Mi" {
		env.T.Fatalf("after a scale-down: %+v", l)
	}
	if c := l.Claims[0]; c.Name != "data-web-1" || c.StatefulSet != "web" || c.SetGone || c.Likely ||
		c.Reason != "Retained" || c.Since == nil || c.Volume.Fate != volumes.VolumeDeleted {
		env.T.Errorf("after a scale-down: %+v", c)
	}
	env.ExpectOutput(env.RunPlugin("explain", "pvc/data-web-1"), "ordinal 1, scaled away (the set has 1 replica)",
		"kubectl delete pvc data-web-1 -n "+env.Namespace)
	s.delete(metav1.DeletePropagationForeground)
	s.waitGone()
	env.Eventually("both claims are listed", func() bool { return len(list().Claims) == 2 })
	for _, c := range list().Claims {
		if !c.SetGone || c.Likely || c.Evidence == "" {
			env.T.Errorf("after the deletion of the set: %+v", c)
		}
		env.Must(env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Delete(env.Ctx, c.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(c.UID)}))
		env.Eventually("the volume is deleted", func() bool {
			_, err := env.Client.CoreV1().PersistentVolumes().Get(env.Ctx, c.PV, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	env.ExpectOutput(env.RunPlugin("status", "--retained"), "No claims that a StatefulSet has left behind were found")
}

// patchPV changes a PV.
func (env *environment) patchPV(name, merge string) {
	env.T.Helper()
	ctx := env.CleanupContext()
	_, err := env.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, []byte(merge),
		metav1.PatchOptions{})
	env.Must(err)
}

// retainVolume retains the volume of an ordinal until the test has ended.
func (s *set) retainVolume(ordinal int) {
	s.T.Helper()
	name := s.claim(ordinal).Spec.VolumeName
	s.patchPV(name, `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	s.T.Cleanup(func() { s.patchPV(name, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`) })
}
