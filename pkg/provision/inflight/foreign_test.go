package inflight

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func (p *process) wantProblem(annotation string, want error) {
	p.t.Helper()
	problems := p.Problems()
	if len(problems) != 1 || problems[0].Annotation != annotation || !errors.Is(problems[0].Err, want) ||
		!strings.HasSuffix(problems[0].Lease, "/"+shardName(3)) {
		p.t.Errorf("problems %v, want %v of %q", problems, want, annotation)
	}
}

// before runs a process that stores entries, and stops it.
func before(t *testing.T, s *store, volumes ...string) {
	t.Helper()
	p := start(t, settings(s, "before"))
	p.mustPut(volumes...)
	p.stop()
}

func TestForeignShardIsReadOnly(t *testing.T) {
	v, others := volumes(3, 3), volumes(4, 4)
	for name, test := range map[string]struct {
		change func(*coordinationv1.Lease)
		want   error
	}{
		"a copy":           {func(l *coordinationv1.Lease) { l.UID = "another" }, ErrCopy},
		"another driver's": {func(l *coordinationv1.Lease) { replaceMeta(l, driver, "x.example.com") }, ErrForeign},
		"a later version":  {func(l *coordinationv1.Lease) { replaceMeta(l, `"version":1`, `"version":3`) }, ErrVersion},
		"without UID":      {func(l *coordinationv1.Lease) { replaceMeta(l, `"uid"`, `"x"`) }, ErrCopy},
		"without meta":     {func(l *coordinationv1.Lease) { delete(l.Annotations, annMeta) }, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				before(t, s, v[0], others[0])
				s.edit(shardName(3), test.change)
				was := s.read(shardName(3))
				p := start(t, settings(s, "one"))
				p.wantProblem("", test.want)
				p.wantState(v[0], Unreadable)
				p.wantState(v[1], Unreadable)
				for _, pv := range []string{v[0], v[1], volume.ApartName(v[1], "n")} {
					state, problem := p.InFlight(pv)
					if state != volume.InFlightUnreadable || !strings.Contains(problem, "/"+shardName(3)+": ") {
						t.Errorf("PV %s: %d, problem %q", pv, state, problem)
					}
				}
				if state, _ := p.InFlight(others[0]); state != volume.InFlightOpen {
					t.Errorf("PV of another shard: %d", state)
				}
				if state, _ := p.InFlight(others[1]); state != volume.InFlightSettled {
					t.Errorf("PV of another shard without an entry: %d", state)
				}
				if got := names(p.Entries()); !slices.Equal(got, others[:1]) {
					t.Errorf("entries %v", got)
				}
				wantError(t, p.put(entry(v[1])), ErrUnreadable, test.want)
				wantError(t, p.confirm(v[0]), ErrAbsent)
				p.Remove(v[0])
				p.mustPut(others[1:]...)
				time.Sleep(10 * time.Minute)
				if diff := cmp.Diff(was, s.read(shardName(3))); diff != "" {
					t.Errorf("it was written\n%s", diff)
				}
				if stats := p.Stats(); stats.ReadOnly != 1 || stats.Open != 4 {
					t.Errorf("%+v", stats)
				}

				s.remove(shardName(3)) // by hand
				time.Sleep(recheckEvery + time.Second)
				if problems := p.Problems(); len(problems) > 0 {
					t.Error(problems)
				}
				p.wantState(v[0], Absent)
				p.mustPut(v[2])
				p.wantRemoved()
			})
		})
	}
}

func replaceMeta(l *coordinationv1.Lease, old, by string) {
	l.Annotations[annMeta] = strings.Replace(l.Annotations[annMeta], old, by, 1)
}

func TestRepairedShardIsReadAfterNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		before(t, s, v[0])
		s.edit(shardName(3), func(l *coordinationv1.Lease) { replaceMeta(l, driver, "x.example.com") })
		p := start(t, settings(s, "one"))
		s.edit(shardName(3), func(l *coordinationv1.Lease) { replaceMeta(l, "x.example.com", driver) })
		time.Sleep(10 * time.Minute)
		p.wantProblem("", ErrAppeared)
		p.wantState(v[0], Unreadable)
		if next := start(t, settings(s, "two")); next.state(v[0]) != Open {
			t.Error("it is not read after a start")
		}
	})
}

func TestReadOnlyShardKeepsItsEntries(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 3)
		p.mustPut(v[0])
		meta := s.read(shardName(3)).Annotations[annMeta]
		s.edit(shardName(3), func(l *coordinationv1.Lease) { delete(l.Annotations, annMeta) })
		was := s.read(shardName(3))
		wantError(t, p.put(entry(v[1])), ErrUnreadable)
		wantError(t, p.confirm(v[0]), ErrUnreadable)
		p.wantState(v[0], Open)
		p.wantState(v[1], Unreadable)
		p.Remove(v[0])
		time.Sleep(10 * time.Minute)
		p.wantState(v[0], Removing)
		if diff := cmp.Diff(was, s.read(shardName(3))); diff != "" {
			t.Errorf("it was written\n%s", diff)
		}
		s.edit(shardName(3), func(l *coordinationv1.Lease) { l.Annotations[annMeta] = meta })
		time.Sleep(recheckEvery + time.Second)
		p.wantState(v[0], Absent)
		p.mustPut(v[1])
		s.wantStored(t, v[1])
	})
}

func TestUnreadableEntryIsKeptAndBlocksItsName(t *testing.T) {
	v := volumes(3, 4)
	for name, test := range map[string]struct {
		key, value string
		want       error
	}{
		"no JSON":          {annotationKey(v[1]), "{{ \n", ErrDecode},
		"a later version":  {annotationKey(v[1]), `{"version":2}`, ErrVersion},
		"another volume's": {annotationKey(v[1]), leaseOf(meta{}, "", v[2]).Annotations[annotationKey(v[2])], ErrMisplaced},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				before(t, s, v[0])
				s.edit(shardName(3), func(l *coordinationv1.Lease) { l.Annotations[test.key] = test.value })
				p := start(t, settings(s, "one"))
				p.wantProblem(test.key, test.want)
				p.wantState(v[1], Unreadable)
				wantError(t, p.put(entry(v[1])), ErrUnreadable, test.want)
				wantError(t, p.confirm(v[1]), ErrUnreadable)
				p.Remove(v[1])
				p.mustPut(v[3])
				p.Remove(v[0])
				time.Sleep(2 * time.Second)
				if got := s.read(shardName(3)).Annotations[test.key]; got != test.value {
					t.Errorf("it became %q", got)
				}
				if _, problems := decoded(s.all()); len(problems) != 1 || !errors.Is(problems[0].Err, test.want) {
					t.Errorf("It shows %v", problems)
				}
				s.edit(shardName(3), func(l *coordinationv1.Lease) { delete(l.Annotations, test.key) })
				time.Sleep(recheckEvery + time.Second)
				p.wantState(v[1], Absent)
				p.mustPut(v[1])
				s.wantStored(t, v[1], v[3])
			})
		})
	}
}

func TestMisplacedEntryBlocksItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, volume := newStore(), volumes(5, 1)[0]
		before(t, s)
		s.edit(shardName(3), func(l *coordinationv1.Lease) {
			l.Annotations[annotationKey(volume)] = leaseOf(meta{}, "", volume).Annotations[annotationKey(volume)]
		})
		p := start(t, settings(s, "one"))
		p.wantProblem(annotationKey(volume), ErrMisplaced)
		p.wantState(volume, Unreadable)
		wantError(t, p.put(entry(volume)), ErrUnreadable)
		if len(p.Entries()) > 0 {
			t.Error("it is used")
		}
	})
}

func TestEntryAddedByOthersBlocksItsName(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 3)
		p.mustPut(v[0])
		s.edit(shardName(3), func(l *coordinationv1.Lease) {
			l.Annotations[annotationKey(v[1])] = leaseOf(meta{}, "", v[1]).Annotations[annotationKey(v[1])]
		})
		p.mustPut(v[2])
		p.wantState(v[1], Unreadable)
		p.wantProblem(annotationKey(v[1]), ErrAppeared)
		s.wantStored(t, v...)
		if next := start(t, settings(s, "two")); next.state(v[1]) != Open {
			t.Error("it is not read after a start")
		}
	})
}

// TestRestoredOlderAnnotationsAreOverwritten covers a restore onto an existing object.
func TestRestoredOlderAnnotationsAreOverwritten(t *testing.T) {
	for name, since := range map[string]bool{"of an earlier process": false, "of this process": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, v := newStore(), volumes(3, 4)
				before(t, s, v[0])
				var p *process
				old := s.read(shardName(3)).Annotations
				if p = start(t, settings(s, "one")); since {
					p.mustPut(v[3])
					p.Remove(v[3])
					time.Sleep(time.Second)
					old = s.read(shardName(3)).Annotations
				}
				p.mustPut(v[1])
				s.edit(shardName(3), func(l *coordinationv1.Lease) { l.Annotations = maps.Clone(old) })
				p.mustConfirm(v[1])
				p.mustPut(v[2])
				s.wantStored(t, v[:3]...)
			})
		})
	}
}

func TestDecodeEntriesAndProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		before(t, s, v[0], "pvc-other")
		leases := s.all()
		copied := leases[3].DeepCopy()
		copied.Namespace, copied.UID = "elsewhere", "another"
		stranger := coordinationv1.Lease{}
		stranger.Namespace, stranger.Name, stranger.Annotations = "driver", "x", map[string]string{annMeta: `{"version":1}`}
		entries, problems := decoded(append(leases, *copied, stranger))
		if got := names(sorted(entries)); !slices.Equal(got, slices.Sorted(slices.Values([]string{v[0], "pvc-other"}))) {
			t.Errorf("entries %v", got)
		}
		if len(problems) != 2 || !errors.Is(problems[0].Err, ErrCopy) || !errors.Is(problems[1].Err, ErrForeign) ||
			!strings.HasPrefix(problems[0].String(), "Lease elsewhere/"+shardName(3)+": ") {
			t.Errorf("problems %v", problems)
		}
	})
}
