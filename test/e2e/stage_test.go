//go:build unix

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// patience bounds every wait. It is far above what anything takes, also with -race on a
// busy machine.
const patience = 60 * time.Second

// stage is one driver on the shared cluster, with the means to run sidecars beside it.
type stage struct {
	t      *testing.T
	ctx    context.Context
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	driver *mockdriver.Driver
	user   string
	kube   string
	// home is the driver's namespace, in which the in-flight log is.
	home string
	// affinity is that of PVs which a node of its own has, where that matters.
	affinity *v1.VolumeNodeAffinity
	storage.Maker
}

// newStage starts a driver and grants a service account what deploy/ grants.
func newStage(t *testing.T) *stage {
	t.Helper()
	return newStageAs(t, "owner", mockdriver.Options{})
}

// newStageAs does so for a role of csi-reclaimer, with a driver of its own kind. Without a role
// the account is granted nothing.
func newStageAs(t *testing.T, role string, options mockdriver.Options) *stage {
	t.Helper()
	if options.Name == "" {
		options.Name = "e2e-" + rand.String(8) + ".csi-reclaimer.io"
	}
	s := newStageOn(t, cluster, options.Name)
	s.useDriver(options)
	s.account("csi-reclaimer")
	if role != "" {
		s.grant(role)
	}
	return s
}

// useDriver starts a driver for the stage.
func (s *stage) useDriver(options mockdriver.Options) {
	s.t.Helper()
	s.driver = mockdriver.ForTest(s.t, options)
	s.Driver, s.CSI = options.Name, s.driver.Controller()
}

// newStageOn returns a stage with a namespace on a control plane, and nothing that runs there.
func newStageOn(t *testing.T, plane *controlplane.ControlPlane, driver string) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	s := &stage{t: t, ctx: ctx, plane: plane}
	var err error
	s.client, err = kubernetes.NewForConfig(plane.Admin())
	s.must(err)
	snapshots, err := snapshotclient.NewForConfig(plane.Admin())
	s.must(err)
	namespace, err := plane.CreateNamespace(ctx, "e2e-")
	s.must(err)
	s.home = namespace
	s.Maker = storage.Maker{Client: s.client, Driver: driver, Namespace: namespace, Snapshots: snapshots}
	return s
}

// account makes a service account that may do nothing yet, and a kubeconfig file for it.
func (s *stage) account(name string) {
	s.t.Helper()
	config, err := s.plane.ServiceAccount(s.ctx, s.Namespace, name)
	s.must(err)
	s.user = "system:serviceaccount:" + s.Namespace + ":" + name
	s.kube = filepath.Join(s.t.TempDir(), "kubeconfig")
	s.must(controlplane.WriteKubeconfig(s.kube, config))
}

// grant allows the account of csi-reclaimer what is shipped for a role.
func (s *stage) grant(role string) {
	s.t.Helper()
	s.must(grant.Sidecar(s.ctx, s.client, s.Namespace, "csi-reclaimer", role))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.client.RbacV1().ClusterRoleBindings().Delete(ctx, s.Namespace, metav1.DeleteOptions{}); err != nil {
			s.t.Errorf("delete cluster role binding: %v", err)
		}
	})
}

// sidecar starts a sidecar and waits until it is ready.
func (s *stage) sidecar(args ...string) *sidecar.Sidecar {
	s.t.Helper()
	car := s.launch(args...)
	s.must(car.WaitReady(s.soon()))
	return car
}

// launch starts a sidecar and waits for nothing.
func (s *stage) launch(args ...string) *sidecar.Sidecar {
	s.t.Helper()
	return s.launchAs(sidecar.Options{Args: args})
}

// launchAs starts a sidecar that has more to it than flags, beside the stage's driver unless it names another.
func (s *stage) launchAs(o sidecar.Options) *sidecar.Sidecar {
	s.t.Helper()
	o.Binary, o.Kubeconfig, o.Address = program, s.kube, cmp.Or(o.Address, s.driver.Socket())
	o.Env = append([]string{"POD_NAMESPACE=" + s.home}, o.Env...)
	car, err := sidecar.Start(s.ctx, o)
	s.must(err)
	s.stopLater(car)
	return car
}

// stopLater stops a program when the test ends, in peace.
func (s *stage) stopLater(d *daemon.Daemon) {
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("log of %s:\n%s", filepath.Base(d.LogPath()), d.LogTail(60))
		}
		if err := d.Stop(); err != nil {
			s.t.Errorf("stop: %v", err)
		}
	})
}

// make makes a volume that is bound to its claim.
func (s *stage) make(spec storage.Spec) *storage.Volume {
	s.t.Helper()
	if spec.Name == "" {
		spec.Name = "pv-" + rand.String(8)
	}
	if spec.Policy == "" {
		spec.Policy = v1.PersistentVolumeReclaimDelete
	}
	vol, err := s.Make(s.soon(), spec)
	s.must(err)
	s.t.Cleanup(func() { s.sweep(vol) })
	return vol
}

// sweep removes what a test left of a PV, so that the shared cluster stays small.
func (s *stage) sweep(vol *storage.Volume) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if pv, err := vol.PV(ctx); err != nil || pv == nil {
		return
	}
	_, _ = s.client.CoreV1().PersistentVolumes().Patch(ctx, vol.Name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	_ = vol.DeletePV(ctx)
}

// clean is a context for what is cleaned up after a test.
func (s *stage) clean() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

// soon bounds one wait.
func (s *stage) soon() context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// waitPV waits until the PV is as wanted; want is not called for one that is gone.
func (s *stage) waitPV(vol *storage.Volume, what string, want func(*v1.PersistentVolume) bool) {
	s.t.Helper()
	s.must(vol.WaitPV(s.soon(), what, func(pv *v1.PersistentVolume) bool { return pv != nil && want(pv) }))
}

func (s *stage) waitProtected(vol *storage.Volume) {
	s.t.Helper()
	s.waitPV(vol, "protected", protected)
}

func protected(pv *v1.PersistentVolume) bool {
	return slices.Contains(pv.Finalizers, volume.Finalizer)
}

func companionProtected(pv *v1.PersistentVolume) bool {
	return slices.Contains(pv.Finalizers, volume.CompanionFinalizer)
}

// makeMany makes volumes that are bound to their claims, many at once.
func (s *stage) makeMany(n int, spec func(i int) storage.Spec) []*storage.Volume {
	s.t.Helper()
	vols := make([]*storage.Volume, n)
	prefix := "pv-" + rand.String(8) + "-"
	s.t.Cleanup(func() { s.all(vols, func(vol *storage.Volume) error { s.sweep(vol); return nil }) })
	var makers errgroup.Group
	makers.SetLimit(atOnce)
	for i := range vols {
		makers.Go(func() (err error) {
			spec := spec(i)
			spec.Name = prefix + strconv.Itoa(i)
			if spec.Policy == "" {
				spec.Policy = v1.PersistentVolumeReclaimDelete
			}
			vols[i], err = s.Make(s.ctx, spec)
			return err
		})
	}
	s.must(makers.Wait())
	return vols
}

// atOnce is how many users work at the same time.
const atOnce = 16

// all has users do something with each volume, atOnce of them at a time.
func (s *stage) all(vols []*storage.Volume, do func(*storage.Volume) error) {
	s.t.Helper()
	var users errgroup.Group
	users.SetLimit(atOnce)
	for _, vol := range vols {
		if vol != nil {
			users.Go(func() error { return do(vol) })
		}
	}
	s.must(users.Wait())
}

// waitAll waits until every PV is as wanted; want gets nil for one that is gone.
func (s *stage) waitAll(vols []*storage.Volume, what string, want func(*v1.PersistentVolume) bool) {
	s.t.Helper()
	for {
		there := s.allPVs()
		wanting := slices.IndexFunc(vols, func(vol *storage.Volume) bool {
			pv := there[vol.Name]
			if pv != nil && pv.UID != vol.PVUID {
				pv = nil
			}
			return !want(pv)
		})
		if wanting < 0 {
			return
		}
		select {
		case <-s.ctx.Done():
			s.t.Fatalf("wait for PV %q to be %s: it is %s", vols[wanting].Name, what, storage.Describe(there[vols[wanting].Name]))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func isGone(pv *v1.PersistentVolume) bool      { return pv == nil }
func isProtected(pv *v1.PersistentVolume) bool { return pv != nil && protected(pv) }

// onDiskAll returns the handles that the driver's disk holds.
func (s *stage) onDiskAll() map[string]bool {
	s.t.Helper()
	volumes, err := s.driver.Volumes()
	s.must(err)
	there := map[string]bool{}
	for _, v := range volumes {
		there[v.ID] = true
	}
	return there
}

// deletionsAll counts the DeleteVolume calls by handle.
func (s *stage) deletionsAll() map[string]int {
	s.t.Helper()
	calls, err := s.driver.Calls("DeleteVolume")
	s.must(err)
	count := map[string]int{}
	for _, call := range calls {
		count[call.Volume]++
	}
	return count
}

// metric waits until a program shows the metric, which begins a line, with this value.
func (s *stage) metric(car *daemon.Daemon, name, value string) {
	s.t.Helper()
	ctx := s.soon()
	for {
		text, err := car.Get(ctx, "/metrics")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, name) && strings.HasSuffix(strings.TrimSpace(line), " "+value) {
				return
			}
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("the metric %s is not %s: %v\n%s", name, value, err, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// deletions returns the DeleteVolume calls that the driver received for a volume.
func (s *stage) deletions(handle string) []ledger.Call {
	s.t.Helper()
	calls, err := s.driver.Calls("DeleteVolume")
	s.must(err)
	var ours []ledger.Call
	for _, call := range calls {
		if call.Volume == handle {
			ours = append(ours, call)
		}
	}
	return ours
}

// onDisk tells whether the driver's disk holds the volume.
func (s *stage) onDisk(handle string) bool {
	s.t.Helper()
	volumes, err := s.driver.Volumes()
	s.must(err)
	for _, v := range volumes {
		if v.ID == handle {
			return true
		}
	}
	return false
}

// expectDeleted checks that the volume is gone from disk, by exactly this many calls.
func (s *stage) expectDeleted(vol *storage.Volume, calls int) {
	s.t.Helper()
	if s.onDisk(vol.Handle) {
		s.t.Errorf("LEAK: volume %s of PV %s is still on the driver's disk", vol.Handle, vol.Name)
	}
	if got := s.deletions(vol.Handle); len(got) != calls {
		s.t.Errorf("the driver received %d DeleteVolume calls for PV %s, want %d: %+v", len(got), vol.Name, calls, got)
	}
}

// expectKept checks that the driver was never asked to delete the volume.
func (s *stage) expectKept(vol *storage.Volume) {
	s.t.Helper()
	if !s.onDisk(vol.Handle) {
		s.t.Errorf("WRONG DELETE: volume %s of PV %s is gone from the driver's disk", vol.Handle, vol.Name)
	}
	if got := s.deletions(vol.Handle); len(got) != 0 {
		s.t.Errorf("the driver received DeleteVolume for PV %s, which is to be kept: %+v", vol.Name, got)
	}
}

// fence returns once the sidecar has carried out everything that was decided before: it
// makes a volume and sees it reclaimed. What shall not happen has then had its chance.
func (s *stage) fence() {
	s.t.Helper()
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
}

// requests returns what the sidecar has asked the API server for, about one PV's name.
func (s *stage) requests(name string) (writes, reads []string) {
	s.t.Helper()
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Name == name && strings.HasPrefix(e.Resource, "persistentvolume")
	})
	s.must(err)
	for _, e := range events {
		what := fmt.Sprintf("%s %s %d", e.Verb, e.Resource, e.Code)
		if e.Verb == "get" {
			reads = append(reads, what)
		} else {
			writes = append(writes, what)
		}
	}
	return writes, reads
}

func isReleased(pv *v1.PersistentVolume) bool {
	return pv != nil && pv.Status.Phase == v1.VolumeReleased
}
