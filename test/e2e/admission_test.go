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
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// unlisted is a driver whose PVs nobody is told to protect.
const unlisted = "unlisted.csi-reclaimer.io"

// newPolicyStage is a stage with the admission policy in force for its driver, and for no other.
func newPolicyStage(t *testing.T) *stage {
	t.Helper()
	if version == controlplane.V1_30 {
		t.Skip("MutatingAdmissionPolicy is served from 1.36 on")
	}
	s := newStage(t)
	s.installPolicy()
	t.Cleanup(s.uninstallPolicy)
	return s
}

// installPolicy makes the policy and its binding for the stage's driver, as who applies the manifest, and waits until
// they are in force.
func (s *stage) installPolicy() {
	s.t.Helper()
	api := s.client.AdmissionregistrationV1()
	_, err := api.MutatingAdmissionPolicies().Create(s.ctx, admission.Policy(volume.RoleOwner, s.Driver), metav1.CreateOptions{})
	s.must(err)
	_, err = api.MutatingAdmissionPolicyBindings().Create(s.ctx, admission.Binding(volume.RoleOwner), metav1.CreateOptions{})
	s.must(err)
	s.waitInForce(true)
}

// uninstallPolicy deletes both, if they are there.
func (s *stage) uninstallPolicy() {
	api := s.client.AdmissionregistrationV1()
	_ = api.MutatingAdmissionPolicyBindings().Delete(s.clean(), admission.PolicyName, metav1.DeleteOptions{})
	_ = api.MutatingAdmissionPolicies().Delete(s.clean(), admission.PolicyName, metav1.DeleteOptions{})
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

// webhookGuard starts volume-guard for its webhooks alone, with their configurations, which list these drivers.
func (s *stage) webhookGuard(drivers ...string) *daemon.Daemon {
	s.t.Helper()
	address := freeAddress(s.t)
	s.configureWebhooks(address, drivers...)
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
	reader, err := admission.NewReader(admin)
	s.must(err)
	keep.Namespace, keep.Secret, keep.Names, keep.Webhooks = s.Namespace, "webhooks", []string{"localhost"}, []string{admission.WebhooksName}
	h := &webhooks{}
	h.keeper, err = certs.New(admin, keep)
	s.must(err)
	ctx, cancel := context.WithCancel(s.ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { h.keeper.Run(ctx) })
	server := admission.NewServer(admission.Handler(s.listed, reader), h.keeper.Certificate)
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

// listed returns the stage's driver, as one that is protected.
func (s *stage) listed() admission.Drivers { return admission.Drivers{volume.RoleOwner: {s.Driver}} }

// watchPVs has the API server ask the webhook about PVs.
func (s *stage) watchPVs(h *webhooks) {
	s.t.Helper()
	config := admission.PVWebhooks(admission.Service{Namespace: s.Namespace, Name: "none"}, s.listed())
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
		s := newPolicyStage(t)
		s.flipsWithoutSidecar()
	})
	t.Run("by the webhook", func(t *testing.T) {
		s := newGuardStage(t, version, controlplane.Options{})
		beside := *s
		beside.useDriver(mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"})
		s.webhookGuard(beside.Driver)
		beside.account("csi-reclaimer")
		beside.grant("owner")
		beside.waitInForce(true)
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

// TestAdmissionPolicyIsUninstalledAndReinstalled: without it all writes to PVs go through, and once it is back PVs are
// protected again, of another driver as well. A policy whose drivers are in a ConfigMap does nothing then until
// the API server is restarted (kubernetes/kubernetes#130887).
func TestAdmissionPolicyIsUninstalledAndReinstalled(t *testing.T) {
	s := newPolicyStage(t)
	s.uninstallPolicy()
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
	s.installPolicy()
	s.uninstallPolicy()
	s.waitInForce(false)
	again := *s
	again.Driver = "again-" + s.Driver
	again.installPolicy()
}

// TestAdmissionPolicyAndARelease: csi-reclaimer itself may not change the policy, so that its release removes nothing while
// the driver is listed, and says what does.
func TestAdmissionPolicyAndARelease(t *testing.T) {
	s := newPolicyStage(t)
	vols := s.makeMany(10, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(vols, "protected", isProtected) // in the write that bound them
	said, err := s.release()
	if err == nil || !strings.Contains(said, "admission policy") || !strings.Contains(said, "0 PVs were released") {
		t.Errorf("with the driver listed --release-finalizers ended with %v and said %q", err, said)
	}
	s.waitAll(vols, "still protected", isProtected)
	_, err = admission.Unlist(s.ctx, s.plane.Admin(), []string{s.Driver})
	s.must(err)
	s.must(admission.AwaitUnlisted(s.ctx, s.plane.Admin(), []string{s.Driver}))
	if said, err = s.release(); err != nil || !strings.Contains(said, "10 PVs were released") {
		t.Errorf("with the driver listed no more --release-finalizers ended with %v and said %q", err, said)
	}
	s.waitAll(vols, "without our finalizer", isFree)
	for _, vol := range vols {
		s.expectKept(vol)
	}
}

// TestAReleaseThatMayChangeThePolicy does so first.
func TestAReleaseThatMayChangeThePolicy(t *testing.T) {
	s := newPolicyStage(t)
	s.must(grant.ReleaseDrivers(s.ctx, s.client, s.Namespace, "csi-reclaimer"))
	vols := s.makeMany(10, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(vols, "protected", isProtected)
	said, err := s.release()
	if err != nil || !strings.Contains(said, "removed from mutatingadmissionpolicy/"+admission.PolicyName) || !strings.Contains(said, "10 PVs were released") {
		t.Errorf("--release-finalizers ended with %v and said %q", err, said)
	}
	s.waitAll(vols, "without our finalizer", isFree)
	for _, vol := range vols {
		s.annotate(vol, "e2e.csi-reclaimer.io/touched", "yes")
	}
	s.waitAll(vols, "without our finalizer", isFree)
}

// TestAPolicyThatIsIneffectiveIsReported: one that stands and adds nothing, here for a condition more, as with an API
// server that runs without such policies.
func TestAPolicyThatIsIneffectiveIsReported(t *testing.T) {
	if version == controlplane.V1_30 {
		t.Skip("MutatingAdmissionPolicy is served from 1.36 on")
	}
	s := newStage(t)
	policy := admission.Policy(volume.RoleOwner, s.Driver)
	policy.Spec.MatchConditions = append(policy.Spec.MatchConditions, admissionv1.MatchCondition{Name: "off", Expression: "false"})
	api := s.client.AdmissionregistrationV1()
	_, err := api.MutatingAdmissionPolicies().Create(s.ctx, policy, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(s.uninstallPolicy)
	_, err = api.MutatingAdmissionPolicyBindings().Create(s.ctx, admission.Binding(volume.RoleOwner), metav1.CreateOptions{})
	s.must(err)
	began := time.Now()
	car := s.sidecar(eager()...)
	early := s.make(storage.Spec{Dynamic: true})
	s.waitProtected(early) // by the sidecar, and nobody may conclude anything yet
	s.metric(car, "csi_reclaimer_admission_policy_missed_total", "0")
	for time.Since(began) < 65*time.Second { // the time after which a policy counts, and its second
		time.Sleep(time.Second)
	}
	late := s.make(storage.Spec{Dynamic: true})
	s.waitEvent(late, "AdmissionPolicyIneffective", "although an admission policy")
	s.metric(car, "csi_reclaimer_admission_policy_missed_total", "1")
	if s.reported("PersistentVolume", early.Name, "AdmissionPolicyIneffective") {
		t.Error("a PV from before the policy could be known counts")
	}
}
