package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
)

// taking is the action of a take-over on a shard.
type taking uint8

const (
	takeCreate taking = iota // it is missing
	takeWrite                // its epoch is not ours
	takeSkip                 // it is missing and stays so
	takeLeave                // it is read-only
	takeDone
)

func take(v view, own meta, create bool) taking {
	switch {
	case v.missing() && create:
		return takeCreate
	case v.missing():
		return takeSkip
	case v.err != nil:
		return takeLeave
	case v.meta.ledBy(own):
		return takeDone
	}
	return takeWrite
}

// TakeOver reads all shards, and the Lease with their chunks, and writes this process' epoch into each by
// compare-and-swap before it returns. The epoch is higher than all stored ones, so no write of an earlier process lands
// from then on. If Config.CreateMissing is set, TakeOver creates the missing shards. It does not write to a read-only
// shard; see Problems.
//
// It tries again, with growing delays, until ctx ends. It returns immediately with an error that wraps ErrForbidden if
// the Leases may not be read or written, or ErrLeaseEnded. Two processes that take over at the same moment both go on
// until one epoch is the higher one in all shards; Config.Lease ends the process that does not lead.
func (l *Log) TakeOver(ctx context.Context) error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if !errors.Is(err, ErrNotReady) {
		return errors.New("take the in-flight log over: it was done before")
	}
	l.findOwner(ctx)
	t := newTakeOver(l)
	// A write of an earlier, failed call of TakeOver may still land, and must not be taken for a write of this call.
	t.own.Process = string(uuid.NewUUID())
	for failures := 1; ; failures++ {
		done, err := t.pass(ctx)
		if done {
			err = t.takeOld(ctx)
			done = err == nil
		}
		switch {
		case done:
			l.begin(ctx, &t)
			return nil
		case errors.Is(err, ErrForbidden), errors.Is(err, ErrLeaseEnded):
			return fmt.Errorf("take the in-flight log over: %w", err)
		case err == nil:
			failures = 0
			continue // a higher epoch was seen, or missing shards are read once more
		}
		delay := backoff(failures, err, rand.Float64())
		klog.FromContext(ctx).Info("Taking the in-flight log over failed; trying again", "after", delay, "err", err)
		if !controller.Pause(ctx, l.cfg.Clock, delay) {
			return fmt.Errorf("take the in-flight log over: %w; last error: %w", context.Cause(ctx), err)
		}
	}
}

// takeOver is the state of one take-over.
type takeOver struct {
	log    *Log
	create bool
	own    meta
	sized  bool // the number of shards is known
	views  []view
	known  []bool // by index of views: the view is current
	olds   []view // by index of views: the old Leases that count
}

func newTakeOver(l *Log) takeOver {
	t := takeOver{log: l, create: l.cfg.CreateMissing, own: l.own, sized: l.cfg.Shards == Shards}
	t.resize()
	return t
}

func (t *takeOver) resize() {
	n := len(t.log.all)
	t.own.Shards, t.views, t.known, t.olds = t.log.own.Shards, make([]view, n), make([]bool, n), make([]view, n)
}

// size takes the number of shards from the first shard of an existing log, because that number decides the shard of an
// entry.
func (t *takeOver) size(ctx context.Context) error {
	lease, err := t.log.fetch(ctx, t.log.shards[0].name)
	if err != nil {
		return fmt.Errorf("read Lease %s: %w", t.log.shards[0].name, err)
	}
	v := look(lease, t.log.cfg.Driver)
	if v.err == nil && !v.missing() && v.meta.shards() != len(t.log.shards) {
		t.log.mu.Lock()
		t.log.resize(v.meta.shards())
		t.log.mu.Unlock()
		t.resize()
	}
	t.views[0], t.known[0], t.sized = v, true, true
	return nil
}

// pass reads the unknown shards, chooses the epoch and writes it to every shard without it, and reports whether all is
// done.
func (t *takeOver) pass(ctx context.Context) (bool, error) {
	if !t.sized {
		if err := t.size(ctx); err != nil {
			return false, err
		}
	}
	if err := t.each(func(i int, name string) error {
		if t.known[i] {
			return nil
		}
		v, err := t.log.get(ctx, name)
		if err != nil {
			return fmt.Errorf("read Lease %s: %w", name, err)
		}
		t.views[i], t.known[i] = v, true
		return nil
	}); err != nil {
		return false, err
	}
	t.own.Epoch = chooseEpoch(slices.Concat(t.views, t.olds), t.own)
	wrote := make([]bool, len(t.views))
	if err := t.each(func(i int, name string) error {
		var err error
		wrote[i], err = t.write(ctx, i, name)
		return err
	}); err != nil {
		return false, err
	}
	if !slices.Contains(wrote, true) {
		return true, nil
	}
	again := false
	for i := range t.views {
		if t.taking(i) == takeSkip {
			// An earlier leader may have created it while we wrote to the others. A process that creates it from now on first
			// reads the others, and finds our epoch.
			t.known[i], again = false, true
		}
	}
	return !again, nil
}

// taking returns the action on a Lease. The last Lease holds the chunks and is created with the first chunk.
func (t *takeOver) taking(i int) taking {
	return take(t.views[i], t.own, t.create && i < len(t.log.shards))
}

// each calls do for all Leases concurrently and returns one of the errors.
func (t *takeOver) each(do func(i int, name string) error) error {
	leases := t.log.all
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i, s := range leases {
		all.Go(func() { errs[i] = do(i, s.name) })
	}
	all.Wait()
	var first error
	for _, err := range errs {
		if errors.Is(err, ErrForbidden) || errors.Is(err, ErrLeaseEnded) {
			return err // retrying is useless
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// write creates a Lease or writes the epoch to it, and reports whether it sent a request.
func (t *takeOver) write(ctx context.Context, i int, name string) (bool, error) {
	wrote := false
	for range 4 { // create, write, write without an owner, done
		lease := t.log.emptyShard(name)
		switch t.taking(i) {
		case takeCreate:
			t.log.reportForgotten(ctx, name)
		case takeWrite:
			own := t.own
			own.Version = t.views[i].meta.Version
			lease = compose(t.views[i], own, nil, func(string) bool { return true })
			t.log.setOwner(lease)
		default:
			return wrote, nil
		}
		v, err := t.log.send(ctx, lease)
		wrote = true
		if err != nil && t.log.disown(ctx, lease, err) {
			continue
		}
		if err != nil {
			t.known[i] = false
			return wrote, fmt.Errorf("write Lease %s: %w", lease.Name, err)
		}
		t.views[i] = v
	}
	t.known[i] = false
	return wrote, fmt.Errorf("write Lease %s: the responses do not confirm the write", name)
}

// AwaitIdle waits until this process has observed no write of the log for the duration idle, or returns the cause of
// ctx. A process that was superseded calls it before it competes for the log again. A failed read proves no rest.
func (l *Log) AwaitIdle(ctx context.Context, idle time.Duration) error {
	var before []string
	for since := l.cfg.Clock.Now(); ; {
		versions, err := l.versions(ctx)
		now := l.cfg.Clock.Now()
		if err != nil || !slices.Equal(versions, before) {
			before, since = versions, now
		}
		if now.Sub(since) >= idle {
			return nil
		}
		if !controller.Pause(ctx, l.cfg.Clock, idle/4) {
			return context.Cause(ctx)
		}
	}
}

// versions returns the UIDs and resourceVersions of the log's Leases.
func (l *Log) versions(ctx context.Context) (versions []string, _ error) {
	l.mu.Lock()
	leases := l.all
	l.mu.Unlock()
	for _, s := range leases {
		lease, err := l.fetch(ctx, s.name)
		if err != nil {
			return nil, fmt.Errorf("read Lease %s: %w", s.name, err)
		}
		v := view{lease: lease}
		versions = append(versions, string(v.uid())+"/"+v.version())
	}
	return versions, nil
}

// lastWrite returns the time of our last write on the API server's clock, from the managers' last write times in
// managedFields. It is zero if one of the Leases does not show the time.
func (t *takeOver) lastWrite() (last time.Time) {
	for _, v := range t.views {
		if v.missing() || v.err != nil {
			continue
		}
		of := time.Time{}
		for _, m := range v.lease.ManagedFields {
			if m.Time != nil && m.Time.After(of) {
				of = m.Time.Time
			}
		}
		if of.IsZero() {
			return of
		}
		if of.After(last) {
			last = of
		}
	}
	return last
}

// begin takes over the content of the shards.
func (l *Log) begin(ctx context.Context, t *takeOver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own, l.takenOver = t.own, t.lastWrite()
	for i, s := range l.all {
		v := t.views[i].join(t.olds[i].lease)
		s.seen, s.known = v, true
		s.taken = v.err == nil
		s.recheckAt = l.cfg.Clock.Now().Add(recheckEvery)
		if v.missing() || v.err != nil {
			continue
		}
		problems := v.read(s.number, l.codec, t.views[len(l.shards)], nil, func(key string, e coded) {
			s.want[key] = storedItem(e)
			for hash, value := range e.refers {
				l.topology.want[chunkPrefix+hash] = storedItem(coded{value: value})
			}
		})
		for _, p := range problems {
			s.kept[p.Annotation] = p.Err
		}
		l.logChange(ctx, s.takeIn(v))
	}
	l.err = nil
	klog.FromContext(ctx).Info("Took the in-flight log over", "epoch", l.own.Epoch, "shards",
		klog.KRef(l.cfg.Namespace, l.cfg.Name))
}

// readKept takes over the entries that could not be read at the take-over for lack of a chunk, and can be read from the
// read Lease because another entry has stored the chunk again, for callers that hold the lock. An unreadable entry has
// blocked its volume since, so it is unchanged since the take-over. Entries that another program added or changed are
// not trusted.
func (l *Log) readKept(ctx context.Context, s *shard, v view) {
	if v.err != nil {
		return
	}
	before, now := s.seen.entries(), v.entries()
	for key, cause := range s.kept {
		value, there := now[key]
		switch {
		case !there || errors.Is(cause, ErrAppeared):
			continue
		case value != before[key]:
			s.kept[key] = ErrAppeared
			continue
		}
		one, err := v.decode(key, s.number, l.codec, l.topology.seen, nil)
		if err != nil || !l.topology.hasStored(one.refers) {
			continue
		}
		delete(s.kept, key)
		s.want[key] = storedItem(one)
		s.changed = append(s.changed, one.entry.Volume)
		klog.FromContext(ctx).Info("An entry of the in-flight log can be read again", "annotation", key)
	}
}
