package provision

import (
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// TestNextClaimOfANameGetsItsTurn covers the deletion of the claim before it.
func TestNextClaimOfANameGetsItsTurn(t *testing.T) {
	w := newWorld(t)
	w.orders.characters = 2
	refused := refusal(t, invalid, request.RemediationChange)
	w.orders.refuse = func(o request.Options) error {
		if o.Claim.Name == "first" {
			return refused
		}
		return nil
	}
	p := w.start(Config{}).provisioner
	w.makeClaim(named("first", "u1-first"))
	w.wait("the first is refused", func() bool { return p.tracker.retryOf("pvc-u1").count > 0 })
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "u1-second" })
	w.wait("the second is known", func() bool { return len(p.tracker.claimsOf("pvc-u1")) == 2 })
	w.deleteNamed("first")
	w.wait("the second is provisioned", w.provisioned)
	if owner := w.pv().Spec.ClaimRef.UID; owner != "u1-second" {
		t.Errorf("the PV is %q's", owner)
	}
}

// TestForgetKeepsALaterClaim: the name's worker found no work just before the claim came.
func TestForgetKeepsALaterClaim(t *testing.T) {
	tracker, first, second := newTracker(), refTo("a", "u1"), refTo("b", "u2")
	tracker.want("pvc-u", first)
	tracker.want("pvc-u", first)
	tracker.want("pvc-u", second)
	tracker.leave("pvc-u", first, tracker.offered())
	if tracker.forget("pvc-u"); len(tracker.claimsOf("pvc-u")) != 1 || tracker.claimsOf("pvc-u")[0] != second {
		t.Errorf("known are %v", tracker.claimsOf("pvc-u"))
	}
	before := tracker.offered()
	tracker.want("pvc-u", second)
	if tracker.leave("pvc-u", second, before); len(tracker.claimsOf("pvc-u")) != 1 {
		t.Error("an offer that the run has not seen is lost")
	}
	if tracker.leave("pvc-u", second, tracker.offered()); tracker.knows("pvc-u") {
		t.Error("a name without a claim is known")
	}
}

// TestForeignClassIsNotProvisioned: the class was recreated after the claim was accepted.
func TestForeignClassIsNotProvisioned(t *testing.T) {
	w := newWorld(t)
	w.failing(false, class(errclass.Refused))
	p := w.start(Config{}).provisioner
	w.makeClaim()
	w.wait("it waits for its next try", func() bool { return w.count("close entry") > 0 })
	claim := p.claims.WholeByUID("u1")
	if p.wantedClass(t.Context(), claim) == nil {
		t.Fatal("its own driver's class is not asked for")
	}
	w.replaceClass(func(c *storagev1.StorageClass) { c.Provisioner = "another.example.com" })
	w.wait("the class is seen", func() bool {
		class := p.classOf(claim)
		return class != nil && class.Provisioner == "another.example.com"
	})
	if p.wantedClass(t.Context(), claim) != nil {
		t.Error("another driver's class is asked for")
	}
}

// TestSlowNameWaitsForItsLane covers a name without an entry.
func TestSlowNameWaitsForItsLane(t *testing.T) {
	p := newWorld(t).make(Config{}).provisioner
	p.tracker.want("pvc-u1", refTo("data", "u1"))
	p.tracker.mark("pvc-u1", ending{slow: true})
	for range max(1, p.cfg.Workers/2) {
		p.slow.Enter("other", 0)
	}
	if got := p.try(t.Context(), "pvc-u1"); got != controller.Done() || p.slow.Waiting() != 1 {
		t.Errorf("%+v, %d wait", got, p.slow.Waiting())
	}
}

// TestStopLetsATryEnd checks that no other try begins.
func TestStopLetsATryEnd(t *testing.T) {
	w := newWorld(t)
	calling, answer := make(chan struct{}), make(chan struct{})
	w.call = func(string) error {
		calling <- struct{}{}
		<-answer
		return nil
	}
	p := w.make(Config{})
	ended := make(chan error, 1)
	go func() { ended <- p.provisioner.Run(t.Context()) }()
	w.wait("it works", p.provisioner.working)
	w.makeClaim()
	<-calling
	if n := p.provisioner.trying.Load(); n != 1 {
		t.Errorf("%d tries are in progress, want 1", n)
	}
	p.provisioner.Stop()
	w.makeClaim(named("next", "u2"))
	w.wait("the next claim is seen", func() bool { return p.provisioner.claims.WholeByUID("u2") != nil })
	close(answer)
	select {
	case err := <-ended:
		w.must(err)
	case <-time.After(patience):
		t.Fatal("Run does not return")
	}
	if p.log.removals.Wait(); !w.provisioned() || w.count("create volume") != 1 {
		t.Errorf("records %q", w.recorded())
	}
}

// TestChangedClaimIsDeselected: the claim is as cached before the call, and others write to it meanwhile. The driver is
// not called for the full node again before the claim is deselected; until the watch shows that, it may be.
func TestChangedClaimIsDeselected(t *testing.T) {
	w := newWorld(t)
	var once sync.Once
	w.call = func(string) error {
		again := true
		once.Do(func() {
			w.update(func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} })
			again = false
		})
		if node := w.selectedNode(); again && node != "" {
			t.Errorf("the driver is called again while node %s is selected", node)
		}
		return nil
	}
	w.failing(false, class(errclass.Exhausted))
	w.start(Config{})
	w.lateClaim()
	w.wait("another node is asked for", func() bool { return w.selectedNode() == "" })
}

// TestDeselectLeavesOtherChanges covers changes after which the claim needs no other node.
func TestDeselectLeavesOtherChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolumeClaim)
		want   string
	}{
		"a label":      {func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }, ""},
		"another node": {selecting("n2"), "n2"},
		"it is bound":  {func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, "n1"},
		"it is deleted": {func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}, "n1"},
		"it is recreated": {func(c *v1.PersistentVolumeClaim) { c.UID = "u2" }, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			r, log := observing(t, Config{}, nil, nil)
			log.makeClaim(selecting("n1"))
			r.claim = log.claim().DeepCopy()
			log.update(c.change)
			if err := r.deselect(t.Context()); err != nil || log.selectedNode() != c.want {
				t.Errorf("%v, selected is %q, want %q", err, log.selectedNode(), c.want)
			}
		})
	}
	r, log := observing(t, Config{}, nil, nil)
	log.makeClaim(selecting("n1"))
	r.claim = log.claim().DeepCopy()
	log.conflicts = true
	if err := r.deselect(t.Context()); !errors.Is(err, kube.ErrChanged) || log.count("select ") != deselectTries {
		t.Errorf("%v after %d writes", err, log.count("select "))
	}
}
