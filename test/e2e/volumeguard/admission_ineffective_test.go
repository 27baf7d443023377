//go:build unix

package volumeguard

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

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
	api := env.Client.AdmissionregistrationV1()
	_, err := api.MutatingAdmissionPolicies().Create(env.Ctx, policy, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(env.UninstallAdmissionPolicy)
	_, err = api.MutatingAdmissionPolicyBindings().Create(env.Ctx, admission.Binding(volume.RoleOwner),
		metav1.CreateOptions{})
	env.Must(err)
}

// policyReads counts how often the sidecar has read the policy.
func (env *environment) policyReads() int {
	env.T.Helper()
	reads, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		return e.Verb == "get" && e.Resource == "mutatingadmissionpolicies"
	})
	env.Must(err)
	return len(reads)
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
