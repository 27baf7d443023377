package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/inflight"
)

// A shard is stored in two Leases, so that new entries do not rewrite the ones that stay in doubt. The rest of the
// package sees one Lease: a view joins both, and a write splits the wanted entries.
//
//   - An entry counts if the young Lease has it, or if the old one has it and the young one has splitVersion.
//   - A new or changed entry is written to the young Lease, and counts in place of an old one.
//   - The old Lease is written first. It keeps each entry until that is removed or moves again.
//   - It has splitVersion while it has entries, or a former release would call it no Lease of a log, to be deleted.

const (
	// oldSuffix ends the name of the Lease with the old entries of a shard.
	oldSuffix = "-old"
	// splitVersion is the version of a young Lease whose old Lease counts. A former release, which does not read the old
	// Lease, takes the shard for unreadable.
	splitVersion = 2
	// splitMark is in such a Lease. A former release drops no chunk while it cannot read the chunks of an entry, and
	// takes this annotation for one. No volume is named like this.
	splitMark      = entryPrefix + "old_entries"
	splitMarkValue = `{"version":2}`
	// gatherLimit limits the last write of a shard.
	gatherLimit = 2 * time.Second
)

// aging decides when entries move to the old Lease, which is never for its zero value.
type aging struct {
	// bytes is the size that the entries of the age after have before they move.
	bytes int
	after time.Duration
	// along is the age of entries that move with these, so that the old Lease is rarely written.
	along time.Duration
}

func ordinaryAging() aging { return aging{bytes: 8 << 10, after: time.Minute, along: 30 * time.Second} }

var errShardChanged = errors.New("the shard changed before its old Lease was written")

// entryOf returns the key of the entry that an annotation is or settles, empty for other annotations.
func entryOf(key string) string {
	if strings.HasPrefix(key, settlePrefix) {
		return entryPrefix + strings.TrimPrefix(key, settlePrefix)
	}
	if strings.HasPrefix(key, entryPrefix) {
		return key
	}
	return ""
}

// young returns the Lease without the old entries, nil if it does not exist.
func (v view) young() *coordinationv1.Lease {
	if v.old != nil {
		return v.own
	}
	return v.lease
}

// join returns the view of a shard together with the entries of its old Lease, nil for none.
func (v view) join(old *coordinationv1.Lease) view {
	if old == nil || v.err != nil || v.meta.Version != splitVersion {
		return v
	}
	if o := look(old, v.meta.Driver); o.err != nil {
		v.err, v.blames = fmt.Errorf("its Lease %s: %w", old.Name, o.err), old
		return v
	}
	v.own, v.old, v.lease = v.lease, old, v.lease.DeepCopy()
	for key, value := range old.Annotations {
		entry := entryOf(key)
		if _, newer := v.own.Annotations[entry]; entry != "" && !newer {
			v.lease.Annotations[key] = value
		}
	}
	return v
}

// leaseOf returns the Lease that has the annotation of an entry.
func (v view) leaseOf(key string) *coordinationv1.Lease {
	if v.old == nil {
		return v.lease
	}
	if _, young := v.own.Annotations[key]; young {
		return v.own
	}
	return v.old
}

// joined returns the views of Leases, and only one for a shard with both of its Leases.
func joined(leases []coordinationv1.Lease) (views []view) {
	listed := map[string]*coordinationv1.Lease{}
	for i := range leases {
		listed[leaseName(&leases[i])] = &leases[i]
	}
	for i := range leases {
		name := leaseName(&leases[i])
		if young, old := strings.CutSuffix(name, oldSuffix); !old {
			views = append(views, look(&leases[i], "").join(listed[name+oldSuffix]))
		} else if listed[young] == nil { // it was deleted alone
			views = append(views, look(&leases[i], ""))
		}
	}
	return views
}

// youngOf turns a Lease with all that is wanted into the young one beside an old Lease, nil for none.
func youngOf(whole, old *coordinationv1.Lease) *coordinationv1.Lease {
	m, stored := look(whole, "").meta, view{lease: old}.entries()
	whole.Annotations = inflight.Young(whole.Annotations, stored)
	if m.Version = metaVersion; len(stored) > 0 {
		m.Version, whole.Annotations[splitMark] = splitVersion, splitMarkValue
	}
	whole.Annotations[annMeta] = m.String()
	return whole
}

// movable returns the entries that the young Lease has as wanted, none if entries of this shard do not move. None moves
// while a write may land: if that write makes the old Lease count, it leaves out the entries that moved with it, and
// the old Lease must not be opened anew without them.
func (s *shard) movable() (all []aged) {
	if s.aging == (aging{}) || s.seen.missing() || len(s.tries) > 0 {
		return nil
	}
	for key, it := range s.want {
		if s.seen.young().Annotations[key] == it.value {
			all = append(all, aged{key, it.entry.Begun, len(key) + len(it.value)})
		}
	}
	return all
}

// moving returns the entries that the next write moves to the old Lease.
func (s *shard) moving(now time.Time) (keys []string) {
	if s.moveIn(now) != 0 {
		return nil
	}
	for _, one := range s.movable() {
		if now.Sub(one.begun) >= s.aging.along {
			keys = append(keys, one.key)
		}
	}
	return keys
}

// moveIn returns the time until entries move, negative for never.
func (s *shard) moveIn(now time.Time) time.Duration {
	at, ever := moveAt(s.movable(), s.aging)
	if !ever {
		return -1
	}
	return max(0, at.Sub(now), s.moveFrom.Sub(now))
}

// getWhole reads a shard with its old Lease.
func (l *Log) getWhole(ctx context.Context, s *shard) (view, error) {
	v, err := l.get(ctx, s.name)
	if v.meta.Version != splitVersion {
		return v, err
	}
	old, err := l.fetch(ctx, s.name+oldSuffix)
	if err != nil {
		return view{}, err
	}
	return v.join(old), nil
}

// writeOld writes the old Lease before a write of whole if it has to, and returns it as it is then, nil if it does not
// count.
func (l *Log) writeOld(ctx context.Context, s *shard, seen view, whole *coordinationv1.Lease,
	moving []string) (old *coordinationv1.Lease, err error) {
	l.mu.Lock()
	own, uncertain := l.own, s.oldMayLand != ""
	own.Write = s.write
	l.mu.Unlock()
	old = seen.old
	next, write := inflight.Split((view{lease: old}).entries(), whole.Annotations, moving)
	if !write && !uncertain && len((view{lease: old}).with(settlePrefix)) == 0 {
		return old, nil
	}
	if old == nil {
		if old, err = l.openOld(ctx, s, seen); err != nil {
			return nil, err
		}
	}
	v, err := l.send(ctx, composeOld(view{lease: old}, own, next, noEntry))
	if err == nil {
		return v.lease, nil
	}
	if judge(err) != outcomeRefused {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.oldMayLand = old.ResourceVersion
	}
	return seen.old, err
}

// composeOld is compose for an old Lease with these entries.
func composeOld(seen view, own meta, entries map[string]string, kept func(key string) bool) *coordinationv1.Lease {
	if len(entries) > 0 {
		own.Version = splitVersion
	}
	return compose(seen, own, entries, kept)
}

func noEntry(key string) bool { return entryOf(key) == "" }

// openOld returns the old Lease of a shard for which it does not count yet, whatever its content. It fails if another
// process may lead: the resourceVersion of a Lease that this process has not written proves nothing otherwise.
func (l *Log) openOld(ctx context.Context, s *shard, seen view) (*coordinationv1.Lease, error) {
	lease, err := l.fetch(ctx, s.name+oldSuffix)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		v, err := l.send(ctx, l.emptyShard(s.name+oldSuffix))
		if err != nil {
			return nil, err
		}
		lease = v.lease
	}
	if v := l.look(lease); v.err != nil {
		return nil, v.err
	}
	young, err := l.get(ctx, s.name)
	if young.version() != seen.version() {
		return nil, cmp.Or(err, errShardChanged)
	}
	return lease, nil
}

// stay keeps the entries of a shard in its young Lease for a while, so that a failure does not delay new entries.
func (l *Log) stay(ctx context.Context, s *shard, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.moveFrom = l.cfg.Clock.Now().Add(recheckEvery)
	klog.FromContext(ctx).Info("Old entries of the in-flight log cannot move to a Lease of their own, so each write "+
		"carries them", "lease", s.name+oldSuffix, "err", err)
}

// gather stores all entries in the young Leases, so that a former release can read them, and then empties the old ones,
// which count no more.
func (l *Log) gather(ctx context.Context) {
	ctx, cancel := l.call(ctx, gatherLimit, errSlow)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range l.shards {
		l.mu.Lock()
		split := s.seen.old != nil
		var lease, emptied *coordinationv1.Lease
		if split {
			s.fit(l.own)
			lease, emptied = youngOf(s.compose(l.own), nil), composeOld(view{lease: s.seen.old}, l.own, nil, noEntry)
		}
		l.mu.Unlock()
		if !split {
			continue
		}
		all.Go(func() {
			_, err := l.send(ctx, lease)
			if err == nil {
				_, err = l.send(ctx, emptied)
			}
			if err != nil {
				klog.FromContext(ctx).Info("Old entries of the in-flight log stay in their Lease", "lease", s.name+oldSuffix,
					"err", err)
			}
		})
	}
	all.Wait()
}

// reportForgotten logs the volumes in the old Lease of a shard whose young Lease was deleted while no process led.
// Their entries do not count once the young Lease is created: some may have ended since they moved, and a volume must
// not be discarded because of such an entry.
func (l *Log) reportForgotten(ctx context.Context, young string) {
	if len(l.shards) == 1 {
		return
	}
	logger := klog.FromContext(ctx).WithValues("lease", klog.KRef(l.cfg.Namespace, young+oldSuffix))
	lease, err := l.fetch(ctx, young+oldSuffix)
	if err != nil {
		logger.Error(err, "A Lease of the in-flight log is missing, and its old entries cannot be read")
		return
	}
	var volumes []string
	for _, key := range slices.Sorted(maps.Keys(view{lease: lease}.entries())) {
		volumes = append(volumes, cmp.Or(volumeOf(key), key))
	}
	if len(volumes) > 0 {
		logger.Error(nil, "A Lease of the in-flight log was deleted; look for these volumes in the storage system, "+
			"unless a claim or PV has them", "deleted", young, "volumes", volumes)
	}
}

// takeOld writes the epoch to the old Leases that count, after the young ones have it.
func (t *takeOver) takeOld(ctx context.Context) error {
	return t.each(func(i int, name string) error {
		if t.views[i].err != nil || t.views[i].meta.Version != splitVersion {
			return nil //nolint:nilerr // a read-only shard is not taken over
		}
		name += oldSuffix
		lease, err := t.log.fetch(ctx, name)
		if err != nil {
			return fmt.Errorf("read Lease %s: %w", name, err)
		}
		if lease == nil {
			klog.FromContext(ctx).Error(nil, "A Lease of the in-flight log was deleted; its entries are lost", "lease", name)
		}
		v := t.log.look(lease)
		t.olds[i] = v
		switch {
		case v.missing() || v.err != nil:
			return nil //nolint:nilerr // the entries in such a Lease are problems of the shard
		case v.meta.Process != t.own.Process && v.meta.Epoch >= t.own.Epoch:
			return fmt.Errorf("write Lease %s: %w", name, errShardChanged)
		}
		own := t.own
		own.Write++
		v, err = t.log.send(ctx, composeOld(v, own, v.entries(), func(string) bool { return true }))
		if err != nil {
			return fmt.Errorf("write Lease %s: %w", name, err)
		}
		t.olds[i] = v
		return nil
	})
}
