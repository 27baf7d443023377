//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// strip takes the finalizer off, as another program or a person does.
func (s *stage) strip(vol *storage.Volume) {
	s.t.Helper()
	_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.StrategicMergePatchType,
		[]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+volume.Finalizer+`"]}}`), metav1.PatchOptions{})
	s.must(err)
}

// loop strips a PV as often as it takes until the finalizer is not added to it any more.
func (s *stage) loop(vol *storage.Volume) {
	s.t.Helper()
	for range 3 {
		s.waitProtected(vol)
		s.strip(vol)
	}
}

// addAsTold has somebody else add the finalizer to a PV, as the Event says.
func (s *stage) addAsTold(vol *storage.Volume, text string) {
	s.t.Helper()
	patch := `{"metadata":{"finalizers":["` + volume.Finalizer + `"]}}`
	if text != "" && !strings.Contains(text, "kubectl patch pv "+vol.Name+" -p '"+patch+"'") {
		s.t.Fatalf("the command that adds the finalizer is not told: %s", text)
	}
	_, err := s.client.CoreV1().PersistentVolumes().Patch(
		s.ctx, vol.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.must(err)
}

// TestALoopOnOnePVIsThatPVs: somebody removes one PV's finalizer again and again; all others stay protected.
func TestALoopOnOnePVIsThatPVs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	looped, other := s.make(storage.Spec{}), s.make(storage.Spec{})
	s.waitProtected(other)
	s.loop(looped)
	s.waitEvent(looped, "PVContested", "Other PVs are protected")
	s.metric(car, `csi_reclaimer_waiting_pvs{driver_name="`+s.Driver+`",reason="PVContested"}`, "1")
	s.metric(car, "csi_reclaimer_finalizers_contested", "0")
	before := s.writes(s.user, []*storage.Volume{looped})["patch"]
	s.annotate(looped, "example.com/changed", "again")
	// Another PV's finalizer is added again, and a new PV gets one.
	s.strip(other)
	s.waitProtected(other)
	s.must(other.DeletePV(s.ctx))
	s.must(other.DeleteClaim(s.ctx))
	s.must(other.WaitGone(s.soon()))
	s.expectDeleted(other, 1)
	s.fence()
	if after := s.writes(s.user, []*storage.Volume{looped})["patch"]; after != before || before != 3 {
		t.Errorf("%d patches before and %d after the contest was seen, want 3", before, after)
	}
	// Somebody else adds the finalizer: the PV is protected again.
	s.addAsTold(looped, s.events(looped, "PVContested")[0].Message)
	s.metric(car, `csi_reclaimer_pvs{driver_name="`+s.Driver+`",protected="true"}`, "1")
	s.strip(looped)
	s.waitProtected(looped)
	s.must(looped.DeletePV(s.ctx))
	s.must(looped.DeleteClaim(s.ctx))
	s.must(looped.WaitGone(s.soon()))
	s.expectDeleted(looped, 1)
}

// TestNoWarOverTheFinalizer: somebody removes the finalizer from several PVs again and again.
func TestNoWarOverTheFinalizer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	vols := s.makeMany(3, func(int) storage.Spec { return storage.Spec{} })
	for _, vol := range vols {
		s.loop(vol)
	}
	s.metric(car, "csi_reclaimer_finalizers_contested", "1")
	vol := vols[0]
	for _, vol := range vols {
		s.waitEvent(vol, "FinalizerContested", "--role=companion")
	}
	before := s.writes(s.user, []*storage.Volume{vol})["patch"]
	s.annotate(vol, "example.com/changed", "again")
	another := s.make(storage.Spec{}) // nothing is protected any more
	s.waitEvent(another, "FinalizerContested", "--role=companion")
	if after := s.writes(s.user, []*storage.Volume{vol})["patch"]; after != before || before != 3 {
		t.Errorf("%d patches before and %d after the contest was seen, want 3", before, after)
	}
	// A volume whose claim goes first is deleted all the same.
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	// Somebody else adds the finalizer to one of them: peace for all, and work goes on.
	s.addAsTold(another, "")
	s.metric(car, "csi_reclaimer_finalizers_contested", "0")
	s.waitProtected(vols[1])
	s.fence()
}

func TestAFinalizerTakenOffByHandLetsThePVGo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	const other = "example.com/holds-it"
	for name, finalizers := range map[string][]string{"another finalizer holds the PV": {other}, "it was the last finalizer": nil} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			vol := s.make(storage.Spec{Change: func(pv *v1.PersistentVolume) { pv.Finalizers = finalizers }})
			s.waitProtected(vol)
			s.annotate(vol, volume.HoldAnnotation, "time to take it off")
			s.must(vol.DeletePV(s.ctx))
			s.must(vol.DeleteClaim(s.ctx))
			s.waitPV(vol, "released and held by us alone", func(pv *v1.PersistentVolume) bool {
				return pv.Status.Phase == v1.VolumeReleased && !slices.Contains(pv.Finalizers, "kubernetes.io/pv-protection")
			})
			s.strip(vol)
			s.waitEvent(vol, "ReclaimAbandoned", vol.Handle)
			s.fence()
			s.expectKept(vol)
		})
	}
}
