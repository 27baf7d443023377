package events

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Board has what was reported last about each object, by its UID. R is the reason. The zero value is
// empty and ready, and it is safe for concurrent use.
type Board[R ~string] struct {
	mu   sync.Mutex
	last map[types.UID]reported[R]
}

// reported is what was reported last about one object.
type reported[R ~string] struct {
	// reason is why it waits now. detail distinguishes two reports of one reason.
	reason R
	detail string
	waits  bool
	// aside was reported besides, and stays true whatever the reason.
	aside R
}

// Now sets why nothing is done about an object, and reports whether that is news. waits: the object
// counts as waiting.
func (b *Board[R]) Now(uid types.UID, reason R, detail string, waits bool) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.last[uid]
	if !waits && before.aside == "" {
		// Most objects are at rest: they cost no memory here.
		delete(b.last, uid)
	} else {
		b.put(uid, reported[R]{reason: reason, detail: detail, waits: waits, aside: before.aside})
	}
	return before.reason != reason || before.detail != detail
}

// Aside sets what is true besides the reason, and reports whether that is news.
func (b *Board[R]) Aside(uid types.UID, reason R) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.last[uid]
	after := before
	after.aside = reason
	b.put(uid, after)
	return before.aside != reason
}

func (b *Board[R]) put(uid types.UID, now reported[R]) {
	if b.last == nil {
		b.last = map[types.UID]reported[R]{}
	}
	b.last[uid] = now
}

// Forget ends what is known of an object that is gone.
func (b *Board[R]) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, uid)
}

// Waiting counts the objects that wait, by reason.
func (b *Board[R]) Waiting() map[R]int {
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

// NoEvents is the recorder of whoever was given none.
type NoEvents struct{}

// Event records nothing.
func (NoEvents) Event(runtime.Object, string, string, string) {}

// Eventf records nothing.
func (NoEvents) Eventf(runtime.Object, string, string, string, ...any) {}

// AnnotatedEventf records nothing.
func (NoEvents) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}
