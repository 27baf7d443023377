package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// callTimeout limits a request that the client does not end itself. Its outcome is then read from the API server.
	callTimeout = 15 * time.Second
	// recheckEvery is the interval at which a Lease is read again that is read-only, or holds unreadable entries or
	// chunks.
	recheckEvery = time.Minute
	// leasePause is the delay of a write after the leader election's lease has ended.
	leasePause = time.Second
)

var (
	errSlow    = fmt.Errorf("no answer within %v", callTimeout)
	errNotSent = fmt.Errorf("%w: nothing is written", ErrLeaseEnded)
)

// Run executes the writes of Put and Remove, with one goroutine for each Lease. It returns nil once ctx ends, or an
// error that wraps ErrSuperseded once another process leads. All pending calls fail when it ends. Run is called once,
// after a successful TakeOver.
func (l *Log) Run(ctx context.Context) error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("run the in-flight log: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writers sync.WaitGroup
	for _, s := range l.all {
		writers.Go(func() {
			logger := klog.FromContext(ctx).WithValues("lease", klog.KRef(l.cfg.Namespace, s.name))
			if err := l.serve(klog.NewContext(ctx, logger), s); err != nil {
				l.stop(err)
				cancel(err)
			}
		})
	}
	writers.Wait()
	l.stop(ErrStopped)
	if err := context.Cause(ctx); errors.Is(err, ErrSuperseded) {
		return fmt.Errorf("run the in-flight log: %w", err)
	}
	l.gather(context.WithoutCancel(ctx))
	return nil
}

// stop fails all pending calls, and keeps the first reason.
func (l *Log) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	for _, s := range l.all {
		s.finish(err)
	}
}

// serve is a shard's writer, and returns ErrSuperseded, or nil once ctx has ended.
func (l *Log) serve(ctx context.Context, s *shard) error {
	for ctx.Err() == nil {
		do, wait := l.plan(s)
		l.report(s)
		var err error
		switch do {
		case stepWait:
			l.sleep(ctx, s, wait)
		case stepRead:
			err = l.read(ctx, s)
		case stepCreate:
			err = l.create(ctx, s)
		case stepFence:
			err = l.fence(ctx, s)
		case stepWrite:
			err = l.write(ctx, s)
		}
		l.report(s)
		if errors.Is(err, ErrSuperseded) {
			return err
		}
	}
	return nil
}

func (l *Log) plan(s *shard) (step, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.known && s.seen.err == nil {
		s.conclude() // for removals that need no write
	}
	if s.hasChunks() {
		l.sweep(chunksStay)
	}
	do, wait := next(s.situation(l.own, l.cfg.Clock.Now()))
	if do == stepWait && !l.cfg.Clock.Now().Before(s.retryAt) {
		s.failures, s.lastErr = 0, nil // nothing is left to do
	}
	return do, wait
}

// report calls the followers for each changed entry, without holding the lock.
func (l *Log) report(s *shard) {
	l.mu.Lock()
	changed, follow := s.changed, l.follow
	s.changed = nil
	l.mu.Unlock()
	for _, volume := range changed {
		for _, call := range follow {
			call(volume)
		}
	}
}

func (l *Log) sleep(ctx context.Context, s *shard, wait time.Duration) {
	if wait < 0 {
		select {
		case <-ctx.Done():
		case <-s.wake:
		}
		return
	}
	timer := l.cfg.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.wake:
	case <-timer.C():
	}
}

// call returns the context of a request and its cancel function. The request fails with cause after limit.
func (l *Log) call(ctx context.Context, limit time.Duration, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := l.cfg.Clock.NewTimer(limit)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// get reads a shard of this log. A missing Lease is not an error.
func (l *Log) get(ctx context.Context, name string) (view, error) {
	lease, err := l.fetch(ctx, name)
	if err != nil {
		return view{}, err
	}
	return l.look(lease), nil
}

// fetch reads a Lease from the API server's storage instead of its watch cache. It returns nil for a missing one.
func (l *Log) fetch(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	ctx, end := l.call(ctx, callTimeout, errSlow)
	defer end()
	lease, err := l.leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return lease, nil
	case absent(err, name):
		return nil, nil
	}
	return nil, because(ctx, err)
}

// look parses a shard of this log, nil for none.
func (l *Log) look(lease *coordinationv1.Lease) view {
	v := look(lease, l.cfg.Driver)
	if v.err == nil && !v.missing() && v.meta.shards() != len(l.shards) {
		v.err = fmt.Errorf("%w: its log has %d shards, not %d", ErrForeign, v.meta.shards(), len(l.shards))
	}
	return v
}

// because adds the cause of an ended ctx, and ErrForbidden if the API server denied the request.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	return err
}

// send creates or updates a Lease, limited by the remaining time of the leader election's lease.
func (l *Log) send(ctx context.Context, lease *coordinationv1.Lease) (view, error) {
	limit, cause := callTimeout, errSlow
	if l.cfg.Lease != nil {
		left := l.cfg.Lease.Left()
		if left <= 0 {
			return view{}, errNotSent
		}
		if left < limit {
			limit, cause = left, ErrLeaseEnded
		}
	}
	ctx, end := l.call(ctx, limit, cause)
	defer end()
	var answer *coordinationv1.Lease
	var err error
	if lease.ResourceVersion == "" {
		answer, err = l.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		answer, err = l.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return view{}, because(ctx, err)
	}
	return l.look(answer), nil
}

func (l *Log) read(ctx context.Context, s *shard) error {
	l.mu.Lock()
	s.ask(true)
	l.mu.Unlock()
	v, err := l.getWhole(ctx, s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		s.ask(false)
		l.failed(ctx, s, "Reading a Lease of the in-flight log failed; trying again", err)
		return nil
	}
	l.readKept(ctx, s, v) // before an operator's settlement of such an entry counts
	return l.observe(ctx, s, v)
}

func (l *Log) create(ctx context.Context, s *shard) error {
	klog.FromContext(ctx).Info("A Lease of the in-flight log does not exist; creating it")
	l.findOwner(ctx)
	v, err := l.send(ctx, l.emptyShard(s.name))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.writeFailed(ctx, s, nil, err)
		return nil
	}
	return l.observe(ctx, s, v)
}

// fence reads the other Leases before the first write to a Lease that was deleted and created anew, or that is created
// for the first chunks: its resourceVersion does not prove that no other process has taken over. A log of one shard may
// have no other Leases. Then the first process to write the new Lease wins, and the others see its epoch.
func (l *Log) fence(ctx context.Context, s *shard) error {
	for _, other := range l.all {
		if other == s {
			continue
		}
		v, err := l.get(ctx, other.name)
		l.mu.Lock()
		if err != nil {
			l.failed(ctx, s, "Reading another Lease of the in-flight log failed; trying again", err)
			l.mu.Unlock()
			return nil
		}
		gone := superseded(v, l.own, other.seen.uid() == v.uid())
		l.mu.Unlock()
		if gone {
			return supersededBy(v, other.name, l.own)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.fenced = true
	return nil
}

// write stores the wanted content of this moment, in one PUT unless the old Lease changes.
func (l *Log) write(ctx context.Context, s *shard) error {
	l.mu.Lock()
	s.fit(l.own)
	lease, seen, moving := s.compose(l.own), s.seen, s.moving(l.cfg.Clock.Now())
	s.removeAt = time.Time{}
	l.mu.Unlock()
	content := view{lease: lease}.content()

	old, err := l.writeOld(ctx, s, seen, lease, moving)
	if err != nil && len(moving) > 0 {
		if l.stay(ctx, s, err); judge(err) == outcomeRefused {
			return nil // the write without them is not refused
		}
	}
	var v view
	if err == nil {
		lease = youngOf(lease, old)
		l.setOwner(lease)
		v, err = l.send(ctx, lease)
	}
	disowned := l.disown(ctx, lease, err)

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case disowned:
		return nil
	case err != nil:
		l.writeFailed(ctx, s, content, err)
		s.known = s.known && old == seen.old
		return nil
	}
	s.failures, s.lastErr = 0, nil
	return l.observe(ctx, s, v.join(old))
}

// writeFailed records a failed write of this content, nil for a create, for callers that hold the lock.
func (l *Log) writeFailed(ctx context.Context, s *shard, content map[string]string, err error) {
	l.failed(ctx, s, "Writing a Lease of the in-flight log failed; trying again", err)
	switch {
	case errors.Is(err, errNotSent):
		s.refuse(nil, err)
		s.retryAt = l.cfg.Clock.Now().Add(leasePause)
	case judge(err) == outcomeRefused:
		s.refuse(content, err)
	default:
		s.sent(content)
		s.known = false
	}
	s.answer(change{}) // of Puts that ended
}

// failed records an error and sets the time of the next try, for callers that hold the lock.
func (l *Log) failed(ctx context.Context, s *shard, message string, err error) {
	s.failures++
	s.lastErr = err
	delay := backoff(s.failures, err, rand.Float64())
	s.retryAt = l.cfg.Clock.Now().Add(delay)
	switch logger := klog.FromContext(ctx); {
	case ctx.Err() != nil:
	case judge(err) == outcomeConflict:
		logger.V(4).Info(message, "after", delay, "err", err)
	default:
		logger.Error(err, message, "after", delay)
	}
}

// observe records an observed Lease and logs the changes by others, for callers that hold the lock.
func (l *Log) observe(ctx context.Context, s *shard, v view) error {
	s.recheckAt = l.cfg.Clock.Now().Add(recheckEvery)
	others, err := s.observe(v, l.own)
	l.logChange(ctx, others)
	return err
}

func (l *Log) logChange(ctx context.Context, others change) {
	logger := klog.FromContext(ctx)
	for _, key := range others.settled {
		logger.Info("An operator settled an entry of the in-flight log; it is removed", "annotation", key)
	}
	for _, key := range others.ignored {
		logger.Info("Ignored and removed an annotation that settles no stored entry of the in-flight log", "annotation", key)
	}
	for _, key := range others.appeared {
		logger.Info("Another program added an entry to the in-flight log; it is read after the next start", "annotation", key)
	}
}

// owning is the change that a write makes to the owner of a shard, or of the Lease with the chunks.
type owning uint8

const (
	ownLeave owning = iota // unchanged
	ownNone                // the Lease holds entries or chunks, which garbage collection must not remove
	ownSet                 // the Lease is empty, and is deleted with its owner
)

// ownerOf is a pure function that decides the owner of a Lease with this number of entries or chunks. managed means
// that the log has one shard and a Config.Owner, and known that the owner is known.
func ownerOf(managed bool, content int, known bool) owning {
	switch {
	case !managed:
		return ownLeave
	case content > 0:
		return ownNone
	case known:
		return ownSet
	}
	return ownLeave
}

// setOwner sets the owner of a Lease that is about to be updated. A Lease is created without an owner, because an API
// server that lets a process create a Lease with an owner may still refuse to let it remove the owner.
func (l *Log) setOwner(lease *coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	managed := l.cfg.Owner != nil && len(l.shards) == 1
	switch ownerOf(managed, len(view{lease: lease}.content()), l.owner != nil) {
	case ownNone:
		lease.OwnerReferences = nil
	case ownSet:
		lease.OwnerReferences = []metav1.OwnerReference{*l.owner}
	default:
	}
}

func (l *Log) findOwner(ctx context.Context) {
	if l.cfg.Owner == nil {
		return
	}
	ctx, end := l.call(ctx, callTimeout, errSlow)
	defer end()
	owner := l.cfg.Owner(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = owner
}

// disown reports whether an update with an owner was refused and may be sent again without one. The admission plugin
// OwnerReferencesPermissionEnforcement requires the permission to delete the Lease.
func (l *Log) disown(ctx context.Context, lease *coordinationv1.Lease, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !errors.Is(err, ErrForbidden) || l.owner == nil || len(lease.OwnerReferences) == 0 {
		return false
	}
	l.owner = nil
	klog.FromContext(ctx).Info("The Lease of the in-flight log may not have an owner, so it stays when that is deleted",
		"lease", klog.KObj(lease), "err", err)
	return true
}
