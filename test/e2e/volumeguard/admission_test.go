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
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
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
	env.MutatingWebhookConfigurations().CreateForTest(env.pvWebhooks("localhost:"+h.port, env.Driver))
	env.WaitAdmissionInForce(true)
}

// pvWebhooks returns the configuration of the webhooks about PVs of these drivers, which a program answers at the
// address: no Service leads anywhere here.
func (env *environment) pvWebhooks(address string, drivers ...string) *admissionv1.MutatingWebhookConfiguration {
	config := admission.PVWebhooks(admission.Service{Namespace: env.Namespace, Name: fixture.VolumeGuardName},
		admission.Drivers{volume.RoleOwner: drivers})
	for i := range config.Webhooks {
		config.Webhooks[i].TimeoutSeconds = longestTimeout()
		redirect(&config.Webhooks[i].ClientConfig, address)
	}
	return config
}

// redirect has an address answer in place of a Service.
func redirect(c *admissionv1.WebhookClientConfig, address string) {
	c.URL, c.Service = ptr.To("https://"+address+*c.Service.Path), nil
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
	env.ExpectDeletedOnce(vols...)
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
	env.ExpectKept(vols...)
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

// advancedClock is the real one, ahead by a time that a test sets. Nothing waits long by it.
type advancedClock struct {
	clock.RealClock
	by atomic.Int64
}

func (c *advancedClock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func (c *advancedClock) After(d time.Duration) <-chan time.Time {
	return time.After(min(d, 10*time.Millisecond))
}

// ineffective installs a policy that exists and adds nothing, here because of one more condition.
func (env *environment) ineffective() {
	env.T.Helper()
	policy := admission.Policy(volume.RoleOwner, env.Driver)
	policy.Spec.MatchConditions = append(policy.Spec.MatchConditions,
		admissionv1.MatchCondition{Name: "off", Expression: "false"})
	env.T.Cleanup(env.UninstallAdmissionPolicy)
	env.CreateAdmissionPolicy(policy)
}

// policyReads counts how often the sidecar has read the policy.
func (env *environment) policyReads() int {
	env.T.Helper()
	return len(env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Verb == "get" && e.Resource == "mutatingadmissionpolicies"
	}))
}

// testIneffectiveAdmissionPolicyIsReported expects the program to read the policy when a PV is missed, and a reclaimer
// with its own clock to report a PV that is missed an hour and more after the creation of the policy.
func testIneffectiveAdmissionPolicyIsReported(t *testing.T) {
	fixture.From(t, controlplane.V1_36, "MutatingAdmissionPolicy")
	env := of(fixture.New(t))
	env.ineffective()
	car := env.StartSidecar(fixture.FastRetries()...)
	early := env.MakeVolume(objects.Spec{Dynamic: true})
	env.WaitProtected(early) // by the sidecar
	env.Eventually("the program reads the policy", func() bool { return env.policyReads() > 0 })
	env.Must(car.Terminate())

	registry, recorder, now := prometheus.NewRegistry(), record.NewFakeRecorder(100), &advancedClock{}
	env.startReclaimer(reclaim.Config{Clock: now, AdmissionPolicySettles: time.Hour, Events: recorder, Metrics: registry})
	read := env.policyReads()
	missed := func() {
		read++
		env.WaitProtected(env.MakeVolume(objects.Spec{Dynamic: true}))
		env.Eventually("the reclaimer reads the policy", func() bool { return env.policyReads() >= read })
	}
	missed()
	now.by.Store(int64(2 * time.Hour))
	missed()
	env.Eventually("it is reported", func() bool { return len(recorder.Events) > 0 })
	if reported := <-recorder.Events; !strings.Contains(reported, "AdmissionPolicyIneffective") {
		t.Errorf("reported %q", reported)
	}
	families, err := registry.Gather()
	env.Must(err)
	for _, family := range families {
		if family.GetName() != "csi_reclaimer_admission_policy_missed_total" {
			continue
		}
		if n := family.GetMetric()[0].GetCounter().GetValue(); n != 1 {
			t.Errorf("%v PVs were missed, want the later one alone", n)
		}
		return
	}
	t.Error("PVs that are missed are not counted")
}

// startReclaimer runs a reclaimer beside the driver, with the sidecar's account, until the test ends.
func (env *environment) startReclaimer(cfg reclaim.Config) {
	env.T.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", env.Kubeconfig)
	env.Must(err)
	config.QPS = -1
	driver, err := csidriver.Connect(env.Ctx, env.MockDriver.Socket(), csidriver.Config{})
	env.Must(err)
	policy, err := admission.NewDriverPolicy(config, env.Driver, volume.RoleOwner)
	env.Must(err)
	cfg.AdmissionPolicy = policy.Since
	r, err := reclaim.New(config, env.Driver, driver, cfg)
	env.Must(err)
	ctx, cancel := context.WithCancel(env.Ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil && ctx.Err() == nil {
			env.T.Error(err)
		}
	})
	env.T.Cleanup(func() {
		cancel()
		running.Wait()
		driver.Close()
	})
	env.WaitProtected(env.MakeVolume(objects.Spec{Dynamic: true})) // it works: later PVs are not of its first list
}
