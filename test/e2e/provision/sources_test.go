//go:build unix

package provision

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestProvisionFromSnapshotAndClone creates volumes of both modes from volumes and from snapshots.
func TestProvisionFromSnapshotAndClone(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	const source, larger = 2 << 20, 3 << 20
	filesystem := func(*objects.ClaimSpec) {}
	for mode, as := range map[string]struct{ same, other func(*objects.ClaimSpec) }{
		"filesystem": {filesystem, withBlockMode},
		"block":      {withBlockMode, filesystem},
	} {
		t.Run(mode, func(t *testing.T) {
			env := env.forSubtest(t)
			original := env.WaitBound(env.CreateClaim(class, as.same, withSize("2Mi")))
			snapshot := env.CreateSnapshot(original, nil)
			for kind, c := range map[string]struct {
				from func(*objects.ClaimSpec)
				want backend.Source
			}{
				"clone":   {fixture.CloneOf(original.BoundClaim), backend.Source{VolumeID: original.Handle}},
				"restore": {fixture.FromSnapshot(snapshot.Name), backend.Source{SnapshotID: snapshot.Handle}},
			} {
				made := env.CreateClaim(class, as.same, c.from, withSize("3Mi"))
				small := env.CreateClaim(class, as.same, c.from)
				unlike := env.CreateClaim(class, as.other, c.from, withSize("3Mi"))
				there := env.volumeOnDisk(env.WaitBound(made))
				if isBlock := slices.ContainsFunc(there.Access,
					func(a backend.Access) bool { return a.Block }); there.Source != c.want || there.Bytes != larger ||
					isBlock != (mode == "block") {
					t.Errorf("%s: volume %+v, want %d bytes from %+v", kind, there, larger, c.want)
				}
				if n := len(env.CreateCalls(made)); n != 1 {
					t.Errorf("%s: %d CreateVolume calls", kind, n)
				}
				env.WaitClaimEvent(small, "ProvisioningFailed", "requests 1048576 bytes and")
				env.WaitClaimEvent(unlike, "ProvisioningFailed", "request the same mode")
				env.ExpectClaimUntouched(small)
				env.ExpectClaimUntouched(unlike)
			}
			if got := env.volumeOnDisk(original).Bytes; got != source {
				t.Errorf("the source has %d bytes", got)
			}
		})
	}
}

// TestProvisionFromUnusableSnapshot creates claims that must wait for their snapshot.
func TestProvisionFromUnusableSnapshot(t *testing.T) {
	env := begin(t, fixture.AboutDriver)
	env.StartSidecar(fixture.FastRetries()...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))

	foreign := env.CreateSnapshot(original, func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
		c.Spec.Driver = "another.csi.example.com"
	})
	strange := env.CreateClaim(class, fixture.FromSnapshot(foreign.Name))
	env.WaitClaimEvent(strange, "ProvisioningFailed", `is of CSI driver "another.csi.example.com"`)
	env.ExpectClaimUntouched(strange)

	no, yes := false, true
	young := env.CreateSnapshot(original, func(snapshot *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
		snapshot.Status.ReadyToUse = &no
	})
	waiting := env.CreateClaim(class, fixture.FromSnapshot(young.Name))
	env.WaitClaimEvent(waiting, "ProvisioningFailed", "is not ready yet")
	env.ExpectClaimUntouched(waiting)
	snapshots := env.Snapshots.VolumeSnapshots(env.Namespace)
	now, err := snapshots.Get(env.Ctx, young.Name, metav1.GetOptions{})
	env.Must(err)
	now.Status.ReadyToUse = &yes
	_, err = snapshots.UpdateStatus(env.Ctx, now, metav1.UpdateOptions{})
	env.Must(err)
	if got := env.volumeOnDisk(env.WaitBound(waiting)).Source.SnapshotID; got != young.Handle {
		t.Errorf("restored from %q, want %q", got, young.Handle)
	}
}

//go:embed testdata/referencegrants.yaml
var referenceGrants []byte

// fromOtherNamespace has a claim take its data from another namespace.
func fromOtherNamespace(namespace string, source *v1.TypedLocalObjectReference) func(*objects.ClaimSpec) {
	return func(spec *objects.ClaimSpec) {
		spec.Change = func(claim *v1.PersistentVolumeClaim) {
			claim.Spec.DataSource = nil
			claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name,
				Namespace: &namespace}
		}
	}
}

// newCrossNamespaceEnvironment returns a environment on an API server of its own, which knows references to other
// namespaces.
func newCrossNamespaceEnvironment(t *testing.T) *environment {
	t.Helper()
	plane := controlplane.ForTest(t, fixture.Version(), controlplane.Options{
		AuditLog: true, ControllerManagerQPS: 5000, ControllerManagerArgs: []string{controlplane.BindOften},
		APIServerArgs: []string{"--feature-gates=CrossNamespaceVolumeDataSource=true"},
	})
	options := mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"}
	env := &environment{fixture.NewOn(t, plane, options.Name)}
	env.UseDriver(options)
	env.CreateServiceAccount("csi-reclaimer")
	env.GrantRole("owner")
	env.Must(plane.InstallSnapshots(env.Ctx))
	return env
}

// installReferenceGrants has the API server serve ReferenceGrants, and the account of csi-reclaimer list them.
func (env *environment) installReferenceGrants() schema.GroupVersionResource {
	env.T.Helper()
	api := env.Client.Discovery().RESTClient()
	env.Must(api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/yaml").Body(referenceGrants).Do(env.Ctx).Error())
	env.Eventually("ReferenceGrants are served", func() bool {
		return api.Get().AbsPath("/apis/gateway.networking.k8s.io/v1beta1/referencegrants").Do(env.Ctx).Error() == nil
	})
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
}

// allowListingReferenceGrants adds the rule that deploy/manifests/rbac-owner.yaml has in a comment.
func (env *environment) allowListingReferenceGrants() {
	env.T.Helper()
	env.Grant("referencegrants", "csi-reclaimer", rbacv1.PolicyRule{APIGroups: []string{"gateway.networking.k8s.io"},
		Resources: []string{"referencegrants"}, Verbs: []string{"list"}})
}

// allowFrom lets claims of a namespace refer to all snapshots and claims of the environment's.
func (env *environment) allowFrom(resource schema.GroupVersionResource, namespace string) {
	env.T.Helper()
	client, err := dynamic.NewForConfig(env.Plane.Admin())
	env.Must(err)
	grant := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
		"metadata": map[string]any{"name": "data"},
		"spec": map[string]any{
			"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": namespace}},
			"to": []any{
				map[string]any{"group": snapshotv1.GroupName, "kind": "VolumeSnapshot"},
				map[string]any{"group": "", "kind": "PersistentVolumeClaim"},
			},
		},
	}}
	_, err = client.Resource(resource).Namespace(env.Namespace).Create(env.Ctx, grant, metav1.CreateOptions{})
	env.Must(err)
}

// TestProvisionFromSourceInAnotherNamespace restores and clones across namespaces, before and after a ReferenceGrant
// allows it.
func TestProvisionFromSourceInAnotherNamespace(t *testing.T) {
	fixture.Begin(t, suite.OwnControlPlane, fixture.OwnVersions)
	env := newCrossNamespaceEnvironment(t)
	shop := env.forSubtest(t)
	var err error
	shop.Namespace, err = env.Plane.CreateNamespace(env.Ctx, "shop-")
	env.Must(err)
	car := env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	original := shop.WaitBound(shop.CreateClaim(class))
	snapshot := shop.CreateSnapshot(original, nil)
	sources := map[string]*v1.TypedLocalObjectReference{"restored": objects.FromSnapshot(snapshot.Name),
		"cloned": objects.FromClaim(original.BoundClaim.Name)}
	want := map[string]backend.Source{"restored": {SnapshotID: snapshot.Handle}, "cloned": {VolumeID: original.Handle}}
	claims := map[string]*objects.Claim{}
	waitEvent := func(text string) {
		t.Helper()
		for kind := range sources {
			env.WaitClaimEvent(claims[kind], "ProvisioningFailed", text)
			env.ExpectClaimUntouched(claims[kind])
		}
	}
	for kind, source := range sources {
		claims[kind] = env.CreateClaim(class, fromOtherNamespace(shop.Namespace, source))
	}
	waitEvent("the feature gate CrossNamespaceVolumeDataSource of csi-reclaimer is off")

	env.Restart(car, append(fixture.FastRetries(), "--feature-gates=CrossNamespaceVolumeDataSource=true")...)
	env.Must(car.WaitLog(env.WithTimeout(),
		"Preflight: may not list referencegrants: no claim gets its data from another namespace"))
	env.allowListingReferenceGrants()
	waitEvent("it serves no gateway.networking.k8s.io/v1beta1")
	resource := env.installReferenceGrants()
	waitEvent(fmt.Sprintf("no ReferenceGrant there allows that; create one in namespace %q", shop.Namespace))

	env.SetFaults(fixture.BlockCreateVolume(false))
	shop.allowFrom(resource, env.Namespace)
	for _, claim := range claims {
		env.waitCreateCall(claim)
	}
	shop.MustDeleteClaim(original.BoundClaim)
	shop.WaitClaim(original.BoundClaim, "terminating and kept", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, request.CloningFinalizer)
	})
	shop.deleteVolumeSnapshot(snapshot)
	if there, _, protected := shop.snapshotState(snapshot); !there || !protected {
		t.Error("the snapshot is not kept while it is restored")
	}
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	for kind, claim := range claims {
		if got := env.volumeOnDisk(env.WaitBound(claim)).Source; got != want[kind] {
			t.Errorf("%s: from %+v, want %+v", kind, got, want[kind])
		}
	}
	shop.waitNoSnapshot(snapshot)
	shop.WaitClaim(original.BoundClaim, "gone", fixture.ClaimIsGone)
}

// snapshotState returns whether a VolumeSnapshot is there, is being deleted, and has the provisioner's finalizer.
func (env *environment) snapshotState(snapshot *objects.Snapshot) (there, deleting, protected bool) {
	env.T.Helper()
	now, err := env.Snapshots.VolumeSnapshots(env.Namespace).Get(env.Ctx, snapshot.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, false
	}
	env.Must(err)
	return true, now.DeletionTimestamp != nil, slices.Contains(now.Finalizers, request.SnapshotFinalizer)
}

func (env *environment) deleteVolumeSnapshot(snapshot *objects.Snapshot) {
	env.T.Helper()
	env.Must(env.Snapshots.VolumeSnapshots(env.Namespace).Delete(env.Ctx, snapshot.Name, metav1.DeleteOptions{}))
}

func (env *environment) waitNoSnapshot(snapshot *objects.Snapshot) {
	env.T.Helper()
	env.Eventually("VolumeSnapshot "+snapshot.Name+" is gone",
		func() bool { there, _, _ := env.snapshotState(snapshot); return !there })
}

func (env *environment) waitUnprotected(snapshot *objects.Snapshot) {
	env.T.Helper()
	env.Eventually("VolumeSnapshot "+snapshot.Name+" is without the finalizer", func() bool {
		there, _, protected := env.snapshotState(snapshot)
		return there && !protected
	})
}

// withStaleFinalizer has a snapshot carry the finalizer of a provisioner that is gone.
func withStaleFinalizer(snapshot *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
	snapshot.Finalizers = append(snapshot.Finalizers, request.SnapshotFinalizer)
}

// TestSnapshotIsProtectedDuringRestore deletes one snapshot during the restore, and one after.
func TestSnapshotIsProtectedDuringRestore(t *testing.T) {
	env := begin(t, fixture.AboutDriver)
	env.StartSidecar(append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=1h")...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	during, after := env.CreateSnapshot(original, nil), env.CreateSnapshot(original, nil)

	env.SetFaults(fixture.BlockCreateVolume(false))
	first, second := env.CreateClaim(class, fixture.FromSnapshot(during.Name)), env.CreateClaim(class,
		fixture.FromSnapshot(during.Name))
	env.waitCreateCall(first)
	env.waitCreateCall(second)
	if _, _, protected := env.snapshotState(during); !protected {
		t.Error("CreateVolume was called before the snapshot was protected")
	}
	env.deleteVolumeSnapshot(during)
	if there, deleting, protected := env.snapshotState(during); !there || !deleting || !protected {
		t.Errorf("there %v, deleting %v, protected %v; want the snapshot kept while it is restored", there, deleting,
			protected)
	}
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	for _, claim := range []*objects.Claim{first, second} {
		if got := env.volumeOnDisk(env.WaitBound(claim)).Source.SnapshotID; got != during.Handle {
			t.Errorf("restored from %q, want %q", got, during.Handle)
		}
	}
	env.waitNoSnapshot(during)

	env.WaitBound(env.CreateClaim(class, fixture.FromSnapshot(after.Name)))
	env.waitUnprotected(after)
	env.deleteVolumeSnapshot(after)
	if there, _, _ := env.snapshotState(after); there {
		t.Error("a snapshot that was restored cannot be deleted")
	}
}

// TestSnapshotProtectionSurvivesRestart expects the next process to remove the first process's finalizer.
func TestSnapshotProtectionSurvivesRestart(t *testing.T) {
	env := begin(t, suite.Variant, fixture.AboutDriver)
	flags := append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=500ms")
	car := env.StartSidecar(flags...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	finished, abandoned := env.CreateSnapshot(original, nil), env.CreateSnapshot(original, nil)
	env.SetFaults(fixture.DelayCreateVolume(true, time.Minute))
	claims := []*objects.Claim{env.CreateClaim(class, fixture.FromSnapshot(finished.Name)),
		env.CreateClaim(class, fixture.FromSnapshot(abandoned.Name))}
	for _, claim := range claims {
		env.waitCreateCall(claim)
	}
	car.Kill()
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	for _, snapshot := range []*objects.Snapshot{finished, abandoned} {
		env.deleteVolumeSnapshot(snapshot)
	}
	env.MustDeleteClaim(claims[1])
	env.Must(car.Restart(flags...))
	if got := env.volumeOnDisk(env.WaitBound(claims[0])).Source.SnapshotID; got != finished.Handle {
		t.Errorf("restored from %q, want %q", got, finished.Handle)
	}
	env.WaitClaim(claims[1], "gone", fixture.ClaimIsGone)
	env.waitNoSnapshot(finished)
	env.waitNoSnapshot(abandoned)
}

// TestStaleSnapshotFinalizerIsRemoved has snapshots with the finalizer of an uninstalled external-provisioner, and a
// sidecar with and without provisioning.
func TestStaleSnapshotFinalizerIsRemoved(t *testing.T) {
	fixture.Begin(t, fixture.AboutProgram)
	for _, provisions := range []string{"true", "false"} {
		t.Run("--provision="+provisions, func(t *testing.T) {
			if provisions != "true" {
				suite.Deep(t, suite.Variant)
			}
			env := begin(t)
			car := env.StartSidecar(fixture.FastRetries()...)
			env.InstallSnapshotCRDs()
			class := env.CreateStorageClass()
			original := env.WaitBound(env.CreateClaim(class))
			living, deleted, contentGone := env.CreateSnapshot(original, withStaleFinalizer), env.CreateSnapshot(original,
				withStaleFinalizer), env.CreateSnapshot(original, withStaleFinalizer)
			used, foreign := env.CreateSnapshot(original, withStaleFinalizer), env.CreateSnapshot(original,
				func(snapshot *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
					withStaleFinalizer(snapshot, c)
					c.Spec.Driver = "another.csi.example.com"
				})
			t.Cleanup(func() {
				_, _ = env.Snapshots.VolumeSnapshots(env.Namespace).Patch(env.CleanupContext(), foreign.Name,
					"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			})
			// a class that does not exist, so that no provisioner ends it
			pending := env.CreateClaim("of-nobody", fixture.FromSnapshot(used.Name))
			env.deleteVolumeSnapshot(deleted)
			env.deleteVolumeSnapshot(contentGone)
			env.Must(env.Snapshots.VolumeSnapshotContents().Delete(env.Ctx, contentGone.Content, metav1.DeleteOptions{}))

			env.Restart(car, append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=200ms",
				"--provision="+provisions)...)
			env.waitNoSnapshot(deleted)
			env.waitNoSnapshot(contentGone)
			env.waitUnprotected(living)
			env.waitUnprotected(env.CreateSnapshot(original, withStaleFinalizer)) // by the next sweep: the first is complete
			for _, snapshot := range []*objects.Snapshot{used, foreign} {
				if _, _, protected := env.snapshotState(snapshot); !protected {
					t.Errorf("VolumeSnapshot %s was freed", snapshot.Name)
				}
			}
			env.MustDeleteClaim(pending)
			env.waitUnprotected(used)
			if _, _, protected := env.snapshotState(foreign); !protected {
				t.Error("another driver's VolumeSnapshot was freed")
			}
		})
	}
}

var releasedSnapshots = regexp.MustCompile(`(?m)^[1-9]\d* VolumeSnapshots? (was|were) released$`)

// TestUninstallReleasesSourceFinalizers covers snapshots and cloned claims.
func TestUninstallReleasesSourceFinalizers(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	car := env.StartSidecar(append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=0")...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	env.WaitBound(env.CreateClaim(class, fixture.CloneOf(original.BoundClaim)))
	snapshot := env.CreateSnapshot(original, withStaleFinalizer)
	env.Must(car.Terminate())
	output, err := env.ReleaseFinalizers("--in-flight-quiet-period=2s")
	// The number is not certain: each driver releases terminating snapshots without content, here those of other tests.
	if err != nil || !releasedSnapshots.MatchString(output) || !strings.Contains(output, "1 cloned claim was released") {
		t.Errorf("%v: %s", err, output)
	}
	env.waitUnprotected(snapshot)
	env.expectDeletable(original.BoundClaim)
}

// TestUninstallKeepsSourceOfVolumeInFlight: the next run repeats the request of a clone in doubt, for which the driver
// needs the source.
func TestUninstallKeepsSourceOfVolumeInFlight(t *testing.T) {
	env := begin(t, suite.WaitsForClock, fixture.AboutProgram)
	car := env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	env.SetFaults(failWithCode("Internal"))
	clone := env.CreateClaim(class, fixture.CloneOf(original.BoundClaim))
	env.Eventually("the clone is in doubt", func() bool { return len(env.CreateCalls(clone)) > 1 })
	for _, claim := range []*objects.Claim{clone, original.BoundClaim} {
		env.MustDeleteClaim(claim)
	}
	env.WaitClaim(clone, "gone", fixture.ClaimIsGone)
	env.Must(car.Terminate())
	output, err := env.ReleaseFinalizers("--in-flight-quiet-period=2s")
	if err == nil {
		t.Error("the release succeeds, and a volume is in flight")
	}
	env.ExpectOutput(output, "volume "+fixture.PVName(clone)+", for claim "+env.Namespace+"/"+clone.Name+", is in flight",
		"PersistentVolumeClaim "+env.Namespace+"/"+original.BoundClaim.Name+" keeps its finalizer", "1 PV was released")
	if pv, err := original.PV(env.Ctx); err != nil || fixture.HasFinalizer(pv) {
		t.Errorf("the source's PV: %v, %v", err, pv.Finalizers)
	}
	env.WaitClaim(original.BoundClaim, "kept for the clone", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, request.CloningFinalizer)
	})

	env.RunPlugin("settle", fixture.PVName(clone), "--yes")
	if output, err = env.ReleaseFinalizers("--in-flight-quiet-period=2s"); err != nil || env.IsInFlight(clone) {
		t.Errorf("%v: %s", err, output)
	}
	env.ExpectOutput(output, "1 cloned claim was released")
	env.WaitClaim(original.BoundClaim, "gone", fixture.ClaimIsGone)
}

// TestProvisionRestoresWithoutPermissionToUpdateSnapshots uses the rules of external-provisioner before 6.2.
func TestProvisionRestoresWithoutPermissionToUpdateSnapshots(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutRequests)
	env := newForRole(t, "", mockdriver.Options{})
	rules := fixture.StockProvisionerRules("patch")
	for i := range rules {
		if slices.Contains(rules[i].Resources, "volumesnapshots") {
			rules[i].Verbs = []string{"get"}
		}
	}
	env.SetRules(rules)
	car := env.StartSidecar(fixture.FastRetries()...)
	env.Must(car.WaitLog(env.WithTimeout(),
		"Preflight: may not update volumesnapshots: a VolumeSnapshot can be deleted while a volume is restored from it"))
	env.Must(car.WaitLog(env.WithTimeout(),
		"Preflight: may not list volumesnapshots: "+
			"VolumeSnapshots that a provisioner left with its finalizer cannot be deleted"))
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	snapshot := env.CreateSnapshot(env.WaitBound(env.CreateClaim(class)), nil)
	env.WaitBound(env.CreateClaim(class, fixture.FromSnapshot(snapshot.Name)))
	if _, _, protected := env.snapshotState(snapshot); protected {
		t.Error("protected without the right to")
	}
}
