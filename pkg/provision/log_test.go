package provision

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// processLog is one process' view of the in-flight log, whose content is in the world. Package inflight tests the
// Leases that store it.
type processLog struct {
	*process
	// read means that TakeOver has ended.
	read      bool
	epoch     int64
	takenOver time.Time

	lock      sync.Mutex
	removing  map[string]bool
	followers []func(string)
	removals  sync.WaitGroup
	// unanswered is the number of looks at the log before the next mark of an entry is confirmed, whose Put has no answer.
	// marked is the entry with the mark.
	unanswered int
	marked     inflight.Entry
	// asked, if set, is closed when a source is looked up, before which no settlement found by TakeOver is confirmed.
	asked     chan struct{}
	askedOnce sync.Once
	// broken ends Run with an error.
	broken chan error
}

func (l *processLog) TakeOver(context.Context) error {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.world.epoch[l.node]++
	l.lock.Lock()
	defer l.lock.Unlock()
	l.epoch, l.read = l.world.epoch[l.node], true
	for volume := range l.settling {
		l.removing[volume] = true
	}
	return nil
}

// TakenOver is long ago by default, so that the claims of tests are later.
func (l *processLog) TakenOver() time.Time { return l.takenOver }

// Run confirms the removals that TakeOver began.
func (l *processLog) Run(ctx context.Context) error {
	if l.asked != nil {
		select {
		case <-l.asked:
		case <-ctx.Done():
			return nil
		}
	}
	l.world.mu.Lock()
	for volume := range l.settling {
		l.lock.Lock()
		delete(l.removing, volume)
		l.lock.Unlock()
		l.drop(volume)
	}
	l.world.mu.Unlock()
	select {
	case err := <-l.broken:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (l *processLog) Follow(removed func(string)) { l.followers = append(l.followers, removed) }

func (l *processLog) Get(volume string) (inflight.Entry, inflight.State) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return l.get(volume)
}

// get is Get with the world's mutex held.
func (l *processLog) get(volume string) (inflight.Entry, inflight.State) {
	l.lock.Lock()
	read, removing, marked := l.read, l.removing[volume], l.marked
	if marked.Volume == volume {
		if l.unanswered--; l.unanswered == 0 {
			l.entries[l.node+volume], l.marked = marked, inflight.Entry{}
		}
	}
	l.lock.Unlock()
	entry, open := l.entries[l.node+volume]
	switch {
	case marked.Volume == volume:
		return marked, inflight.Adding
	case !read:
		return inflight.Entry{}, inflight.Unknown
	case l.hidden == volume:
		return inflight.Entry{}, inflight.Unreadable
	case removing:
		return entry, inflight.Removing
	case !open:
		return inflight.Entry{}, inflight.Absent
	}
	return entry, inflight.Open
}

func (l *processLog) Entries() (all []inflight.Entry) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	for name, entry := range l.entries {
		_, state := l.get(entry.Volume)
		if name == l.node+entry.Volume && (state == inflight.Open || state == inflight.Removing) {
			all = append(all, entry)
		}
	}
	return all
}

func (l *processLog) SourceInFlight(of volume.SourceRef) (state volume.InFlight, problem string) {
	l.lock.Lock()
	read := l.read
	l.lock.Unlock()
	if !read {
		return volume.InFlightUnknown, ""
	}
	if l.asked != nil {
		defer l.askedOnce.Do(func() { close(l.asked) })
	}
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	for name, entry := range l.entries {
		if l.hidden == entry.Volume {
			return volume.InFlightUnreadable, "hidden"
		}
		for _, asked := range entry.Requests {
			if from := asked.Source; name == l.node+entry.Volume && from != nil && from.Kind == of.Kind &&
				from.Namespace == of.Namespace && from.Name == of.Name {
				return volume.InFlightOpen, ""
			}
		}
	}
	if l.unreadable != "" {
		return volume.InFlightUnreadable, l.unreadable
	}
	return volume.InFlightSettled, ""
}

// write changes the log unless another process has taken it over.
func (l *processLog) write(what string, change func()) error {
	return l.do(what, func() error {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		if l.world.epoch[l.node] != l.epoch {
			return inflight.ErrSuperseded
		}
		change()
		return nil
	})
}

func (l *processLog) Put(_ context.Context, entry inflight.Entry) error {
	l.lock.Lock()
	delete(l.removing, entry.Volume)
	unanswered := l.unanswered > 0 && entry.Discarding
	if unanswered {
		l.marked = entry
	}
	l.lock.Unlock()
	if unanswered {
		return fmt.Errorf("put %q: %w", entry.Volume, inflight.ErrUnconfirmed)
	}
	l.world.mu.Lock()
	refused := l.refused
	l.world.mu.Unlock()
	if refused != nil {
		return fmt.Errorf("put %q: %w", entry.Volume, refused)
	}
	if n := len(entry.Requests); n == 0 || n > provision.MaxRequests || slices.ContainsFunc(entry.Requests,
		func(r inflight.Request) bool {
			return r.Create == nil || r.PV == nil || r.Create.GetName() != entry.Volume || r.PV.Name != entry.Volume
		}) {
		l.t.Errorf("an entry is put that the log does not take: %+v", entry)
	}
	return l.write("open entry", func() { l.entries[l.node+entry.Volume] = entry })
}

func (l *processLog) Remove(volume string) {
	l.lock.Lock()
	l.removing[volume] = true
	l.lock.Unlock()
	l.removals.Go(func() {
		wanted := func() bool {
			l.lock.Lock()
			defer l.lock.Unlock()
			return l.removing[volume]
		}
		if !wanted() {
			return
		}
		closed := false
		err := l.write("close entry", func() {
			if closed = wanted(); closed {
				delete(l.entries, l.node+volume)
			}
		})
		if err != nil || !closed {
			return // the process is dead, or a request has replaced it
		}
		l.lock.Lock()
		delete(l.removing, volume)
		l.lock.Unlock()
		for _, removed := range l.followers {
			removed(volume)
		}
	})
}

func (l *processLog) Confirm(_ context.Context, volume string) error {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	switch _, stored := l.entries[l.node+volume]; {
	case l.unconfirmed != nil:
		return l.unconfirmed
	case l.world.epoch[l.node] != l.epoch:
		return inflight.ErrSuperseded
	case !stored:
		return inflight.ErrAbsent
	case l.settling[volume]:
		l.drop(volume)
		return inflight.ErrSettled
	}
	return nil
}

// readForAnother is a read of the log for another entry, which also shows the entries that the operator has settled.
func (l *processLog) readForAnother() {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	for volume := range l.settling {
		l.drop(volume)
	}
}

// show ends that an entry is hidden, which the operator may have settled.
func (l *processLog) show(settled bool) {
	l.world.mu.Lock()
	name := l.hidden
	l.hidden = ""
	l.lock.Lock()
	l.removing[name] = settled
	l.lock.Unlock()
	l.world.mu.Unlock()
	for _, changed := range l.followers {
		changed(name)
	}
	if settled {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		l.lock.Lock()
		delete(l.removing, name)
		l.lock.Unlock()
		l.drop(name)
	}
}

// drop removes a settled entry, with the world's mutex held.
func (l *processLog) drop(volume string) {
	delete(l.entries, l.node+volume)
	delete(l.settling, volume)
	l.removals.Go(func() {
		for _, removed := range l.followers {
			removed(volume)
		}
	})
}

func (l *processLog) State(volume string) inflight.State {
	_, state := l.Get(volume)
	return state
}

func (*processLog) Stats() inflight.Stats { return inflight.Stats{} }
