package inflight

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// settle returns the edit of an operator who was shown the stored entry.
func settle(volume string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) {
		key := annotationKey(volume)
		l.Annotations[settleKey(key)] = settleValue(l.Annotations[key])
	}
}

// unstore removes an entry without the leader's knowledge.
func unstore(volume string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { delete(l.Annotations, annotationKey(volume)) }
}

func TestCompareFindsChangesByOthers(t *testing.T) {
	key, settling, of := entryPrefix+"a", settlePrefix+"a", settleValue
	for name, test := range map[string]struct {
		live, want     values
		removing, kept bool
		change         change
	}{
		"nothing":    {},
		"as written": {live: values{key: "1"}, want: values{key: "1"}},
		"settled": {values{key: "1", settling: of("1")}, values{key: "1"}, false, false,
			change{settled: []string{key}}},
		"settled, and removed": {live: values{key: "1", settling: of("1")}, removing: true},
		"another was shown": {values{key: "1", settling: of("0")}, values{key: "1"}, false, false,
			change{ignored: []string{settling}}},
		"shown before a change that is being written": {values{key: "1", settling: of("1")}, values{key: "2"}, false, false,
			change{ignored: []string{settling}}},
		"shown after a change": {values{key: "x", settling: of("x")}, values{key: "1"}, false, false,
			change{ignored: []string{settling}}},
		"settled by a name alone": {values{key: "1", settling: ""}, values{key: "1"}, false, false,
			change{ignored: []string{settling}}},
		"settled, and not stored": {values{settling: of("1")}, values{key: "1"}, false, false,
			change{ignored: []string{settling}}},
		"settled, neither stored nor written": {values{settling: of("")}, values{key: ""}, false, false,
			change{ignored: []string{settling}}},
		"settled, and not known": {values{settling: of("")}, nil, false, false, change{ignored: []string{settling}}},
		"settled, and unreadable": {values{key: "?", settling: of("?")}, nil, false, true,
			change{ignored: []string{settling}}},
		"settled, empty and unreadable": {values{key: "", settling: of("")}, nil, false, true,
			change{ignored: []string{settling}}},
		"removed by another program":             {want: values{key: "1"}},
		"removed by us":                          {removing: true},
		"a removal that did not land":            {live: values{key: "1"}, removing: true},
		"changed by another program":             {live: values{key: "x"}, want: values{key: "1"}},
		"added by another program":               {live: values{key: "1"}, change: change{appeared: []string{key}}},
		"unreadable":                             {live: values{key: "?"}, kept: true},
		"unreadable, removed by another program": {kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{lease: &coordinationv1.Lease{}}
			v.lease.Annotations = test.live
			got := compare(v, test.want, func(string) bool { return test.removing }, func(string) bool { return test.kept })
			if diff := cmp.Diff(test.change, got, cmp.AllowUnexported(change{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// wantNoneSettling fails if settling annotations are left in a Lease.
func (s *store) wantNoneSettling(t *testing.T, lease string) {
	t.Helper()
	if left := (view{lease: s.read(lease)}).with(settlePrefix); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestSettledEntryIsRemovedBeforeTheNextCall(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 3)
		p.mustPut(v...)
		s.edit(shardName(3), settle(v[0]))
		s.edit(shardName(3), settle(v[1]))
		s.committed = func(_ string, l *coordinationv1.Lease) {
			if got := (view{lease: l}); len(got.entries()) != 1 || len(got.with(settlePrefix)) > 0 {
				t.Errorf("a write has %v", l.Annotations)
			}
		}
		p.wantState(v[0], Open)
		wantError(t, p.confirm(v[0]), ErrSettled)
		wantError(t, p.confirm(v[1]), ErrAbsent)
		p.mustConfirm(v[2])
		synctest.Wait()
		p.wantState(v[0], Absent)
		p.wantRemoved(v[0], v[1])
		s.wantStored(t, v[2])
	})
}

// TestSettledEntryIsDroppedBetweenCalls: a write that conflicts with the operator's is followed by a read.
func TestSettledEntryIsDroppedBetweenCalls(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 2)
		p.mustPut(v[0])
		s.edit(shardName(3), settle(v[0]))
		p.mustPut(v[1])
		synctest.Wait()
		p.wantRemoved(v[0])
		s.wantStored(t, v[1])
		s.wantNoneSettling(t, shardName(3))
	})
}

// TestEntryIsSettledAfterItsAnswerWasLost: the operator was shown an entry that the process does not yet know as
// stored.
func TestEntryIsSettledAfterItsAnswerWasLost(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		volume := volumes(3, 1)[0]
		s.fail(fault{err: apierrors.NewTimeoutError("lost", 0), carry: true}.to("update").once())
		result := make(chan error, 1)
		go func() { result <- p.put(entry(volume)) }()
		synctest.Wait()
		s.edit(shardName(3), settle(volume))
		wantError(t, <-result, ErrSettled)
		synctest.Wait()
		p.wantState(volume, Absent)
		s.wantStored(t)
	})
}

func TestNextProcessRemovesSettledEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		before(t, s, v...)
		s.edit(shardName(3), settle(v[0]))
		p := prepare(t, settings(s, "one"))
		p.take()
		if got := names(p.Entries()); len(got) != 2 || p.state(v[0]) != Removing || p.state(v[1]) != Open {
			t.Errorf("entries %v", got)
		}
		p.run()
		synctest.Wait()
		p.wantRemoved(v[0])
		s.wantStored(t, v[1])
		s.wantNoneSettling(t, shardName(3))
	})
}

// TestSettleAnnotationOfAnotherEntryIsIgnored checks that the annotation is removed and the entry stays.
func TestSettleAnnotationOfAnotherEntryIsIgnored(t *testing.T) {
	v := volumes(3, 2)
	for name, change := range map[string]func(*coordinationv1.Lease){
		"an earlier one of the name": func(l *coordinationv1.Lease) {
			l.Annotations[settleKey(annotationKey(v[0]))] = settleValue("{}")
		},
		"none": func(l *coordinationv1.Lease) { l.Annotations[settleKey(annotationKey(v[1]))] = settleValue("") },
	} {
		for _, running := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStore()
					before(t, s, v[0])
					if !running {
						s.edit(shardName(3), change)
					}
					p := start(t, settings(s, "one"))
					if running {
						s.edit(shardName(3), change)
						p.mustConfirm(v[0])
					}
					synctest.Wait()
					p.wantState(v[0], Open)
					s.wantStored(t, v[0])
					s.wantNoneSettling(t, shardName(3))
				})
			})
		}
	}
}

// TestEntryWithAddedRequestIsNotSettled: the operator was shown the first request only.
func TestEntryWithAddedRequestIsNotSettled(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		volume := volumes(3, 1)[0]
		p.mustPut(volume)
		s.edit(shardName(3), settle(volume))
		two := doubled(volume)
		if err := errors.Join(p.put(two), p.confirm(volume)); err != nil {
			t.Error(err)
		}
		s.wantStored(t, volume)
		s.wantNoneSettling(t, shardName(3))
	})
}

func TestLaterEntryOfSameNameIsNotSettled(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		volume := volumes(3, 1)[0]
		p.mustPut(volume)
		s.edit(shardName(3), settle(volume))
		wantError(t, p.confirm(volume), ErrSettled)
		p.mustPut(volume) // with equal bytes
		p.mustConfirm(volume)
		s.wantStored(t, volume)
		s.wantNoneSettling(t, shardName(3))
	})
}

// TestEntryRemovedByHandIsWrittenAgain: only an annotation that names the entry settles it.
func TestEntryRemovedByHandIsWrittenAgain(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 2)
		p.mustPut(v...)
		s.edit(shardName(3), unstore(v[0]))
		p.mustConfirm(v[0])
		s.wantStored(t, v...)
		s.edit(shardName(3), unstore(v[0]))
		s.edit(shardName(3), unstore(v[1]))
		p.mustConfirm(v[0])
		s.wantStored(t, v...)
		time.Sleep(time.Minute)
		p.wantRemoved()
	})
}

// TestUnreadableEntryIsNotSettled: an operator removes its annotation instead.
func TestUnreadableEntryIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		before(t, s, v[0])
		s.edit(shardName(3), func(l *coordinationv1.Lease) { l.Annotations[annotationKey(v[1])] = "{{" })
		s.edit(shardName(3), settle(v[1]))
		p := start(t, settings(s, "one"))
		time.Sleep(time.Minute)
		p.wantProblem(annotationKey(v[1]), ErrDecode)
		if got := s.read(shardName(3)).Annotations[annotationKey(v[1])]; got != "{{" {
			t.Errorf("it became %q", got)
		}
		s.wantNoneSettling(t, shardName(3))
	})
}

// TestCopiedLeaseIsNotSettled: a copy is not the log of the process.
func TestCopiedLeaseIsNotSettled(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		volume := volumes(3, 1)[0]
		p.mustPut(volume)
		s.edit(shardName(3), func(l *coordinationv1.Lease) { settle(volume)(l); l.UID = "another" })
		wantError(t, p.confirm(volume), ErrUnreadable)
		p.wantState(volume, Open)
	})
}
