//go:build controlplane

package intree

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	poll "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// server is a real API server without controllers.
type server struct {
	*testing.T
	ctx    context.Context
	config *rest.Config
	at     apiServer
}

// TestAgainstRealAPIServers covers the behavior that only real API servers have: managedFields of the finalizer, and
// the accepted writes. The test itself plays the PV controller.
func TestAgainstRealAPIServers(t *testing.T) {
	for _, version := range []controlplane.Version{controlplane.V1_30, controlplane.Newest} {
		t.Run(string(version), func(t *testing.T) {
			if version != controlplane.Newest {
				suite.Deep(t, suite.OtherVersion)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			cp, err := controlplane.Start(ctx, version, controlplane.Options{NoControllerManager: true, Progress: os.Stderr})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cp.Stop() })
			clients := must.Get(kube.NewClients(cp.Admin()))(t)
			on := func(try func(server)) func(*testing.T) {
				return func(t *testing.T) { try(server{t, ctx, cp.Admin(), apiServer{clients}}) }
			}
			t.Run("who added the finalizer", on(server.writers))
			t.Run("a twin is taken, set to Delete and deleted only as it was read", on(server.twins))
			t.Run("the whole life, with a name at the limit", on(server.life))
		})
	}
}

// create creates a PV like an in-tree plugin, under the field manager of kube-controller-manager.
func (s server) create(name string, finalizers ...string) *v1.PersistentVolume {
	s.Helper()
	o := original()
	o.ObjectMeta = metav1.ObjectMeta{Name: name, Annotations: o.Annotations, Finalizers: finalizers}
	o.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	o.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	o.Spec.HostPath.Path = "/tmp/" + name[:1]
	o, err := s.at.clients.Core.PersistentVolumes().Create(s.ctx, o, metav1.CreateOptions{FieldManager: kcm})
	if err != nil {
		s.Fatal(err)
	}
	return o
}

func (s server) get(name string) *v1.PersistentVolume {
	s.Helper()
	o, err := s.at.readPV(s.ctx, name)
	if err != nil || o == nil {
		s.Fatalf("read PV %q: %v", name, err)
	}
	return o
}

func (s server) expectWriter(name string, want intree.Writer) {
	s.Helper()
	if got := intree.Of(s.get(name)); got.Writer != want {
		s.Errorf("the finalizer of %s is taken for %v (%s), want %v", name, got.Writer, got.Manager, want)
	}
}

func (s server) writers() {
	pvs := s.at.clients.Core.PersistentVolumes()
	s.create("born", intree.Finalizer)
	s.expectWriter("born", intree.WriterOther)

	plain := s.create("patched")
	s.expectWriter("patched", intree.WriterNone)
	after, err := s.at.patchFinalizers(s.ctx, intree.Of(plain), []string{intree.Finalizer}, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.expectWriter("patched", intree.WriterSelf)

	// The PV controller updates the whole PV, including unchanged fields, from its cache without managedFields.
	after.Annotations["seen"] = "yes"
	after.ManagedFields = nil
	if _, err := pvs.Update(s.ctx, after, metav1.UpdateOptions{FieldManager: kcm}); err != nil {
		s.Fatal(err)
	}
	s.expectWriter("patched", intree.WriterSelf)

	// Another program removes it and adds it again.
	if _, err := s.at.patchFinalizers(s.ctx, intree.Of(s.get("patched")), nil, []string{intree.Finalizer}); err != nil {
		s.Fatal(err)
	}
	s.expectWriter("patched", intree.WriterNone)
	body := []byte(`{"metadata":{"finalizers":["` + intree.Finalizer + `"]}}`)
	if _, err := pvs.Patch(s.ctx, "patched", types.StrategicMergePatchType, body,
		metav1.PatchOptions{FieldManager: kcm}); err != nil {
		s.Fatal(err)
	}
	s.expectWriter("patched", intree.WriterOther)

	// A reset of managedFields removes all entries.
	if _, err := pvs.Patch(s.ctx, "patched", types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`),
		metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	s.expectWriter("patched", intree.WriterUnknown)
}

func (s server) twins() {
	o := s.create("q-original")
	created, err := s.at.createPV(s.ctx, intree.NewTwin(o))
	if err != nil {
		s.Fatal(err)
	}
	twin := intree.Of(created)
	if twin.TwinOf != o.UID || !twin.LooksLikeTwin() || twin.Source != intree.Of(o).Source ||
		twin.Policy != volume.PolicyRetain || created.Status.Phase != v1.VolumePending {
		s.Errorf("the twin came back as %+v", created)
	}
	if _, err := s.at.createPV(s.ctx, intree.NewTwin(o)); !errors.Is(err, kube.ErrChanged) {
		s.Errorf("a second twin of that name: %v, want ErrChanged", err)
	}
	stale := twin
	deleting, err := s.at.setPolicy(s.ctx, twin, v1.PersistentVolumeReclaimDelete)
	if err != nil || deleting.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
		s.Fatalf("set the twin to Delete: %v %v", deleting, err)
	}
	if _, err := s.at.setPolicy(s.ctx, stale, v1.PersistentVolumeReclaimRetain); !errors.Is(err, kube.ErrChanged) {
		s.Errorf("a twin that changed since it was read: %v, want ErrChanged", err)
	}
	another := intree.Of(deleting)
	another.UID = "another"
	if _, err := s.at.setPolicy(s.ctx, another, v1.PersistentVolumeReclaimRetain); !errors.Is(err, kube.ErrGone) &&
		!errors.Is(err, kube.ErrChanged) {
		s.Errorf("a twin of another UID: %v, want ErrGone or ErrChanged", err)
	}
	if err := s.at.deletePV(s.ctx, stale); !errors.Is(err, kube.ErrChanged) {
		s.Errorf("delete a twin that changed since it was read: %v, want ErrChanged", err)
	}
	retained, err := s.at.setPolicy(s.ctx, intree.Of(deleting), v1.PersistentVolumeReclaimRetain)
	if err != nil {
		s.Fatal(err)
	}
	if err := s.at.deletePV(s.ctx, intree.Of(retained)); err != nil {
		s.Errorf("delete the twin: %v", err)
	}
	if n, err := s.at.countAttachments(s.ctx, []string{o.Name}); n != 0 || err != nil {
		s.Errorf("%d attachments, %v", n, err)
	}
}

// life plays a deletion, PV first, with a running Controller.
func (s server) life() {
	// The PVs of the previous subtests show another manager.
	pvs := s.at.clients.Core.PersistentVolumes()
	list, err := pvs.List(s.ctx, metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, left := range list.Items {
		s.free(left.Name)
		if err := pvs.Delete(s.ctx, left.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Fatal(err)
		}
	}
	c, err := New(s.config, Config{})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	}()

	name := strings.Repeat("n", maxName)
	s.create(name)
	s.until("the PV is protected", func() bool { return intree.Of(s.get(name)).Writer == intree.WriterSelf })
	s.phase(name, v1.VolumeBound)
	if err := pvs.Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.phase(name, v1.VolumeReleased) // no claim exists
	twin := volume.TwinName(name)
	s.until("there is a twin", func() bool { o, err := s.at.readPV(s.ctx, twin); return err == nil && o != nil })
	if s.get(twin).Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain {
		s.Error("the twin is set to Delete before the PV controller has synced it")
	}
	s.phase(twin, v1.VolumeReleased)
	s.until("the twin is set to Delete", func() bool {
		return s.get(twin).Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
	})
	if err := pvs.Delete(s.ctx, twin, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.free(twin)
	s.until("the PV loses its finalizer", func() bool { return intree.Of(s.get(name)).Writer == intree.WriterNone })
	s.free(name)
	s.until("both are gone", func() bool {
		list, err := pvs.List(s.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

// phase writes the PV controller's phase of a PV.
func (s server) phase(name string, phase v1.PersistentVolumePhase) {
	s.Helper()
	body := []byte(`{"status":{"phase":"` + string(phase) + `"}}`)
	if _, err := s.at.clients.Core.PersistentVolumes().Patch(s.ctx, name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: kcm}, "status"); err != nil {
		s.Fatal(err)
	}
}

// free removes all finalizers, like pv-protection and others after their work.
func (s server) free(name string) {
	s.Helper()
	body := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := s.at.clients.Core.PersistentVolumes().Patch(s.ctx, name, types.MergePatchType, body,
		metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
}

func (s server) until(what string, is func() bool) {
	s.Helper()
	err := poll.PollUntilContextTimeout(s.ctx, 20*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		s.Fatalf("wait until %s: %v", what, err)
	}
}
