package provision

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// A party that is waited for may be gone: each wait has another exit, or a reason that names one.

func (w *world) setSecret(gone bool) { w.set(func() { w.secretGone = gone }) }

func (w *world) refuse(err error) { w.set(func() { w.refused = err }) }

// calls waits until the driver was called n more times.
func (w *world) calls(n int) {
	w.t.Helper()
	n += w.count("create volume")
	w.wait(fmt.Sprintf("the driver was called %d times", n), func() bool { return w.count("create volume") >= n })
}

// waitEvent waits for a Warning with a reason.
func (w *world) waitEvent(events *told, reason Reason) {
	w.t.Helper()
	w.wait("an Event has the reason "+string(reason), func() bool {
		return events.on("", v1.EventTypeWarning+" "+string(reason)+" ")
	})
}

// staysInDoubt checks that answers of the driver settle no entry, and that an Event has the reason. Then the driver
// answers as it should.
func (w *world) staysInDoubt(events *told, reason Reason) {
	w.t.Helper()
	w.calls(5)
	w.waitEvent(events, reason)
	if w.settled() {
		w.t.Fatalf("LEAK: an answer has settled the entry: volumes %v", w.onDisk())
	}
	w.failing(false, nil)
	w.wait("it has its PV", w.provisioned)
}

// losesSecret deletes the Secret of a claim that exists, and checks that the driver gets no more of these calls.
func (w *world) losesSecret(call string) {
	w.t.Helper()
	w.setSecret(true)
	missed := w.missedSecrets()
	w.wait("the Secret is missed", func() bool { return w.missedSecrets() > missed })
	n := w.count(call)
	w.wait("and once more", func() bool { return w.missedSecrets() > missed+2 })
	if w.count(call) > n {
		w.t.Error("the driver is called without the Secret of a claim that exists")
	}
}

// lateClaim creates a claim with the first of two nodes selected.
func (w *world) lateClaim() {
	w.t.Helper()
	lateClass(w)
	w.makeNodes("n1", "n2")
	w.makeClaim(selecting("n1"))
}

func (w *world) selectedNode() string { return w.claim().Annotations[volume.AnnSelectedNode] }

// TestEntryIsOpenedLast: a claim whose request cannot be sent has no entry, and takes no room from others.
func TestEntryIsOpenedLast(t *testing.T) {
	t.Run("the Secret is missing", func(t *testing.T) {
		w := newWorld(t)
		w.setSecret(true)
		w.start(Config{})
		w.makeClaim()
		w.wait("it is looked for again", func() bool { return w.missedSecrets() > 2 })
		if n := w.count("open entry"); n > 0 {
			t.Errorf("%d entries were opened", n)
		}
		w.setSecret(false)
		w.wait("it is provisioned", w.provisioned)
	})
	t.Run("the source cannot be protected", func(t *testing.T) {
		w := newWorld(t)
		w.start(Config{})
		w.makeClaim(cloning)
		w.wait("it is looked for again", func() bool { return w.count("hold source") > 2 })
		if n := w.count("open entry"); n > 0 {
			t.Errorf("%d entries were opened", n)
		}
	})
}

// TestReservedSourceIsInUse: the source must not be freed between its protection and the entry.
func TestReservedSourceIsInUse(t *testing.T) {
	sources := newProtectedSources()
	source := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "source", UID: "u"}
	first, second := sources.reserve(source), sources.reserve(source)
	first()
	if !sources.isReserved(source) {
		t.Error("the end of one request ends the other's reservation")
	}
	second()
	if sources.isReserved(source) || len(sources.reserved) > 0 {
		t.Error("it stays reserved")
	}
	w := newWorld(t)
	p := w.make(Config{})
	w.must(p.log.TakeOver(t.Context()))
	if state, _ := p.provisioner.inUse(source); state != volume.InFlightSettled {
		t.Error("a source is in use that nothing is made from")
	}
	p.provisioner.protected.reserve(source)
	if state, _ := p.provisioner.inUse(source); state != volume.InFlightOpen {
		t.Error("a reserved source is not in use")
	}
}

// TestOpenRequestIsRepeated checks that the first request is repeated if a second one does not get into the log.
func TestOpenRequestIsRepeated(t *testing.T) {
	for name, keep := range map[string]func(*world, *atomic.Bool){
		"the log is full":               func(w *world, _ *atomic.Bool) { w.refuse(inflight.ErrFull) },
		"its namespace's share is used": func(w *world, _ *atomic.Bool) { w.refuse(inflight.ErrShare) },
		"it is too large":               func(w *world, _ *atomic.Bool) { w.refuse(inflight.ErrTooLarge) },
		"the log cannot be read":        func(w *world, _ *atomic.Bool) { w.refuse(inflight.ErrUnreadable) },
		"the Lease is gone":             func(w *world, _ *atomic.Bool) { w.refuse(inflight.ErrNoShard) },
		"it cannot be built":            func(_ *world, wrong *atomic.Bool) { wrong.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var wrong atomic.Bool
			w.orders.refuse = func(want request.Options) error {
				if wrong.Load() && want.SelectedNode() == "n2" {
					return errors.New("this node is out of order")
				}
				return nil
			}
			w.failing(false, class(errclass.Uncertain))
			w.start(Config{})
			w.lateClaim()
			w.calls(1)
			keep(w, &wrong)
			w.failing(false, class(errclass.Exhausted))
			w.wait("another node is asked for", func() bool { return w.selectedNode() == "" })
			w.chooseSecond()
			w.calls(3)
			w.failing(false, nil)
			w.wait("it is provisioned", w.provisioned)
		})
	}
}

// TestSelectedNodeIsGone: the scheduler is asked for another node while the outcome is in doubt, because the first node
// is gone or has no room. The answer to either request ends both. If the first node comes back, only one volume exists.
func TestSelectedNodeIsGone(t *testing.T) {
	for _, c := range []errclass.Class{errclass.Uncertain, errclass.InProgress, errclass.Refused, errclass.Exhausted} {
		t.Run(c.String(), func(t *testing.T) {
			w := newWorld(t)
			var lost atomic.Bool
			w.orders.lost = func(node string) bool { return lost.Load() && node == "n1" }
			w.failing(false, class(errclass.Uncertain))
			w.start(Config{})
			w.lateClaim()
			w.calls(1)
			w.failing(false, class(c))
			if c != errclass.Exhausted {
				w.calls(3)
				if node := w.selectedNode(); node != "n1" {
					t.Fatalf("node %q is selected in place of one that is there", node)
				}
				lost.Store(true)
			}
			w.wait("another node is asked for", func() bool { return w.selectedNode() == "" })
			w.chooseSecond()
			w.wait("the entry has a request for it", func() bool {
				requests := w.inEntry()
				return len(requests) == 2 && requests[1].Node == "n2"
			})
			lost.Store(false)
			w.failing(false, nil)
			w.wait("it is provisioned", w.provisioned)
			if len(w.onDisk()) != 1 || !w.knownVolumes() {
				t.Errorf("volumes %v", w.onDisk())
			}
		})
	}
}

// TestNodeIsKeptWhileTheDriverMayAnswer: a driver whose volume names are unique only within a zone would make a second
// volume for another node.
func TestNodeIsKeptWhileTheDriverMayAnswer(t *testing.T) {
	w := newWorld(t)
	w.orders.lost = func(node string) bool { return node == "n1" }
	w.failing(true, class(errclass.Uncertain))
	w.start(Config{Quiet: time.Hour})
	w.lateClaim()
	w.calls(4)
	if node := w.selectedNode(); node != "n1" {
		t.Errorf("node %q is selected while the driver may answer with the volume of node n1", node)
	}
	w.failing(false, nil)
	w.wait("the PV is stored", func() bool { return w.pv() != nil })
}

// TestSecretIsGoneWithTheClaim: the request is repeated without the Secret, and no refusal of it settles the entry.
// While the claim exists, the driver is not called.
func TestSecretIsGoneWithTheClaim(t *testing.T) {
	w, events := newWorld(t), &told{}
	w.madeUnseenWith(Config{Events: events})
	w.losesSecret("create volume")
	w.failing(false, class(errclass.Unfit))
	w.deleteClaim()
	w.staysInDoubt(events, provision.ReasonSecretGone)
}

// TestRefusalOfAnotherDriverVersion: the other version has its own rules, and its refusal proves nothing about a volume
// of the earlier version.
func TestRefusalOfAnotherDriverVersion(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			w, events := newWorld(t), &told{}
			w.install("1.0")
			p := w.madeUnseenWith(Config{Events: events})
			w.install("2.0")
			w.failing(false, class(errclass.Unfit))
			if restarted {
				p.stop()
				w.start(Config{Events: events})
			}
			w.staysInDoubt(events, provision.ReasonDriverChanged)
		})
	}
}

// TestReturningDriverVersion: the version in between may have created the volume, and a later process has to know it.
func TestReturningDriverVersion(t *testing.T) {
	w := newWorld(t)
	w.install("1.0")
	w.failing(false, class(errclass.Uncertain))
	p := w.start(Config{Quiet: time.Millisecond})
	w.makeClaim()
	w.calls(2)
	w.install("2.0")
	w.wait("the log has the version", func() bool {
		requests := w.inEntry()
		return len(requests) == 1 && requests[0].OtherVersions
	})
	w.failing(true, class(errclass.Uncertain))
	w.waitUnseen()
	p.stop()
	w.install("1.0")
	w.failing(false, class(errclass.Unfit))
	events := &told{}
	w.start(Config{Events: events, Quiet: time.Millisecond})
	w.staysInDoubt(events, provision.ReasonDriverChanged)
}

// TestAPIServerRefusesThePV checks that its message is on the claim, and that the volume is kept.
func TestAPIServerRefusesThePV(t *testing.T) {
	resource := v1.Resource("persistentvolumes")
	for name, refusal := range map[string]error{
		"by a policy": apierrors.NewForbidden(resource, "pvc-u1", errors.New("no volumes on Sundays")),
		"as not valid": apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("PersistentVolume").GroupKind(), "pvc-u1",
			nil),
		"as too large":    apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		"as no PV at all": apierrors.NewBadRequest("it has no spec"),
	} {
		t.Run(name, func(t *testing.T) {
			w, events := newWorld(t), &told{}
			var refuses atomic.Bool
			refuses.Store(true)
			p := w.make(Config{Events: events})
			p.refusePV = func() error {
				if refuses.Load() {
					return refusal
				}
				return nil
			}
			p.start()
			w.makeClaim()
			w.waitEvent(events, provision.ReasonPVRefused)
			w.deleteClaim()
			n := w.count("create PV")
			w.wait("it is tried again", func() bool { return w.count("create PV") > n+1 })
			if w.settled() || len(w.onDisk()) != 1 || w.count("delete volume") > 0 {
				t.Errorf("volumes %v, in flight %v", w.onDisk(), w.inFlight())
			}
			refuses.Store(false)
			w.wait("it has its PV", w.provisioned)
		})
	}
}

// TestSourceIsGoneInDoubt: the driver checks the source before the volume.
func TestSourceIsGoneInDoubt(t *testing.T) {
	w, events := newWorld(t), &told{}
	w.makeSource()
	w.madeUnseenWith(Config{Events: events}, cloning)
	w.failing(false, func() error {
		return errclass.Mark(errclass.Refused, status.Error(codes.NotFound, "there is no such volume"))
	})
	w.staysInDoubt(events, provision.ReasonSourceGone)
}
