package events

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Pace bounds how often one object is reported. The zero value reports each change at once, and repeats nothing.
type Pace struct {
	// Change is the least time between two reports that follow a change of reason or detail.
	Change time.Duration
	// Repeat is when a report is repeated that has not changed, 0 for never. An Event is kept for an hour by default.
	Repeat time.Duration
}

// lastReports has what was reported last about each object, by its UID. R is the reason. The zero value is
// empty and ready, and it is safe for concurrent use.
type lastReports[R ~string] struct {
	// clock is asked only where pace is not the zero value.
	pace  Pace
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[types.UID]reported[R]
}

// reported is what was reported last about one object.
type reported[R ~string] struct {
	// reason is why it waits now. detail distinguishes two reports of one reason.
	reason R
	detail string
	waits  bool
	// aside was reported besides, and stays true for any reason.
	aside R
	// at is when it was reported, and changed when that followed a change, zero for never.
	at, changed time.Time
}

// news reports whether something is reported now: what differs from the last report or does not, with the times of
// the last change and of the last report.
func (p Pace) news(differs bool, changed, at, now time.Time) bool {
	if differs {
		return changed.IsZero() || now.Sub(changed) >= p.Change
	}
	return p.Repeat > 0 && now.Sub(at) >= p.Repeat
}

// Now sets why nothing is done about an object, and reports whether that is news. waits: the object
// counts as waiting.
func (b *lastReports[R]) Now(uid types.UID, reason R, detail string, waits bool) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, now := b.last[uid], b.now()
	after := reported[R]{reason: reason, detail: detail, waits: waits, aside: before.aside}
	differs := before.reason != reason || before.detail != detail
	if news = b.pace.news(differs, before.changed, before.at, now); news {
		after.at, after.changed = now, before.changed
		if differs && before.reason != "" {
			after.changed = now
		}
	} else {
		after = before // a change that is not reported stays one
	}
	if !waits && before.aside == "" {
		// Most objects need nothing: they cost no memory here.
		delete(b.last, uid)
	} else {
		b.put(uid, after)
	}
	return news
}

// now returns the time, zero where none is needed.
func (b *lastReports[R]) now() time.Time {
	if b.pace == (Pace{}) {
		return time.Time{}
	}
	return b.clock.Now()
}

// Aside sets what is true besides the reason, and reports whether that is news.
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

// Forget ends what is known of an object that is gone.
func (b *lastReports[R]) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, uid)
}

// Waiting counts the objects that wait, by reason.
func (b *lastReports[R]) Waiting() map[R]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := map[R]int{}
	for _, last := range b.last {
		if last.waits {
			count[last.reason]++
		}
	}
	return count
}

// Discard is an EventRecorder that records nothing. It is safe for concurrent use.
type Discard struct{}

// Event records nothing.
func (Discard) Event(runtime.Object, string, string, string) {}

// Eventf records nothing.
func (Discard) Eventf(runtime.Object, string, string, string, ...any) {}

// AnnotatedEventf records nothing.
func (Discard) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}
