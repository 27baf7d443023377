package reclaim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// braked returns a Controller whose brake allows one deletion, and the names that it enqueues.
func braked(t *testing.T, cfg Config) (*world, *Controller, *[]string) {
	t.Helper()
	cfg.Brake = BrakeConfig{Deletions: 1, Lease: types.NamespacedName{Namespace: "ns", Name: "lease"}}
	w, r := newWorldWith(t, cfg)
	woken := []string{}
	r.enqueue = func(pv string) { woken = append(woken, pv) }
	return w, r, &woken
}

// tooMany makes a second volume deletable.
func tooMany(w *world, r *Controller) {
	other := sibling()
	other.Handle = "vol-2"
	w.store(r, other)
}

// syncs reads the brake's Lease, which must succeed.
func syncs(t *testing.T, r *Controller) {
	t.Helper()
	must.OK(t, r.syncBrake(t.Context()))
}

// An unreadable Lease does not end a pause: only a person does.
func TestUnreadableBrakeLeaseKeepsPause(t *testing.T) {
	w, r, _ := braked(t, Config{})
	w.brakeOn = true
	syncs(t, r)
	w.brakeOn, w.fail["read brake"] = false, errors.New("no answer")
	if err := r.syncBrake(t.Context()); err == nil || r.brakeState() != reclaim.BrakeOn {
		t.Errorf("the brake is %v: %v", r.brakeState(), err)
	}
}

// The Lease is written once when deletions pause, with retries until the write succeeds. A dry run does not write it.
func TestBrakeWritesLeaseOnce(t *testing.T) {
	w, r, woken := braked(t, Config{})
	syncs(t, r)
	w.expect(t, "read brake")
	if !slices.Contains(*woken, "pv") {
		t.Errorf("the brake is known to be off: woken %v", *woken)
	}
	*woken = nil
	syncs(t, r)
	if w.expect(t, "read brake", "read brake"); len(*woken) > 0 {
		t.Errorf("nothing changes: woken %v", *woken)
	}
	tooMany(w, r)
	w.diary, *woken = nil, nil
	w.fail["pull brake"] = errors.New("no answer")
	if err := r.syncBrake(t.Context()); err == nil {
		t.Error("a write that failed is no error")
	}
	delete(w.fail, "pull brake")
	syncs(t, r)
	if w.expect(t, "read brake", "pull brake", "read brake", "pull brake"); !slices.Contains(*woken, "pv") {
		t.Errorf("deletions pause: woken %v", *woken)
	}
	syncs(t, r)
	if w.expect(t, "read brake", "pull brake", "read brake", "pull brake", "read brake"); !w.brakeOn {
		t.Error("the Lease says nothing")
	}

	w, r, _ = braked(t, Config{DryRun: true})
	syncs(t, r)
	tooMany(w, r)
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	if err := errors.Join(r.syncBrake(ctx), r.syncBrake(ctx)); err != nil {
		t.Error(err)
	}
	if w.expect(t, "read brake", "read brake", "read brake"); r.brakeState() != reclaim.BrakeOn {
		t.Errorf("in a dry run the brake is %v", r.brakeState())
	}
	if n := strings.Count(log.String(), "Deletions would be paused"); n != 1 {
		t.Errorf("in a dry run reported %d times:\n%s", n, log.String())
	}
}

// A Lease that is deleted or made anew is no person's release, so it gets the annotation again.
func TestBrakeStaysOnWithoutItsLease(t *testing.T) {
	for name, anew := range map[string]bool{"absent": false, "made anew by the election": true} {
		w, r, woken := braked(t, Config{})
		w.brakeOn = true
		syncs(t, r)
		w.deleteLease()
		w.noLease = !anew
		w.diary, w.fail["pull brake"] = nil, errors.New("no answer")
		if err := r.syncBrake(t.Context()); err == nil || r.brakeState() != reclaim.BrakeOn {
			t.Errorf("%s: %v, brake %v", name, err, r.brakeState())
		}
		delete(w.fail, "pull brake")
		syncs(t, r)
		if w.expect(t, "read brake", "pull brake", "read brake", "pull brake"); r.brakeState() != reclaim.BrakeOn {
			t.Errorf("%s: the brake is %v", name, r.brakeState())
		}
		*woken, w.brakeOn = nil, false
		syncs(t, r)
		if r.brakeState() != reclaim.BrakeOff || !slices.Contains(*woken, "pv") {
			t.Errorf("%s: a person resumed: brake %v, woken %v", name, r.brakeState(), *woken)
		}
	}
}

// A person cannot annotate a Lease that does not exist. A failure to create it pauses no deletion.
func TestAbsentBrakeLeaseIsCreated(t *testing.T) {
	w, r, woken := braked(t, Config{})
	w.noLease, w.fail["create brake"] = true, errors.New("no answer")
	if err := r.syncBrake(t.Context()); err == nil || r.brakeState() != reclaim.BrakeOff ||
		!slices.Contains(*woken, "pv") {
		t.Errorf("%v, brake %v, woken %v", err, r.brakeState(), *woken)
	}
	delete(w.fail, "create brake")
	syncs(t, r)
	syncs(t, r)
	w.expect(t, "read brake", "create brake", "read brake", "create brake", "read brake")

	w, r, _ = braked(t, Config{DryRun: true})
	w.noLease = true
	syncs(t, r)
	w.expect(t, "read brake")
}

// A Lease that cannot be created does not hide that it cannot be read any more.
func TestEachFailedCallOfBrakeIsLoggedOnce(t *testing.T) {
	w, r, _ := braked(t, Config{})
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	w.noLease, w.fail["create brake"] = true, errors.New("create Lease: forbidden")
	failed := ""
	for _, c := range []struct {
		read  error
		lines int
	}{
		{nil, 1}, {nil, 1}, {errors.New("read Lease: one port"), 2}, {errors.New("read Lease: another port"), 2}, {nil, 3},
	} {
		w.fail["read brake"] = c.read
		failed = r.logBrake(ctx, r.syncBrake(ctx), failed)
		if lines := strings.Count(log.String(), "Failed to read or write the Lease"); lines != c.lines {
			t.Errorf("%d lines, want %d:\n%s", lines, c.lines, log.String())
		}
	}
}

// A replica whose own Lease ends while it reads the brake's does not write to it.
func TestBrakeNotWrittenAfterLeaseExpiry(t *testing.T) {
	term := held()
	w, r, _ := braked(t, Config{Lease: term})
	syncs(t, r)
	tooMany(w, r)
	w.diary = nil
	w.before = func(string) { term.set(0) }
	if err := r.syncBrake(t.Context()); !errors.Is(err, leadership.ErrExpired) {
		t.Errorf("got %v", err)
	}
	w.expect(t, "read brake")
}

func TestBrakeStopsSession(t *testing.T) {
	w, r, _ := braked(t, Config{})
	syncs(t, r)
	w.diary = nil
	w.at("read pv", func() { // right before DeleteVolume
		tooMany(w, r)
	})
	r.reconcile(t.Context(), "pv")
	w.expect(t, "read claim", "read pv")
	w.diary, w.before = nil, nil
	syncs(t, r)
	r.reconcile(t.Context(), "pv")
	w.expect(t, "read brake", "pull brake")
	w.brakeOn = false
	syncs(t, r)
	r.reconcile(t.Context(), "pv")
	if !slices.Contains(w.diary, "delete volume") {
		t.Errorf("does not go on: %q", w.diary)
	}
}

// Workers that wait for a slow driver must not delay the read of an operator's brake.
func TestBrakeReadWhileQueueIsFull(t *testing.T) {
	w, r, _ := braked(t, Config{})
	r.enqueue = r.reclaiming.Add
	for i := range 5000 {
		r.reclaiming.Add(fmt.Sprint("waiting-", i)) // and no worker is free
	}
	w.brakeOn = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(r.syncBrake(ctx), ctx.Err()); err != nil || r.brakeState() != reclaim.BrakeOn {
		t.Errorf("the brake is %v: %v", r.brakeState(), err)
	}
}

// onNode returns the Config of a process of one node.
func onNode() Config {
	return Config{Node: &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}}
}

// brakedOnNode returns braked for a process of one node, to which the PV belongs.
func brakedOnNode(t *testing.T) (*world, *Controller) {
	w, r, _ := braked(t, onNode())
	w.nodes, w.pv.Reach = []string{"n1"}, volume.ReachHere
	w.store(r, w.pv)
	return w, r
}

// readsIn returns how often watchBrake reads the Lease in this time.
func readsIn(t *testing.T, cfg Config, idle time.Duration, on bool, fails error) (reads int) {
	synctest.Test(t, func(t *testing.T) {
		w, r, _ := braked(t, cfg)
		defer r.Stop()
		r.cfg.Clock, w.brakeOn, w.fail["read brake"] = clock.RealClock{}, on, fails
		ctx, cancel := context.WithTimeout(t.Context(), idle)
		defer cancel()
		r.watchBrake(ctx)
		reads = len(w.diary)
	})
	return reads
}

// All nodes share one Lease, so the reads of idle nodes are few, also while they fail.
func TestIdleReadsOfBrake(t *testing.T) {
	const idle = 100 * time.Minute
	failure := errors.New("no answer")
	for name, c := range map[string]struct {
		cfg         Config
		on          bool
		fails       error
		least, most int
	}{
		"one process":             {Config{}, false, nil, 1200, 1201},
		"one process, no answer":  {Config{}, false, failure, 1200, 1201},
		"one of nodes":            {onNode(), false, nil, 26, 51},
		"one of nodes, stopped":   {onNode(), true, nil, 100, 201},
		"one of nodes, no answer": {onNode(), false, failure, 26, 56},
	} {
		if got := readsIn(t, c.cfg, idle, c.on, c.fails); got < c.least || got > c.most {
			t.Errorf("%s: %d reads in %v, want %d to %d", name, got, idle, c.least, c.most)
		}
	}
}

// A process of one node reads the Lease before each deletion, and deletes nothing while the brake is on or unread.
func TestBrakeIsReadBeforeDeletionOnNode(t *testing.T) {
	w, r := brakedOnNode(t)
	syncs(t, r)
	w.diary, w.brakeOn = nil, true // by a person or another node
	r.reconcile(t.Context(), "pv")
	if w.expect(t, "read brake", "list nodes"); r.brakeState() != reclaim.BrakeOn {
		t.Errorf("the brake is %v", r.brakeState())
	}
	r.reconcile(t.Context(), "pv")
	w.expect(t, "read brake", "list nodes")

	w.brakeOn = false
	syncs(t, r)
	w.diary, w.fail["read brake"] = nil, errors.New("no answer")
	r.reconcile(t.Context(), "pv")
	w.expect(t, "read brake")

	w.diary = nil
	delete(w.fail, "read brake")
	r.reconcile(t.Context(), "pv")
	w.expect(t, append([]string{"read brake", "list nodes"}, reclaims()...)...)
}

// The read before a deletion counts like any other: an annotation that is not added yet is no release, and is added.
func TestBrakeReadBeforeDeletionIsNoRelease(t *testing.T) {
	w, r := brakedOnNode(t)
	syncs(t, r)
	tooMany(w, r)
	<-r.tripped
	if err := r.checkBrake(t.Context()); err != nil || r.brakeState() != reclaim.BrakeOn {
		t.Errorf("the brake is %v: %v", r.brakeState(), err)
	}
	select {
	case <-r.tripped:
	default:
		t.Error("the annotation is not added")
	}
}

// A worker shares the read of another only if that read began after the worker asked, and no read overlaps a write.
func TestReadsOfBrakeAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := brakedOnNode(t)
		defer r.Stop()
		r.cfg.Clock = clock.RealClock{}
		var reads atomic.Int32
		w.at("read brake", func() {
			reads.Add(1)
			time.Sleep(time.Second) // the API server is slow
		})
		for range 100 {
			go func() { _ = r.checkBrake(t.Context()) }()
		}
		synctest.Wait()
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads at once", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		w.expect(t, "read brake", "read brake")
	})
}
