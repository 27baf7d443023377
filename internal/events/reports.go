package events

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Pace bounds the frequency of reports on one object. The zero value reports each change at once, and repeats nothing.
type Pace struct {
	// Change is the shortest time between two reports that follow a change of reason or detail.
	Change time.Duration
	// Repeat is the time after which an unchanged report is repeated, 0 for never. An Event is kept for an hour by
	// default.
	Repeat time.Duration
}

// lastReports holds the last report on each object, by its UID, where R is the reason. It is empty and ready with a
// clock, and safe for concurrent use.
type lastReports[R ~string] struct {
	pace  Pace
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[types.UID]reported[R]
}

// reported is the last report on one object.
type reported[R ~string] struct {
	// reason is why it waits now, and detail distinguishes two reports with the same reason.
	reason R
	detail string
	waits  bool
	// unreported is true if the reason was counted and not reported.
	unreported bool
	// aside is the additional reason, which stays true for any reason.
	aside R
	// at is the time of the report, and changed the time of the last report that followed a change, zero for never.
	at, changed time.Time
	// since is when the reason began, and turned when it last took the place of other, which began at otherSince.
	since, turned, otherSince time.Time
	other                     R
}

// brief is how long another reason may interrupt one that lasts, about twice the longest interval of tries. A call that
// hangs, for example, fails and is in progress in turn.
const brief = 10 * time.Minute

// after sets when the reason of r began, which follows another report on the object.
func (r *reported[R]) after(before reported[R], now time.Time) {
	r.since, r.turned, r.other, r.otherSince = before.since, before.turned, before.other, before.otherSince
	if r.reason == before.reason {
		return
	}
	r.since, r.turned, r.other, r.otherSince = now, now, before.reason, before.since
	if r.waits && before.waits && r.reason == before.other && now.Sub(before.turned) <= brief {
		r.since = before.otherSince
	}
}

// news reports whether a report is due, with differs telling whether it differs from the last one. changed and at are
// the times of the last change and of the last report.
func (p Pace) news(differs bool, changed, at, now time.Time) bool {
	if differs {
		return changed.IsZero() || now.Sub(changed) >= p.Change
	}
	return p.Repeat > 0 && now.Sub(at) >= p.Repeat
}

// Now sets the reason why nothing is done for an object. It reports whether the reason is news, and whether it was
// reported before, with another detail or some time ago. With waits, the object counts as waiting.
func (b *lastReports[R]) Now(uid types.UID, reason R, detail string, waits bool) (news, again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, now := b.last[uid], b.clock.Now()
	after := reported[R]{reason: reason, detail: detail, waits: waits, aside: before.aside}
	after.after(before, now)
	again = before.reason == reason && !before.unreported
	differs := !again || before.detail != detail
	if news = b.pace.news(differs, before.changed, before.at, now); news {
		after.at, after.changed = now, before.changed
		if differs && before.reason != "" {
			after.changed = now
		}
	} else {
		after = before // a change that is not reported stays a change
	}
	if !waits && before.aside == "" {
		// Most objects need nothing, and cost no memory here.
		delete(b.last, uid)
	} else {
		b.put(uid, after)
	}
	return news, again
}

// Count makes the object count as waiting for a reason. Only a report of the reason is news.
func (b *lastReports[R]) Count(uid types.UID, reason R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.last[uid]; before.reason != reason {
		now := reported[R]{reason: reason, waits: true, unreported: true, aside: before.aside, at: before.at,
			changed: before.changed}
		now.after(before, b.clock.Now())
		b.put(uid, now)
	}
}

// Aside sets an additional reason, and reports whether it is news.
func (b *lastReports[R]) Aside(uid types.UID, reason R) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.last[uid]
	after := before
	after.aside = reason
	b.put(uid, after)
	return before.aside != reason
}

func (b *lastReports[R]) put(uid types.UID, now reported[R]) {
	if b.last == nil {
		b.last = map[types.UID]reported[R]{}
	}
	b.last[uid] = now
}

// Forget drops the reports on an object that is gone.
func (b *lastReports[R]) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, uid)
}

// waiting describes the objects that wait for one reason.
type waiting struct {
	objects int
	// longest is the time for which one of them has waited for the reason.
	longest time.Duration
}

// Waiting returns the waiting objects by reason.
func (b *lastReports[R]) Waiting() map[R]waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, now := map[R]waiting{}, b.clock.Now()
	for _, last := range b.last {
		if last.waits {
			of := all[last.reason]
			all[last.reason] = waiting{of.objects + 1, max(of.longest, now.Sub(last.since))}
		}
	}
	return all
}

// Discard is an EventRecorder that records nothing, and is safe for concurrent use.
type Discard struct{}

// Event records nothing.
func (Discard) Event(runtime.Object, string, string, string) {}

// Eventf records nothing.
func (Discard) Eventf(runtime.Object, string, string, string, ...any) {}

// AnnotatedEventf records nothing.
func (Discard) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}
