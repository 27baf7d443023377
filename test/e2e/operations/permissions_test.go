//go:build unix

package operations

import (
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestPermissionsAreNecessaryAndSufficient exercises each role with the shipped RBAC, and compares the requests with
// the rules, in both directions.
func TestPermissionsAreNecessaryAndSufficient(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	for _, role := range []string{"owner", "node", "companion", "observer"} {
		t.Run(role, func(t *testing.T) {
			if role != "owner" {
				suite.Deep(t, suite.Load)
			}
			t.Parallel()
			// Without PUBLISH_UNPUBLISH_VOLUME the CSIDriver is asked whether volumes are attached.
			options := mockdriver.Options{Profile: "no-attach"}
			if role == "owner" {
				options.Args = []string{"--topology=zone=a"} // so that nodes matter
			}
			var place, node string
			if role == "node" {
				place = "place-" + rand.String(8)
				options.Args = []string{"--topology=" + fixture.NodeTopologyKey + "=" + place}
			}
			env := newForRole(t, role, options)
			if role == "observer" {
				env.StartPeer(true)
			}
			flags, as := append(fixture.FastRetries(), "--reclaim-unprotected", "--leader-election",
				"--leader-election-namespace="+env.Namespace,
				"--brake-deletions=4", "--immediate-topology=false"), role
			if role == "node" {
				node, as = env.CreateNode(map[string]string{fixture.NodeTopologyKey: place}), "owner"
				flags = append(flags, "--node-deployment", "--node-deployment-base-delay=100ms")
				env.NodeAffinity = topology.Affinity([]*csi.Topology{{Segments: map[string]string{fixture.NodeTopologyKey: place}}})
			}
			car := env.LaunchSidecarWith(program.SidecarOptions{Args: append(flags, "--role="+as),
				Env: []string{"NODE_NAME=" + node}})
			env.Must(car.WaitReady(env.WithTimeout()))
			switch role {
			case "owner":
				env.exerciseProvisioning(env.rejectSelectedNode)
			case "node":
				env.exerciseProvisioning(func() {})
			}
			env.exerciseRole(role, car)
			cluster, namespaced, err := rbac.Rules(role)
			env.Must(err)
			var elsewhere []string
			if role == "companion" || role == "observer" {
				// Used to finish an owner's volumes in flight: TestUninstallFinishesInFlightVolumes.
				elsewhere = []string{"create persistentvolumes", "get persistentvolumes"}
			}
			env.ExpectAllRulesUsed(slices.Concat(cluster, namespaced), elsewhere...)
		})
	}
}

// exerciseRole makes the sidecar do all that its role does.
func (env *environment) exerciseRole(role string, car *program.Program) {
	env.T.Helper()
	class := "class-" + env.Namespace
	_, err := env.Client.StorageV1().StorageClasses().Create(env.Ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: env.Driver,
	}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() {
		_ = env.Client.StorageV1().StorageClasses().Delete(env.CleanupContext(), class, metav1.DeleteOptions{})
	})
	plain := func(pv *v1.PersistentVolume) {
		// No annotation names its Secret, so the class is asked; and it was attached once.
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
			v1.BetaStorageClassAnnotation: class}
		pv.Finalizers = []string{"external-attacher/" + env.LeaseName()}
		pv.Spec.NodeAffinity = env.NodeAffinity
	}
	if role != "observer" {
		vol := env.MakeVolume(objects.Spec{Dynamic: true, Change: plain})
		env.WaitPV(vol, "protected", func(pv *v1.PersistentVolume) bool {
			return fixture.HasFinalizer(pv) ||
				hasCompanionFinalizer(pv)
		})
		if role == "companion" {
			env.Must(vol.DeletePV(env.Ctx))
		}
		env.Must(vol.DeleteClaim(env.Ctx))
		env.WaitDeleteCalls(vol, 1)
	}
	for range 2 { // the same Event a second time is a patch
		lease := env.tripBreaker(func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
				v1.BetaStorageClassAnnotation: class}
			pv.Spec.NodeAffinity = env.NodeAffinity
		})
		_, err := env.Client.CoordinationV1().Leases(env.Namespace).Patch(env.Ctx, lease, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, reclaim.BrakeAnnotation), metav1.PatchOptions{})
		env.Must(err)
		// A peer may have deleted the volumes long before: only the sidecar shows that it saw this.
		env.WaitMetric(car, "csi_reclaimer_braked", "0")
		env.Eventually("all volumes are gone", func() bool { return len(env.VolumesOnDisk()) == 0 })
	}
}

// exerciseProvisioning has the sidecar create all kinds of volumes, and calls special for its deployment.
func (env *environment) exerciseProvisioning(special func()) {
	env.T.Helper()
	class, tier := env.CreateStorageClass(), "tier-"+env.Namespace
	_, err := env.Client.StorageV1().VolumeAttributesClasses().Create(env.Ctx, &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: tier}, DriverName: env.Driver, Parameters: map[string]string{"tier": "gold"},
	}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() {
		_ = env.Client.StorageV1().VolumeAttributesClasses().Delete(env.CleanupContext(), tier, metav1.DeleteOptions{})
	})
	source := env.WaitBound(env.CreateClaim(class, func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &tier }
	}))
	clone := env.WaitBound(env.CreateClaim(class, fixture.CloneOf(source.BoundClaim)))
	env.InstallSnapshotCRDs()
	restored := env.WaitBound(env.CreateClaim(class, fixture.FromSnapshot(env.CreateSnapshot(source, nil).Name)))
	special()
	for _, claim := range []*objects.Claim{clone.BoundClaim, restored.BoundClaim, source.BoundClaim} {
		env.MustDeleteClaim(claim)
	}
	env.Eventually("all volumes are gone", func() bool { return len(env.VolumesOnDisk()) == 0 })
}

// rejectSelectedNode has the sidecar reject a selected node without the driver.
func (env *environment) rejectSelectedNode() {
	env.T.Helper()
	late := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer),
		fixture.WithSelectedNode(env.CreateNode(nil)))
	env.WaitClaim(late, "without that node", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.Annotations[objects.SelectedNode] == ""
	})
	env.MustDeleteClaim(late)
}

// deleteUnprotected makes PVs that go before they can be protected.
func (env *environment) deleteUnprotected(n int, change func(*v1.PersistentVolume)) {
	env.T.Helper()
	vols := env.MakeVolumes(n, func(int) objects.Spec {
		return objects.Spec{Dynamic: true, Policy: v1.PersistentVolumeReclaimRetain, Change: change}
	})
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "released", fixture.IsReleased)
	env.ForEachVolume(vols, func(vol *objects.Volume) error {
		if err := vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete); err != nil {
			return err
		}
		return env.DeletePVIfPresent(vol)
	})
}

// tripBreaker has PVs vanish until a Lease says that the brake is on, and returns its name. Where a
// peer works beside, it may protect most of them in time.
func (env *environment) tripBreaker(change func(*v1.PersistentVolume)) (name string) {
	env.T.Helper()
	looks := 0
	env.Eventually("the Lease says that the brake is on", func() bool {
		if looks%100 == 0 {
			env.deleteUnprotected(10, change)
		}
		looks++
		list, err := env.Client.CoordinationV1().Leases(env.Namespace).List(env.Ctx, metav1.ListOptions{})
		env.Must(err)
		for _, lease := range list.Items {
			if lease.Annotations[reclaim.BrakeAnnotation] != "" {
				name = lease.Name
			}
		}
		return name != ""
	})
	return name
}
