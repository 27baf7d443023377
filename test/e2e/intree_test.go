//go:build unix

package e2e

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8srand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// seedVariable repeats a random order.
const seedVariable = "SEED"

// inTree is a stage on which kube-controller-manager's own host-path plugin makes the volumes, as folders.
type inTree struct {
	*stage
	className string
}

// folder is such a volume.
type folder struct {
	*storage.Volume
	path string
}

func newInTree(t *testing.T, v controlplane.Version) *inTree {
	t.Helper()
	s := newGuardStage(t, v, controlplane.Options{HostPathProvisioner: true})
	return &inTree{s, s.class(func(c *storage.Class) {
		c.Change = func(class *storagev1.StorageClass) { class.Provisioner = "kubernetes.io/host-path" }
	})}
}

// on is the same stage for a test within the test.
func (s *inTree) on(t *testing.T) *inTree {
	stage := *s.stage
	stage.t = t
	return &inTree{&stage, s.className}
}

// folder makes a volume and waits until it is bound.
func (s *inTree) folder() folder {
	s.t.Helper()
	f, err := s.tryFolder()
	s.must(err)
	return f
}

func (s *inTree) tryFolder() (f folder, err error) {
	claim, err := s.tryClaim(s.className)
	if err != nil {
		return f, err
	}
	if f.Volume, err = claim.WaitBound(s.ctx); err != nil {
		return f, err
	}
	pv, err := f.PV(s.ctx)
	if err != nil || pv == nil {
		return f, fmt.Errorf("PV %s of a claim that is bound: %w", f.Name, errors.Join(err, fs.ErrNotExist))
	}
	f.path = pv.Spec.HostPath.Path
	s.t.Cleanup(func() { _ = os.RemoveAll(f.path) })
	return f, nil
}

// folders makes many, and waits until volume-guard or the controller manager protects them.
func (s *inTree) folders(n int) []folder {
	s.t.Helper()
	folders := make([]folder, n)
	var makers errgroup.Group
	makers.SetLimit(atOnce)
	for i := range folders {
		makers.Go(func() (err error) { folders[i], err = s.tryFolder(); return err })
	}
	s.must(makers.Wait())
	s.waitAll(volumes(folders), "guarded", isGuarded)
	return folders
}

func volumes(folders []folder) (vols []*storage.Volume) {
	for _, f := range folders {
		vols = append(vols, f.Volume)
	}
	return vols
}

// made is a PV of the host-path plugin under a name and with a folder of our own choice.
func (s *inTree) made(name, path string) folder {
	s.t.Helper()
	s.must(os.MkdirAll(path, 0o755))
	s.t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(path)) })
	vol := s.make(storage.Spec{Name: name, Handle: path, Change: func(pv *v1.PersistentVolume) {
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

func (s *inTree) waitGuarded(f folder) {
	s.t.Helper()
	s.waitPV(f.Volume, "guarded", isGuarded)
}

// expectFolder checks whether the folder is there.
func (s *inTree) expectFolder(f folder, there bool) {
	s.t.Helper()
	switch _, err := os.Stat(f.path); {
	case err == nil && !there:
		s.t.Errorf("LEAK: folder %s of PV %s is still there", f.path, f.Name)
	case err != nil && there:
		s.t.Errorf("WRONG DELETE: folder %s of PV %s: %v", f.path, f.Name, err)
	}
}

// expectReclaimed waits until a volume, its PV and its twin are gone.
func (s *inTree) expectReclaimed(f folder) {
	s.t.Helper()
	s.must(f.WaitGone(s.soon()))
	s.expectFolder(f, false)
	s.expectNoTwin()
}

func (s *inTree) expectNoTwin() {
	s.t.Helper()
	s.eventually("no twin is left", func() bool {
		list, err := s.client.CoreV1().PersistentVolumes().List(s.ctx, metav1.ListOptions{LabelSelector: volume.TwinLabel})
		return err == nil && len(list.Items) == 0
	})
}

// pvFirst deletes a PV and then its claim.
func (s *inTree) pvFirst(f folder) {
	s.t.Helper()
	s.must(f.DeletePV(s.ctx))
	s.must(f.DeleteClaim(s.ctx))
}

// TestInTreeVolumesLeak on a controller manager without KEP-2644, unless volume-guard is there.
func TestInTreeVolumesLeak(t *testing.T) {
	t.Parallel()
	s := newInTree(t, controlplane.V1_30)
	lost := s.folder()
	s.pvFirst(lost)
	s.must(lost.WaitGone(s.soon()))
	s.expectFolder(lost, true)
	s.guard("--leader-election=false")
	f, claimFirst := s.folder(), s.folder()
	s.waitGuarded(f)
	s.waitGuarded(claimFirst)
	s.pvFirst(f)
	s.must(claimFirst.DeleteClaim(s.ctx))
	s.expectReclaimed(f)
	s.expectReclaimed(claimFirst)
}

// TestInTreeVolumesAreReclaimedInAnyOrder has PVs and claims deleted in a random order, many at once.
func TestInTreeVolumesAreReclaimedInAnyOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	s := newInTree(t, version)
	s.guard("--leader-election=false")
	n := size(200, 60)
	all := s.folders(n + n/5)
	gone, kept := all[:n], all[n:]
	var deletions []func() error
	for i, f := range gone {
		deletions = append(deletions, func() error { return f.DeleteClaim(s.ctx) })
		if i%4 > 0 { // of a fourth the claim alone is deleted
			deletions = append(deletions, func() error { return f.DeletePV(s.ctx) })
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(deletions), func(i, j int) { deletions[i], deletions[j] = deletions[j], deletions[i] })
	var users errgroup.Group
	users.SetLimit(atOnce)
	for _, do := range deletions {
		users.Go(func() error {
			if err := do(); !notFound(err) { // the claim's end may have ended the PV
				return err
			}
			return nil
		})
	}
	s.must(users.Wait())
	s.waitAll(volumes(gone), "gone", isGone)
	s.expectNoTwin()
	for _, f := range gone {
		s.expectFolder(f, false)
	}
	for _, f := range kept {
		s.expectFolder(f, true)
	}
	s.waitAll(volumes(kept), "in use", func(pv *v1.PersistentVolume) bool { return pv != nil && pv.Status.Phase == v1.VolumeBound })
}
