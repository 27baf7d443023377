//go:build unix

package e2e

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestBesideAControllerManagerThatHonoursThePolicy volume-guard writes to no PV, whatever happens to many.
func TestBesideAControllerManagerThatHonoursThePolicy(t *testing.T) {
	t.Parallel()
	s := newInTree(t, controlplane.V1_36)
	g := s.guard("--leader-election=false")
	n := size(500, 60)
	all := s.folders(n)
	s.metric(g, "csi_reclaimer_intree_managed_by_other", "1")
	for i, f := range all {
		switch i % 4 {
		case 0:
			s.pvFirst(f)
		case 1:
			s.must(f.DeleteClaim(s.ctx))
		case 2:
			s.must(f.SetPolicy(s.ctx, v1.PersistentVolumeReclaimRetain))
		}
	}
	kept := func(turned int) (vols []*storage.Volume) {
		for i, f := range all {
			if i%4 == turned {
				vols = append(vols, f.Volume)
			}
		}
		return vols
	}
	s.waitAll(slices.Concat(kept(0), kept(1)), "gone", isGone)
	s.waitAll(kept(2), "without the finalizer", func(pv *v1.PersistentVolume) bool { return pv != nil && !isGuarded(pv) })
	s.all(kept(2), func(vol *storage.Volume) error { return vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete) })
	s.waitAll(kept(2), "guarded again", isGuarded)
	for i, f := range all {
		s.expectFolder(f, i%4 > 1)
	}
	s.expectPluginGone()
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && !slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	s.must(err)
	if len(events) > 0 {
		t.Errorf("volume-guard wrote to %d of %d PVs: %+v", len(events), n, events[0])
	}
}

// TestMigrationIsSwitchedOnOffAndOn for a PV: each side takes its finalizer and leaves the other's.
func TestMigrationIsSwitchedOnOffAndOn(t *testing.T) {
	t.Parallel()
	const driver, handle = "ebs.csi.aws.com", "vol-0123456789abcdef0"
	s := newGuardStage(t, controlplane.V1_30, controlplane.Options{})
	s.guard("--leader-election=false")
	s.driver = mockdriver.ForTest(t, mockdriver.Options{Name: driver, Args: []string{"--static-volume=" + handle}})
	s.Driver, s.CSI = driver, s.driver.Controller()
	s.account("csi-reclaimer")
	s.grant("owner")
	s.sidecar(eager()...)
	vol := s.make(storage.Spec{Handle: handle, Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs", "pv.kubernetes.io/migrated-to": driver}
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/" + handle},
		}
	}})
	migrated := func(pv *v1.PersistentVolume) bool { return protected(pv) && !isGuarded(pv) }
	taken := func(pv *v1.PersistentVolume) bool { return !protected(pv) && isGuarded(pv) }
	annotate := func(value string) {
		_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"pv.kubernetes.io/migrated-to":`+value+`}}}`), metav1.PatchOptions{})
		s.must(err)
	}
	s.waitPV(vol, "the sidecar's", migrated)
	// This controller manager has migration on, and would put the annotation back.
	s.must(s.plane.ControllerManager.Pause())
	annotate("null")
	s.waitPV(vol, "volume-guard's", taken)
	annotate(`"` + driver + `"`)
	s.waitPV(vol, "the sidecar's again", migrated)
	s.must(s.plane.ControllerManager.Resume())
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	if _, err := s.client.CoreV1().PersistentVolumes().Get(s.ctx, intree.TwinName(vol.Name), metav1.GetOptions{}); !notFound(err) {
		t.Errorf("a migrated PV has a twin: %v", err)
	}
}
