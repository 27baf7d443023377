//go:build unix

package volumeguard

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// schedulerIgnoringTerminatingClaims returns options with a real scheduler that ignores claims (its plugin
// VolumeBinding is off), like a scheduler with a lagging watch of claims.
func schedulerIgnoringTerminatingClaims(t *testing.T) controlplane.Options {
	t.Helper()
	folder := t.TempDir()
	config, plane := filepath.Join(folder, "scheduler.yaml"), filepath.Join(folder, "plane")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 500, burst: 1000}
leaderElection: {leaderElect: false}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled:
      - name: VolumeBinding
`, filepath.Join(plane, "kube-scheduler.kubeconfig"))
	must.OK(t, os.WriteFile(config, []byte(text), 0o600))
	return controlplane.Options{Dir: plane, Scheduler: true, SchedulerArgs: []string{"--config=" + config}}
}

// createTerminatingClaim creates a claim that is terminating until its finalizer is removed.
func (env *environment) createTerminatingClaim(name, class string) *objects.Claim {
	env.T.Helper()
	claim := env.CreateClaim(class, withHoldFinalizer, func(spec *objects.ClaimSpec) { spec.Name = name })
	env.MustDeleteClaim(claim)
	return claim
}

// podEvents returns the Events about a pod.
func (env *environment) podEvents(pod *objects.Pod) (events []string) {
	env.T.Helper()
	for _, e := range env.Events(v1.ObjectReference{Name: pod.Name}, "") {
		events = append(events, e.Reason+": "+e.Message)
	}
	return events
}

// TestAdmissionRejectsPodBindingToTerminatingClaim uses a scheduler that would bind such pods.
func TestAdmissionRejectsPodBindingToTerminatingClaim(t *testing.T) {
	t.Parallel()
	const words = "PVC (data) is in scheduled for deletion state"
	env := newWithVolumeGuard(t, fixture.Version(), schedulerIgnoringTerminatingClaims(t))
	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	g := env.startVolumeGuardWithWebhooks()
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer) // other plugins look at it
	claim := env.createTerminatingClaim("data", class)
	preset := func(name string) (*objects.Pod, error) {
		return env.MakePod(env.Ctx, objects.PodSpec{Name: name, Claims: []string{"data"}, Node: "node"})
	}
	env.Eventually("a pod with a node is refused", func() bool {
		pod, err := preset("early")
		if err == nil { // the API server does not know the webhook yet
			env.deletePodNow(pod.Name)
			return false
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
			t.Fatalf("refused with %v, want %q", err, words)
		}
		return true
	})
	env.expectBindingToNewClaim(claim, class, words)

	env.Claims().Delete("data")
	env.Eventually("the claim is gone", func() bool { return env.Claims().Find("data") == nil })
	env.createTerminatingClaim("data", class)
	g.Kill()
	if _, err := preset("unasked"); err != nil {
		t.Errorf("while the webhook is down a pod with a node is refused: %v", err)
	}
	pod := env.CreatePod(objects.PodSpec{Name: "unasked-too", Claims: []string{"data"}})
	env.WaitRunning(pod)
	env.Must(g.Restart()) // for a good end
}

// expectBindingToNewClaim has the scheduler bind a pod to a claim that is being deleted: it is refused with the words,
// and succeeds once the claim is a new one.
func (env *environment) expectBindingToNewClaim(claim *objects.Claim, class, words string) {
	env.T.Helper()
	pod := env.CreatePod(objects.PodSpec{Name: "user", Claims: []string{claim.Name}})
	var events []string
	env.T.Cleanup(func() {
		if env.T.Failed() {
			env.T.Logf("Events of the pod: %q", events)
		}
	})
	env.Eventually("the scheduler is refused, and says why", func() bool {
		events = env.podEvents(pod)
		return slices.ContainsFunc(events, func(message string) bool { return strings.Contains(message, words) })
	})
	if now, err := pod.Get(env.Ctx); err != nil || now == nil || now.Spec.NodeName != "" {
		env.T.Errorf("the pod is bound to a claim that is being deleted: %v", err)
	}
	env.removeHold(claim)
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	_, err := env.MakeClaim(env.Ctx, objects.ClaimSpec{Name: claim.Name, Class: class})
	env.Must(err)
	env.WaitRunning(pod)
	env.Must(pod.Delete(env.Ctx))
	env.Must(pod.WaitGone(env.WithTimeout()))
}

// testUnresponsiveWebhookRefusesNothing has a webhook that accepts connections and never answers: each request waits
// for the webhook's timeout, and none is refused.
func testUnresponsiveWebhookRefusesNothing(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	env := of(fixture.New(t))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	env.Must(err)
	var calls atomic.Int32
	var taking sync.WaitGroup
	taking.Go(func() {
		var open []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			calls.Add(1)
			open = append(open, conn)
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); taking.Wait() })
	config := admission.PVWebhooks(admission.Service{Namespace: env.Namespace, Name: "none"}, env.listed())
	for i := range config.Webhooks {
		redirect(&config.Webhooks[i].ClientConfig, listener.Addr().String())
	}
	env.MutatingWebhookConfigurations().CreateForTest(config)
	env.Eventually("the webhook is asked, and the write goes on without an answer", func() bool {
		began, before := time.Now(), calls.Load()
		_, err := env.AdmitsWithFinalizer()
		env.Must(err)
		// A busy machine can delay any write, but not all of them.
		return calls.Load() > before && time.Since(began) < 20*time.Second
	})
}

// testWebhookCertificateRotationRefusesNothing rotates certificates during a hundred writes a second.
func testWebhookCertificateRotationRefusesNothing(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	fixture.AboutProgram.Require(t)
	env := of(fixture.New(t))
	h := env.startWebhooks(certs.Config{
		// It is due for the next as soon as it is made.
		// An API server that is kept waiting for as long does not know the next one when it is presented.
		PollInterval: 500 * time.Millisecond, PropagationDelay: 15 * time.Second, Lifetime: time.Hour,
		RenewBefore: time.Hour - time.Second,
	})
	env.watchPVs(h)
	presented := func() string {
		pair, err := h.certificates.Certificate(nil)
		env.Must(err)
		return pair.Leaf.SerialNumber.String()
	}
	const atOnce = 16
	var asked, failed atomic.Int32
	work := make(chan struct{})
	var writers sync.WaitGroup
	for range atOnce {
		writers.Go(func() {
			for range work {
				if is, err := env.AdmitsWithFinalizer(); err != nil || !is {
					failed.Add(1)
					t.Errorf("a write that nobody looked at: %v", err)
				}
				asked.Add(1)
			}
		})
	}
	began, seen := time.Now(), map[string]bool{presented(): true}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(seen) < fixture.Size(6, 3) && failed.Load() == 0 && env.Ctx.Err() == nil {
		<-tick.C
		work <- struct{}{}
		seen[presented()] = true
	}
	close(work)
	writers.Wait()
	t.Logf("%d writes, %.0f a second, %d certificates", asked.Load(), float64(asked.Load())/time.Since(began).Seconds(),
		len(seen))
	if len(seen) < 3 {
		t.Errorf("%d certificates", len(seen))
	}
}
