//go:build unix

package volumeguard

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestInTreeBesideControllerManagerWithKEP2644 expects volume-guard to write to no PV, under many kinds of changes.
func TestInTreeBesideControllerManagerWithKEP2644(t *testing.T) {
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	env := newInTreeEnvironment(t, controlplane.Newest)
	g := env.Start("--leader-election=false")
	n := fixture.Size(500, 60)
	all := env.folders(n)
	env.WaitMetric(g, "csi_reclaimer_intree_managed_by_other", "1")
	for i, f := range all {
		switch i % 4 {
		case 0:
			env.deletePVFirst(f)
		case 1:
			env.Must(f.DeleteClaim(env.Ctx))
		case 2:
			env.Must(f.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
		}
	}
	kept := func(turned int) (vols []*objects.Volume) {
		for i, f := range all {
			if i%4 == turned {
				vols = append(vols, f.Volume)
			}
		}
		return vols
	}
	env.WaitAllPVs(slices.Concat(kept(0), kept(1)), "gone", fixture.IsGone)
	env.WaitAllPVs(kept(2), "without the finalizer",
		func(pv *v1.PersistentVolume) bool { return pv != nil && !isGuarded(pv) })
	env.ForEachVolume(kept(2), func(vol *objects.Volume) error {
		return vol.SetPolicy(env.Ctx,
			v1.PersistentVolumeReclaimDelete)
	})
	env.WaitAllPVs(kept(2), "guarded again", isGuarded)
	for i, f := range all {
		env.expectFolder(f, i%4 > 1)
	}
	env.expectPluginGone()
	events, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && !slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	env.Must(err)
	if len(events) > 0 {
		t.Errorf("volume-guard wrote to %d of %d PVs: %+v", len(events), n, events[0])
	}
}

// TestInTreeMigrationSwitchedOnOffAndOn expects each side to remove its own finalizer and to leave the other's.
func TestInTreeMigrationSwitchedOnOffAndOn(t *testing.T) {
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	const driver, handle = "ebs.csi.aws.com", "vol-0123456789abcdef0"
	env := newWithVolumeGuard(t, controlplane.V1_30, controlplane.Options{})
	env.Start("--leader-election=false")
	env.MockDriver = mockdriver.ForTest(t, mockdriver.Options{Name: driver, Args: []string{"--static-volume=" + handle}})
	env.Driver, env.CSI = driver, env.MockDriver.Controller()
	env.CreateServiceAccount("csi-reclaimer")
	env.GrantRole("owner")
	env.StartSidecar(fixture.FastRetries()...)
	vol := env.MakeVolume(objects.Spec{Handle: handle, Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs",
			"pv.kubernetes.io/migrated-to": driver}
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/" + handle},
		}
	}})
	migrated := func(pv *v1.PersistentVolume) bool { return fixture.HasFinalizer(pv) && !isGuarded(pv) }
	taken := func(pv *v1.PersistentVolume) bool { return !fixture.HasFinalizer(pv) && isGuarded(pv) }
	annotate := func(value string) {
		_, err := env.Client.CoreV1().PersistentVolumes().Patch(env.Ctx, vol.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"pv.kubernetes.io/migrated-to":`+value+`}}}`), metav1.PatchOptions{})
		env.Must(err)
	}
	env.WaitPV(vol, "the sidecar's", migrated)
	// This controller manager has migration on, and would put the annotation back.
	env.Must(env.Plane.ControllerManager.Pause())
	annotate("null")
	env.WaitPV(vol, "volume-guard's", taken)
	annotate(`"` + driver + `"`)
	env.WaitPV(vol, "the sidecar's again", migrated)
	env.Must(env.Plane.ControllerManager.Resume())
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	if _, err := env.Client.CoreV1().PersistentVolumes().Get(env.Ctx, volume.TwinName(vol.Name),
		metav1.GetOptions{}); !notFound(err) {
		t.Errorf("a migrated PV has a twin: %v", err)
	}
}
