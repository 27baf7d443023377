//go:build unix

package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admit"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admit/certs"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// unlisted is a driver whose PVs nobody is told to protect.
const unlisted = "unlisted.csi-reclaimer.io"

// policy is the namespace of the admission policy's ConfigMap. The policy stays for as long as the cluster: an API server
// that has seen a policy's only binding go learns of no ConfigMap any more (kubernetes/kubernetes#130887).
var policy = sync.OnceValues(func() (namespace string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		return "", err
	}
	if namespace, err = cluster.CreateNamespace(ctx, "admission-"); err != nil {
		return "", err
	}
	_, err = client.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(ctx, admit.Policy(), metav1.CreateOptions{})
	if err == nil {
		_, err = client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(ctx, admit.Binding(namespace), metav1.CreateOptions{})
	}
	return namespace, err
})

// newPolicyStage is a stage with the admission policy in force for its driver, and for no other.
func newPolicyStage(t *testing.T) (s *stage, parameters coreclient.ConfigMapInterface) {
	t.Helper()
	if version == controlplane.V1_30 {
		t.Skip("MutatingAdmissionPolicy is served from 1.36 on")
	}
	s = newStage(t)
	namespace, err := policy()
	s.must(err)
	parameters = s.client.CoreV1().ConfigMaps(namespace)
	s.listDriver(parameters)
	t.Cleanup(func() { _ = parameters.Delete(s.clean(), admit.PolicyName, metav1.DeleteOptions{}) })
	return s, parameters
}

// listDriver makes the ConfigMap of the policy, with the stage's driver.
func (s *stage) listDriver(parameters coreclient.ConfigMapInterface) {
	s.t.Helper()
	_, err := parameters.Create(s.ctx, admit.Parameters("", map[string]string{s.Driver: reclaim.Finalizer}), metav1.CreateOptions{})
	s.must(err)
	s.waitInForce(true)
}

// putOn makes a PV, but does not store it, and tells whether it would have had the finalizer from the start.
func (s *stage) putOn() (is bool, err error) {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "probe-" + rand.String(8)},
		Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &v1.ObjectReference{Namespace: s.Namespace, Name: "probe", UID: "probe"},
			PersistentVolumeSource:        v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: s.Driver, VolumeHandle: "probe"}},
		},
	}
	made, err := s.client.CoreV1().PersistentVolumes().Create(s.ctx, pv, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil && protected(made), err
}

// waitInForce waits until the API server protects the driver's PVs, or does so no more.
func (s *stage) waitInForce(want bool) {
	s.t.Helper()
	s.eventually("admission is as it was told", func() bool {
		is, err := s.putOn()
		s.must(err) // no write is refused meanwhile
		return is == want
	})
}

// webhookGuard starts volume-guard for its webhooks alone, which the API server is told of.
func (s *stage) webhookGuard() *daemon.Daemon {
	s.t.Helper()
	address := freeAddress(s.t)
	s.configureWebhooks(address)
	return s.guard("--controllers=-intree", "--webhook-address="+address, "--webhook-names=localhost")
}

// webhooks are those of volume-guard, run by the test, for they exchange their certificates faster than a program should.
type webhooks struct {
	keeper *certs.Keeper
	port   string
}

// webhooks runs them beside the stage's control plane, which is not told of them yet.
func (s *stage) webhooks(keep certs.Config) *webhooks {
	s.t.Helper()
	admin := s.plane.Admin()
	reader, err := admit.NewReader(admin)
	s.must(err)
	keep.Namespace, keep.Secret, keep.Names, keep.Webhooks = s.Namespace, "webhooks", []string{"localhost"}, []string{admit.WebhooksName}
	h := &webhooks{}
	h.keeper, err = certs.New(admin, keep)
	s.must(err)
	ctx, cancel := context.WithCancel(s.ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { h.keeper.Run(ctx) })
	finalizers := map[string]string{s.Driver: reclaim.Finalizer}
	server := admit.NewServer(admit.Handler(func() map[string]string { return finalizers }, reader), h.keeper.Certificate)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	s.t.Cleanup(func() {
		cancel()
		keeping.Wait()
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	})
	_, h.port, err = net.SplitHostPort(listener.Addr().String())
	s.must(err)
	return h
}

// watchPVs has the API server ask the webhook about PVs.
func (s *stage) watchPVs(h *webhooks) {
	s.t.Helper()
	config := admit.PVWebhooks(admit.Service{Namespace: s.Namespace, Name: "none"})
	for i := range config.Webhooks {
		c := &config.Webhooks[i].ClientConfig // no Service leads anywhere here
		c.URL, c.Service = ptr.To("https://localhost:"+h.port+*c.Service.Path), nil
	}
	configs := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := configs.Create(s.ctx, config, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = configs.Delete(s.clean(), config.Name, metav1.DeleteOptions{}) })
	s.waitInForce(true)
}

// TestAdmissionProtectsInTheSameWrite turns PVs to Delete and deletes them at once, while no sidecar runs.
func TestAdmissionProtectsInTheSameWrite(t *testing.T) {
	t.Run("by the policy", func(t *testing.T) {
		s, _ := newPolicyStage(t)
		s.flipsWithoutSidecar()
	})
	t.Run("by the webhook", func(t *testing.T) {
		s := newGuardStage(t, version, controlplane.Options{})
		s.webhookGuard()
		beside := *s
		beside.useDriver(mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"})
		beside.account("csi-reclaimer")
		beside.grant("owner")
		beside.listDriver(s.client.CoreV1().ConfigMaps(s.Namespace))
		beside.flipsWithoutSidecar()
	})
}

func (s *stage) flipsWithoutSidecar() {
	s.t.Helper()
	retain := func(int) storage.Spec { return storage.Spec{Policy: v1.PersistentVolumeReclaimRetain} }
	vols := s.makeMany(size(500, 100), retain)
	alone := s.make(storage.Spec{Policy: v1.PersistentVolumeReclaimRetain, Handle: "none", Change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = unlisted }})
	released := append(slices.Clone(vols[len(vols)/2:]), alone)
	s.all(released, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(released, "released", isReleased)
	s.all(append(slices.Clone(vols), alone), func(vol *storage.Volume) error {
		if err := vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete); err != nil {
			return err
		}
		return vol.DeletePV(s.ctx)
	})
	s.must(alone.WaitGone(s.soon())) // as all would have gone
	s.all(vols[:len(vols)/2], func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "released, terminating and protected", func(pv *v1.PersistentVolume) bool {
		return isReleased(pv) && pv.DeletionTimestamp != nil && protected(pv)
	})
	s.sidecar(eager()...)
	s.waitAll(vols, "gone", isGone)
	disk, calls := s.onDiskAll(), s.deletionsAll()
	for _, vol := range vols {
		if disk[vol.Handle] || calls[vol.Handle] != 1 {
			s.t.Errorf("volume %s of PV %s: on disk %v, %d DeleteVolume calls, want 1", vol.Handle, vol.Name, disk[vol.Handle], calls[vol.Handle])
		}
	}
}

// TestAdmissionPolicyWithoutItsConfigMap lets all writes to PVs through.
func TestAdmissionPolicyWithoutItsConfigMap(t *testing.T) {
	s, parameters := newPolicyStage(t)
	s.must(parameters.Delete(s.ctx, admit.PolicyName, metav1.DeleteOptions{}))
	s.waitInForce(false)
	for i, vol := range s.makeMany(20, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} }) { // made, bound
		s.annotate(vol, "e2e.csi-reclaimer.io/touched", "yes")
		s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimRetain))
		if i%2 == 0 {
			s.must(vol.DeletePV(s.ctx))
		}
		s.must(vol.DeleteClaim(s.ctx))
		if i%2 == 0 {
			s.must(vol.WaitGone(s.soon()))
		} else {
			s.waitPV(vol, "released", isReleased)
		}
	}
	s.listDriver(parameters)
}

// TestAdmissionPolicyAndARelease: a driver's finalizers can be taken off once its key is gone, and until then that is said.
func TestAdmissionPolicyAndARelease(t *testing.T) {
	s, parameters := newPolicyStage(t)
	vols := s.makeMany(10, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(vols, "protected", isProtected) // in the write that bound them
	said, err := s.release()
	if err == nil || !strings.Contains(said, "admission policy") || !strings.Contains(said, "0 PVs were released") {
		t.Errorf("with the key there --release-finalizers ended with %v and said %q", err, said)
	}
	s.waitAll(vols, "still protected", isProtected)
	_, err = parameters.Patch(s.ctx, admit.PolicyName, types.MergePatchType,
		[]byte(`{"data":{"`+s.Driver+`":null}}`), metav1.PatchOptions{})
	s.must(err)
	s.waitInForce(false)
	if said, err = s.release(); err != nil || !strings.Contains(said, "10 PVs were released") {
		t.Errorf("without the key --release-finalizers ended with %v and said %q", err, said)
	}
	s.waitAll(vols, "without our finalizer", isFree)
	for _, vol := range vols {
		s.expectKept(vol)
	}
}
