//go:build unix

package volumeguard

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	k8srand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// seedVariable repeats a random order.
const seedVariable = "SEED"

// inTreeEnvironment is a environment on which kube-controller-manager's own host-path plugin makes the volumes, as
// folders.
type inTreeEnvironment struct {
	*environment
	className string
}

// folder is such a volume.
type folder struct {
	*objects.Volume
	path string
}

func newInTreeEnvironment(t *testing.T, v controlplane.Version) *inTreeEnvironment {
	t.Helper()
	env := newWithVolumeGuard(t, v, controlplane.Options{HostPathProvisioner: true})
	return &inTreeEnvironment{env, env.CreateStorageClass(func(c *objects.Class) {
		c.Change = func(class *storagev1.StorageClass) { class.Provisioner = "kubernetes.io/host-path" }
	})}
}

// forInTreeSubtest is the same environment for a test within the test.
func (env *inTreeEnvironment) forInTreeSubtest(t *testing.T) *inTreeEnvironment {
	return &inTreeEnvironment{env.forSubtest(t), env.className}
}

// folder makes a volume and waits until it is bound.
func (env *inTreeEnvironment) folder() folder {
	env.T.Helper()
	f, err := env.tryFolder()
	env.Must(err)
	return f
}

func (env *inTreeEnvironment) tryFolder() (f folder, err error) {
	claim, err := env.TryCreateClaim(env.className)
	if err != nil {
		return f, err
	}
	if f.Volume, err = claim.WaitBound(env.Ctx); err != nil {
		return f, err
	}
	pv, err := f.PV(env.Ctx)
	if err != nil || pv == nil {
		return f, fmt.Errorf("PV %s of a claim that is bound: %w", f.Name, errors.Join(err, fs.ErrNotExist))
	}
	f.path = pv.Spec.HostPath.Path
	env.T.Cleanup(func() { _ = os.RemoveAll(f.path) })
	return f, nil
}

// folders makes many, and waits until volume-guard or the controller manager protects them.
func (env *inTreeEnvironment) folders(n int) []folder {
	env.T.Helper()
	folders := make([]folder, n)
	var makers errgroup.Group
	makers.SetLimit(fixture.Concurrency)
	for i := range folders {
		makers.Go(func() (err error) { folders[i], err = env.tryFolder(); return err })
	}
	env.Must(makers.Wait())
	env.WaitAllPVs(volumes(folders), "guarded", isGuarded)
	return folders
}

func volumes(folders []folder) (vols []*objects.Volume) {
	for _, f := range folders {
		vols = append(vols, f.Volume)
	}
	return vols
}

// folderPV is a PV of the host-path plugin under a name and with a folder of our own choice.
func (env *inTreeEnvironment) folderPV(name, path string) folder {
	env.T.Helper()
	env.Must(os.MkdirAll(path, 0o755))
	env.T.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(path)) })
	vol := env.MakeVolume(objects.Spec{Name: name, Handle: path, Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}
	}})
	return folder{Volume: vol, path: path}
}

// newPath is a folder that the plugin is willing to delete, in one of its own.
func newPath() string { return filepath.Join("/tmp/hostpath_pv", "e2e-"+k8srand.String(10), "vol") }

func isGuarded(pv *v1.PersistentVolume) bool {
	return pv != nil && slices.Contains(pv.Finalizers, intree.Finalizer)
}

func (env *inTreeEnvironment) waitGuarded(f folder) {
	env.T.Helper()
	env.WaitPV(f.Volume, "guarded", isGuarded)
}

// expectFolder checks whether the folder is there.
func (env *inTreeEnvironment) expectFolder(f folder, there bool) {
	env.T.Helper()
	switch _, err := os.Stat(f.path); {
	case err == nil && !there:
		env.T.Errorf("LEAK: folder %s of PV %s is still there", f.path, f.Name)
	case err != nil && there:
		env.T.Errorf("WRONG DELETE: folder %s of PV %s: %v", f.path, f.Name, err)
	}
}

// expectReclaimed waits until a volume, its PV and its twin are gone.
func (env *inTreeEnvironment) expectReclaimed(f folder) {
	env.T.Helper()
	env.Must(f.WaitGone(env.WithTimeout()))
	env.expectFolder(f, false)
	env.expectNoTwin()
}

func (env *inTreeEnvironment) expectNoTwin() {
	env.T.Helper()
	env.Eventually("no twin is left", func() bool { return len(env.PVs().List(volume.TwinLabel)) == 0 })
}

// TestInTreeVolumesLeakWithoutVolumeGuard uses a controller manager without KEP-2644.
func TestInTreeVolumesLeakWithoutVolumeGuard(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newInTreeEnvironment(t, controlplane.V1_30)
	lost := env.folder()
	env.DeletePVFirst(lost.Volume)
	env.Must(lost.WaitGone(env.WithTimeout()))
	env.expectFolder(lost, true)
	env.Start("--leader-election=false")
	f, claimFirst := env.folder(), env.folder()
	env.waitGuarded(f)
	env.waitGuarded(claimFirst)
	env.DeletePVFirst(f.Volume)
	env.Must(claimFirst.DeleteClaim(env.Ctx))
	env.expectReclaimed(f)
	env.expectReclaimed(claimFirst)
}

// TestInTreeReclaimInRandomOrder deletes PVs and claims in random order, many at once.
func TestInTreeReclaimInRandomOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	env := newInTreeEnvironment(t, fixture.Version())
	env.Start("--leader-election=false")
	n := fixture.Size(200, 60)
	all := env.folders(n + n/5)
	gone, kept := all[:n], all[n:]
	var deletions []func() error
	for i, f := range gone {
		deletions = append(deletions, func() error { return f.DeleteClaim(env.Ctx) })
		if i%4 > 0 { // of a fourth the claim alone is deleted
			deletions = append(deletions, func() error { return f.DeletePV(env.Ctx) })
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(deletions), func(i, j int) { deletions[i], deletions[j] = deletions[j], deletions[i] })
	var users errgroup.Group
	users.SetLimit(fixture.Concurrency)
	for _, do := range deletions {
		users.Go(func() error {
			if err := do(); !notFound(err) { // the claim's end may have ended the PV
				return err
			}
			return nil
		})
	}
	env.Must(users.Wait())
	env.WaitAllPVs(volumes(gone), "gone", fixture.IsGone)
	env.expectNoTwin()
	for _, f := range gone {
		env.expectFolder(f, false)
	}
	for _, f := range kept {
		env.expectFolder(f, true)
	}
	env.WaitAllPVs(volumes(kept), "in use",
		func(pv *v1.PersistentVolume) bool { return pv != nil && pv.Status.Phase == v1.VolumeBound })
}

// TestInTreeBesideControllerManagerWithKEP2644 expects volume-guard to write to no PV, under many kinds of changes.
func TestInTreeBesideControllerManagerWithKEP2644(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newInTreeEnvironment(t, controlplane.Newest)
	g := env.Start("--leader-election=false")
	n := fixture.Size(500, 60)
	all := env.folders(n)
	env.WaitMetric(g, "csi_reclaimer_intree_managed_by_other", "1")
	for i, f := range all {
		switch i % 4 {
		case 0:
			env.DeletePVFirst(f.Volume)
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
		return vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete)
	})
	env.WaitAllPVs(kept(2), "guarded again", isGuarded)
	for i, f := range all {
		env.expectFolder(f, i%4 > 1)
	}
	env.expectPluginGone()
	events := env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && e.Writes()
	})
	if len(events) > 0 {
		t.Errorf("volume-guard wrote to %d of %d PVs: %+v", len(events), n, events[0])
	}
}

// TestInTreeMigrationSwitchedOnOffAndOn expects each side to remove its own finalizer and to leave the other's.
func TestInTreeMigrationSwitchedOnOffAndOn(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
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
		env.PVs().Merge(vol.Name, `{"metadata":{"annotations":{"pv.kubernetes.io/migrated-to":`+value+`}}}`)
	}
	env.WaitPV(vol, "the sidecar's", migrated)
	// This controller manager has migration on, and would put the annotation back.
	env.Must(env.Plane.ControllerManager.Pause())
	annotate("null")
	env.WaitPV(vol, "volume-guard's", taken)
	annotate(`"` + driver + `"`)
	env.WaitPV(vol, "the sidecar's again", migrated)
	env.Must(env.Plane.ControllerManager.Resume())
	env.DeletePVFirst(vol)
	env.ExpectReclaimed(vol, 1)
	if env.PVs().Find(volume.TwinName(vol.Name)) != nil {
		t.Error("a migrated PV has a twin")
	}
}

// TestNextVolumeGuardLeaderContinues kills the leader while PVs of an in-tree plugin are created.
// TestFormerPodSafetyLeaderMakesNoWrites shows for all controllers that a leader whose lease has run out writes
// nothing: they share one client.
func TestNextVolumeGuardLeaderContinues(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newInTreeEnvironment(t, controlplane.V1_30)
	env.ReplaceLeader(func(begin, end func()) {
		env.waitGuarded(env.folder())
		begin()
		env.folders(20)
		end()
		env.folders(20)
	})
}
