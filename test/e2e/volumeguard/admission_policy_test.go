//go:build unix

package volumeguard

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// unlisted is a driver that no policy lists.
const unlisted = "unlisted.csi-reclaimer.io"

// startVolumeGuardWithWebhooks starts volume-guard for its webhooks alone, with their configurations, which list these
// drivers.
func (env *environment) startVolumeGuardWithWebhooks(drivers ...string) *program.Program {
	env.T.Helper()
	address := suite.FreeAddress(env.T)
	env.configureWebhooks(address, drivers...)
	return env.Start("--controllers=-intree", "--webhook-address="+address, "--webhook-names=localhost")
}

// webhookServer is volume-guard's webhook server, run by the test, because it rotates its certificates faster than a
// program should.
type webhookServer struct {
	certificates *certs.Rotator
	port         string
}

// startWebhooks runs them beside the environment's control plane, which does not know them yet.
func (env *environment) startWebhooks(keep certs.Config) *webhookServer {
	env.T.Helper()
	admin := env.Plane.Admin()
	reader, err := admission.NewReader(admin)
	env.Must(err)
	keep.Namespace, keep.Secret = env.Namespace, "webhooks"
	keep.Names, keep.Webhooks = []string{"localhost"}, []string{admission.WebhooksName}
	h := &webhookServer{}
	h.certificates, err = certs.New(admin, keep)
	env.Must(err)
	ctx, cancel := context.WithCancel(env.Ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { h.certificates.Run(ctx) })
	server := admission.NewServer(admission.Handler(env.listed, reader), h.certificates.Certificate)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	env.Must(err)
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	env.T.Cleanup(func() {
		cancel()
		keeping.Wait()
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			env.T.Error(err)
		}
	})
	_, h.port, err = net.SplitHostPort(listener.Addr().String())
	env.Must(err)
	return h
}

// listed returns the environment's driver as a protected driver.
func (env *environment) listed() admission.Drivers {
	return admission.Drivers{volume.RoleOwner: {env.Driver}}
}

// longestTimeout returns the longest timeout of a webhook. A write whose webhook is too late continues unchanged, as if
// no webhook existed.
func longestTimeout() *int32 { return ptr.To[int32](30) }

// watchPVs has the API server ask the webhook about PVs.
func (env *environment) watchPVs(h *webhookServer) {
	env.T.Helper()
	config := admission.PVWebhooks(admission.Service{Namespace: env.Namespace, Name: "none"}, env.listed())
	for i := range config.Webhooks {
		c := &config.Webhooks[i].ClientConfig // no Service leads anywhere here
		c.URL, c.Service = ptr.To("https://localhost:"+h.port+*c.Service.Path), nil
		config.Webhooks[i].TimeoutSeconds = longestTimeout()
	}
	configs := env.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := configs.Create(env.Ctx, config, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() { _ = configs.Delete(env.CleanupContext(), config.Name, metav1.DeleteOptions{}) })
	env.WaitAdmissionInForce(true)
}

// TestAdmission runs the tests that change the admission of the shared control plane. They take turns, since a policy
// or webhook configuration of one name exists once. Tests with their own control plane run beside them.
func TestAdmission(t *testing.T) {
	t.Parallel()
	t.Run("policy adds the finalizer in the same write", testPolicyAddsFinalizerInTheSameWrite)
	t.Run("policy is uninstalled and reinstalled", testAdmissionPolicyUninstallAndReinstall)
	t.Run("release is refused while the policy lists the driver", testReleaseIsRefusedWhileAdmissionPolicyListsDriver)
	t.Run("release removes the driver from the policy", testReleaseRemovesDriverFromAdmissionPolicy)
	t.Run("ineffective policy is reported", testIneffectiveAdmissionPolicyIsReported)
	t.Run("unresponsive webhook refuses nothing", testUnresponsiveWebhookRefusesNothing)
	t.Run("certificate rotation refuses nothing", testWebhookCertificateRotationRefusesNothing)
}

// testPolicyAddsFinalizerInTheSameWrite changes PVs to Delete and deletes them at once, without a sidecar.
func testPolicyAddsFinalizerInTheSameWrite(t *testing.T) {
	newWithAdmissionPolicy(t).expectNoLeakWithoutSidecar()
}

// TestWebhookAddsFinalizerInTheSameWrite tests volume-guard's webhook instead of the policy.
func TestWebhookAddsFinalizerInTheSameWrite(t *testing.T) {
	t.Parallel()
	env := newWithVolumeGuard(t, fixture.Version(), controlplane.Options{})
	beside := env.forSubtest(t)
	beside.UseDriver(mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"})
	env.startVolumeGuardWithWebhooks(beside.Driver)
	beside.CreateServiceAccount("csi-reclaimer")
	beside.GrantRole("owner")
	beside.WaitAdmissionInForce(true)
	beside.expectNoLeakWithoutSidecar()
}

func (env *environment) expectNoLeakWithoutSidecar() {
	env.T.Helper()
	retain := func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} }
	vols := env.MakeVolumes(fixture.Size(500, 20), retain)
	alone := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain, Handle: "none",
		Change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = unlisted }})
	released := append(slices.Clone(vols[len(vols)/2:]), alone)
	env.ForEachVolume(released, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(released, "released", fixture.IsReleased)
	env.ForEachVolume(append(slices.Clone(vols), alone), func(vol *objects.Volume) error {
		if err := vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete); err != nil {
			return err
		}
		return vol.DeletePV(env.Ctx)
	})
	env.Must(alone.WaitGone(env.WithTimeout())) // as all would have gone
	env.ForEachVolume(vols[:len(vols)/2], func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "released, terminating and protected", func(pv *v1.PersistentVolume) bool {
		return fixture.IsReleased(pv) && pv.DeletionTimestamp != nil && fixture.HasFinalizer(pv)
	})
	env.StartSidecar(fixture.FastRetries()...)
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	disk, calls := env.VolumesOnDisk(), env.DeleteCallCounts()
	for _, vol := range vols {
		if disk[vol.Handle] || calls[vol.Handle] != 1 {
			env.T.Errorf("volume %s of PV %s: on disk %v, %d DeleteVolume calls, want 1", vol.Handle, vol.Name, disk[vol.Handle],
				calls[vol.Handle])
		}
	}
}

// testAdmissionPolicyUninstallAndReinstall expects all writes to PVs to pass without the policy. Once the policy is
// back, PVs are protected again, also PVs of another driver. With the drivers in a ConfigMap, a policy would then have
// no effect until the API server restarts (kubernetes/kubernetes#130887).
func testAdmissionPolicyUninstallAndReinstall(t *testing.T) {
	env := newWithAdmissionPolicy(t)
	env.UninstallAdmissionPolicy()
	env.WaitAdmissionInForce(false)
	// made, bound
	for i, vol := range env.MakeVolumes(20, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} }) {
		env.AnnotatePV(vol, "e2e.csi-reclaimer.io/touched", "yes")
		env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
		if i%2 == 0 {
			env.Must(vol.DeletePV(env.Ctx))
		}
		env.Must(vol.DeleteClaim(env.Ctx))
		if i%2 == 0 {
			env.Must(vol.WaitGone(env.WithTimeout()))
		} else {
			env.WaitPV(vol, "released", fixture.IsReleased)
		}
	}
	env.InstallAdmissionPolicy()
	env.UninstallAdmissionPolicy()
	env.WaitAdmissionInForce(false)
	again := env.forSubtest(t)
	again.Driver = "again-" + env.Driver
	again.InstallAdmissionPolicy()
}

// testReleaseIsRefusedWhileAdmissionPolicyListsDriver has a csi-reclaimer without permission to change the policy: its
// release removes nothing while the driver is listed, and names the policy.
func testReleaseIsRefusedWhileAdmissionPolicyListsDriver(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	env := newWithAdmissionPolicy(t)
	vols := env.MakeVolumes(10, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected) // in the write that bound them
	output, err := env.ReleaseFinalizers()
	if err == nil || !strings.Contains(output, "admission policy") || !strings.Contains(output, "0 PVs were released") {
		t.Errorf("with the driver listed --release-finalizers ended with %v and output %q", err, output)
	}
	env.WaitAllPVs(vols, "still protected", fixture.IsProtected)
	_, err = admission.RemoveDrivers(env.Ctx, env.Plane.Admin(), []string{env.Driver})
	env.Must(err)
	env.Must(admission.WaitUntilRemoved(env.Ctx, env.Plane.Admin(), []string{env.Driver}))
	if output, err = env.ReleaseFinalizers(); err != nil || !strings.Contains(output, "10 PVs were released") {
		t.Errorf("with the driver not listed --release-finalizers ended with %v and output %q", err, output)
	}
	env.WaitAllPVs(vols, "without our finalizer", fixture.WithoutFinalizer)
	for _, vol := range vols {
		env.ExpectKept(vol)
	}
}

// testReleaseRemovesDriverFromAdmissionPolicy changes the policy before the first finalizer is removed.
func testReleaseRemovesDriverFromAdmissionPolicy(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	env := newWithAdmissionPolicy(t)
	env.Must(rbac.GrantReleaseDrivers(env.Ctx, env.Client, env.Namespace, "csi-reclaimer"))
	vols := env.MakeVolumes(10, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	output, err := env.ReleaseFinalizers()
	if err != nil || !strings.Contains(output,
		"removed from mutatingadmissionpolicy/"+admission.PolicyName) || !strings.Contains(output, "10 PVs were released") {
		t.Errorf("--release-finalizers ended with %v and output %q", err, output)
	}
	env.WaitAllPVs(vols, "without our finalizer", fixture.WithoutFinalizer)
	for _, vol := range vols {
		env.AnnotatePV(vol, "e2e.csi-reclaimer.io/touched", "yes")
	}
	env.WaitAllPVs(vols, "without our finalizer", fixture.WithoutFinalizer)
}
