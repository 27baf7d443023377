//go:build unix

package e2e

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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// carelessScheduler are options with a real scheduler that does not look at claims (its plugin VolumeBinding is off), as
// one whose watch of claims is behind.
func carelessScheduler(t *testing.T) controlplane.Options {
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
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return controlplane.Options{Dir: plane, Scheduler: true, SchedulerArgs: []string{"--config=" + config}}
}

// going makes a claim that is being deleted and stays so until it is let go.
func (s *stage) going(name, class string) *storage.Claim {
	s.t.Helper()
	claim := s.claim(class, keepThere, func(spec *storage.ClaimSpec) { spec.Name = name })
	s.deleteClaim(claim)
	return claim
}

// toldOfPod returns the Events about a pod.
func (s *stage) toldOfPod(pod *storage.Pod) (told []string) {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.Namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
	s.must(err)
	for _, e := range list.Items {
		told = append(told, e.Reason+": "+e.Message)
	}
	return told
}

// TestAdmissionKeepsPodsOffClaimsThatGo, with a scheduler that would send them there.
func TestAdmissionKeepsPodsOffClaimsThatGo(t *testing.T) {
	t.Parallel()
	const words = "PVC (data) is in scheduled for deletion state"
	s := newGuardStage(t, version, carelessScheduler(t))
	fakenode.ForTest(t, s.plane, "node", fakenode.Config{})
	g := s.webhookGuard()
	class := s.class(lateBinding) // other plugins look at it
	claim := s.going("data", class)
	preset := func(name string) (*storage.Pod, error) {
		return s.MakePod(s.ctx, storage.PodSpec{Name: name, Claims: []string{"data"}, Node: "node"})
	}
	s.eventually("a pod with a node is refused", func() bool {
		pod, err := preset("early")
		if err == nil { // the API server does not know the webhook yet
			s.force(pod.Name)
			return false
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
			t.Fatalf("refused with %v, want %q", err, words)
		}
		return true
	})
	s.bindsOnlyToANewClaim(claim, class, words)

	s.must(s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Delete(s.ctx, "data", metav1.DeleteOptions{}))
	s.eventually("the claim is gone", func() bool { return !s.claimThere("data") })
	s.going("data", class)
	g.Kill()
	if _, err := preset("unasked"); err != nil {
		t.Errorf("while the webhook is down a pod with a node is refused: %v", err)
	}
	pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "unasked-too", Claims: []string{"data"}})
	s.must(err)
	_, err = pod.WaitRunning(s.soon())
	s.must(err)
	s.must(g.Restart()) // for a good end
}

// claimThere tells whether there is a claim of this name.
func (s *stage) claimThere(name string) bool {
	s.t.Helper()
	_, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		s.must(err)
	}
	return err == nil
}

// bindsOnlyToANewClaim has the scheduler bind a pod to a claim that is being deleted: it is refused with the words, and succeeds once
// the claim is a new one.
func (s *stage) bindsOnlyToANewClaim(claim *storage.Claim, class, words string) {
	s.t.Helper()
	pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "user", Claims: []string{claim.Name}})
	s.must(err)
	var told []string
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("told of the pod: %q", told)
		}
	})
	s.eventually("the scheduler is refused, and says why", func() bool {
		told = s.toldOfPod(pod)
		return slices.ContainsFunc(told, func(message string) bool { return strings.Contains(message, words) })
	})
	if now, err := pod.Get(s.ctx); err != nil || now == nil || now.Spec.NodeName != "" {
		s.t.Errorf("the pod is bound to a claim that is being deleted: %v", err)
	}
	s.unhold(claim)
	s.waitClaim(claim, "gone", noClaim)
	_, err = s.MakeClaim(s.ctx, storage.ClaimSpec{Name: claim.Name, Class: class})
	s.must(err)
	_, err = pod.WaitRunning(s.soon())
	s.must(err)
	s.must(pod.Delete(s.ctx))
	s.must(pod.WaitGone(s.soon()))
}

// TestAdmissionWaitsForNobody: a webhook that takes calls and never answers costs each its timeout, and refuses nothing.
func TestAdmissionWaitsForNobody(t *testing.T) {
	s := newStage(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
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
	config := admission.PVWebhooks(admission.Service{Namespace: s.Namespace, Name: "none"}, s.listed())
	for i := range config.Webhooks {
		c := &config.Webhooks[i].ClientConfig
		c.URL, c.Service = ptr.To("https://"+listener.Addr().String()+*c.Service.Path), nil
	}
	configs := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err = configs.Create(s.ctx, config, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(func() { _ = configs.Delete(s.clean(), config.Name, metav1.DeleteOptions{}) })
	s.eventually("the webhook is asked", func() bool {
		began, before := time.Now(), calls.Load()
		_, err := s.putOn()
		s.must(err)
		asked := calls.Load() > before
		if took := time.Since(began); asked && took > 20*time.Second {
			t.Errorf("a write took %v", took)
		}
		return asked
	})
}

// TestAdmissionCertificatesAreExchanged while a hundred writes a second are looked at: each is.
func TestAdmissionCertificatesAreExchanged(t *testing.T) {
	s := newStage(t)
	h := s.webhooks(certs.Config{
		// It is due for the next as soon as it is made.
		Look: 500 * time.Millisecond, Settle: 5 * time.Second, Lifetime: time.Hour, RenewBefore: time.Hour - time.Second,
	})
	s.watchPVs(h)
	presented := func() string {
		pair, err := h.keeper.Certificate(nil)
		s.must(err)
		return pair.Leaf.SerialNumber.String()
	}
	const atOnce = 16
	var asked, failed atomic.Int32
	work := make(chan struct{})
	var writers sync.WaitGroup
	for range atOnce {
		writers.Go(func() {
			for range work {
				if is, err := s.putOn(); err != nil || !is {
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
	for len(seen) < size(6, 3) && failed.Load() == 0 && s.ctx.Err() == nil {
		<-tick.C
		work <- struct{}{}
		seen[presented()] = true
	}
	close(work)
	writers.Wait()
	t.Logf("%d writes, %.0f a second, %d certificates", asked.Load(), float64(asked.Load())/time.Since(began).Seconds(), len(seen))
	if len(seen) < 3 {
		t.Errorf("%d certificates", len(seen))
	}
}
