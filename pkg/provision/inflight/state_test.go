package inflight

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	us       = meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	errFault = errors.New("fault")
	errWaits = errors.New("it waits")
)

type values = map[string]string

// seenAs returns our Lease as read, with this resourceVersion, number of the last write, and entries.
func seenAs(version string, write int64, entries values, edit ...func(*meta)) view {
	m := us
	m.UID, m.Write = "u", write
	for _, e := range edit {
		e(&m)
	}
	lease := leaseOf(m, m.UID)
	lease.ResourceVersion = version
	for name, value := range entries {
		lease.Annotations[entryPrefix+name] = value
	}
	return look(lease, driver)
}

// holding returns a shard that was read at version 7 after write 6, with our entries.
func holding(entries values) *shard {
	s := newShard(3, shardName(3))
	s.seen, s.known, s.taken, s.fenced, s.write = seenAs("7", 6, entries), true, true, true, 6
	for name, value := range entries {
		s.want[entryPrefix+name] = storedItem(small(name, value))
	}
	return s
}

// small returns an entry with any value.
func small(volume, value string) coded {
	return coded{entry: &Entry{Volume: volume, Requests: []Request{{PV: &v1.PersistentVolume{}}}}, value: value}
}

func (s *shard) mustPut(t *testing.T, name, value string) *item {
	t.Helper()
	it, err := s.put(entryPrefix+name, small(name, value), us)
	if it == nil || err != nil {
		t.Fatal(it, err)
	}
	return it
}

// answered returns the answer to a Put, errWaits if it still waits.
func (it *item) answered() error {
	select {
	case <-it.done:
		return it.err
	default:
		return errWaits
	}
}

func (s *shard) wants(t *testing.T, want values) {
	t.Helper()
	got := values{}
	for key, value := range s.values() {
		got[strings.TrimPrefix(key, entryPrefix)] = value
	}
	if !maps.Equal(got, want) {
		t.Errorf("wanted are %v, want %v", got, want)
	}
}

func TestPutOfStoredEntryNeedsNoWrite(t *testing.T) {
	for name, test := range map[string]struct {
		stored, before string
		confirmed      bool
		put            string
		needs          bool
	}{
		"stored":               {"1", "1", true, "1", false},
		"another value is put": {"1", "1", true, "2", true},
		"changed by another program to the same value":  {"2", "1", true, "2", true},
		"changed by another program":                    {"2", "1", true, "1", true},
		"it is put again while it is removed":           {"1", "1", false, "1", true},
		"an entry that is not stored yet is put again":  {"", "1", false, "1", true},
		"an entry that is not stored yet gives way now": {"", "1", false, "2", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := holding(values{"a": test.stored})
			s.want[entryPrefix+"a"].value, s.want[entryPrefix+"a"].confirmed = test.before, test.confirmed
			it, err := s.put(entryPrefix+"a", small("a", test.put), us)
			if err != nil || (it != nil) != test.needs {
				t.Errorf("got %v, %v", it, err)
			}
		})
	}
}

func TestRefusedPutRestoresStoredEntry(t *testing.T) {
	for name, test := range map[string]struct {
		removed bool
		puts    []string
	}{
		"a replacement":                        {false, []string{"2"}},
		"a replacement of a replacement":       {false, []string{"2", "3"}},
		"in place of a removal":                {true, []string{"2"}},
		"a replacement in place of a removal":  {true, []string{"2", "3"}},
		"and another one, in place of removal": {true, []string{"2", "3", "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := holding(values{"a": "1"})
			if test.removed {
				s.remove(entryPrefix+"a", time.Time{})
			}
			var items []*item
			for _, value := range test.puts {
				items = append(items, s.mustPut(t, "a", value))
			}
			s.refuse(nil, errFault)
			for i, it := range items {
				want := ErrUnconfirmed
				if i == len(items)-1 {
					want = errFault
				}
				if err := it.answered(); !errors.Is(err, want) {
					t.Errorf("Put %d: %v", i, err)
				}
			}
			was := values{"a": "1"}
			if test.removed {
				was = values{}
			}
			if s.wants(t, was); (s.removing[entryPrefix+"a"] != nil) != test.removed {
				t.Errorf("being removed: %v", s.removing)
			}
		})
	}
}

func TestRefusedWriteFailsOnlyItsOwnPuts(t *testing.T) {
	s := holding(nil)
	had, replaced, later := s.mustPut(t, "a", "1"), s.mustPut(t, "b", "2"), s.mustPut(t, "c", "1")
	s.refuse(values{entryPrefix + "a": "1", entryPrefix + "b": "1"}, errFault)
	s.wants(t, values{"b": "2", "c": "1"})
	if !errors.Is(had.answered(), errFault) || !errors.Is(replaced.answered(), errWaits) ||
		!errors.Is(later.answered(), errWaits) {
		t.Error("a Put that was not in the write is answered")
	}

	// A pending write may store b.
	s.tries = []values{{entryPrefix + "b": "2"}}
	s.refuse(nil, errFault)
	s.wants(t, values{"b": "2"})
	if err := later.answered(); errors.Is(err, ErrUnconfirmed) {
		t.Errorf("a Put that no open write has: %v", err)
	}
	if err := replaced.answered(); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("a Put that an open write may store: %v", err)
	}
}

// TestNoTwoWritesAreEqual: a write without a change would keep the resourceVersion, so an earlier write might still
// land.
func TestNoTwoWritesAreEqual(t *testing.T) {
	s := holding(nil)
	s.mustPut(t, "a", "1")
	first, second := s.compose(us), s.compose(us)
	if maps.Equal(first.Annotations, second.Annotations) {
		t.Errorf("both have %v", first.Annotations)
	}
}

func TestRepeatedWriteCountsOnce(t *testing.T) {
	s, a := holding(nil), values{entryPrefix + "a": "1"}
	s.sent(a)
	s.sent(maps.Clone(a))
	s.sent(values{})
	if len(s.tries) != 2 {
		t.Errorf("%d writes may land", len(s.tries))
	}
}

func TestFitRefusesPutsUntilTheRestFits(t *testing.T) {
	for name, test := range map[string]struct {
		mayLand string
		want    values
	}{
		"the first makes room":        {"", values{"b": "1", "stored": "1"}},
		"the first may be stored":     {"a", values{"a": "1", "stored": "1"}},
		"stored entries are not lost": {"b", values{"b": "1", "stored": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := holding(values{"stored": "1"})
			s.mustPut(t, "a", "1")
			s.mustPut(t, "b", "1")
			if test.mayLand != "" {
				s.tries = []values{{entryPrefix + test.mayLand: "1"}}
			}
			fill := room - s.total(us)
			s.seen.lease.Annotations["example.com/note"] = strings.Repeat("x", fill-len("example.com/note")+1)
			s.fit(us)
			s.wants(t, test.want)
		})
	}
}

func TestObserve(t *testing.T) {
	of := func(process string, epoch int64, uid types.UID) func(*meta) {
		return func(m *meta) { m.Process, m.Epoch, m.UID = process, epoch, uid }
	}
	foreign := func(s *shard) {
		s.seen = seenAs("6", 6, values{"a": "1"}, func(m *meta) { m.Version = 3 })
	}
	settled := seenAs("8", 6, values{"a": "1"})
	settled.lease.Annotations[settlePrefix+"a"] = settleValue("1")
	for name, test := range map[string]struct {
		edit    func(*shard)
		seen    view
		err     error
		settled []string
		kept    error
	}{
		"another process leads, in a Lease created anew": {func(*shard) {}, seenAs("8", 1, nil, of("q", 1, "v")),
			ErrSuperseded, nil, nil},
		"older annotations of another process are back, after as many writes": {func(*shard) {},
			seenAs("8", 6, nil, of("q", 4, "u")), nil, nil, nil},
		"older annotations of the same process are back": {func(*shard) {},
			seenAs("8", 6, nil, of("p", 4, "u")), nil, nil, nil},
		"another program repaired a Lease that was never ours": {func(s *shard) { s.taken = false; foreign(s) },
			seenAs("8", 1, nil, of("q", 4, "u")), nil, nil, ErrAppeared},
		"another process leads in a Lease that was never ours": {func(s *shard) { s.taken = false; foreign(s) },
			seenAs("8", 1, nil, of("q", 6, "u")), ErrSuperseded, nil, nil},
		"an operator settled an entry": {func(*shard) {}, settled, nil, []string{entryPrefix + "a"}, nil},
		"an operator settled an entry of another write": {func(s *shard) { s.want[entryPrefix+"a"].value = "2" }, settled,
			nil, nil, nil},
		"another program removed an entry":                    {func(*shard) {}, seenAs("8", 6, nil), nil, nil, nil},
		"an entry is missing since the Lease was of use last": {foreign, seenAs("8", 6, nil), nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := holding(values{"a": "1"})
			test.edit(s)
			others, err := s.observe(test.seen, us)
			if !errors.Is(err, test.err) || !slices.Equal(others.settled, test.settled) || test.err == nil &&
				!errors.Is(s.seen.err, test.kept) {
				t.Errorf("%v, settled %v, read-only %v", err, others.settled, s.seen.err)
			}
			if _, wanted := s.want[entryPrefix+"a"]; wanted == slices.Contains(test.settled, entryPrefix+"a") {
				t.Errorf("the entry is wanted: %t", wanted)
			}
		})
	}
}

func TestDeletedLeaseDiscardsPendingWrites(t *testing.T) {
	s := holding(values{"a": "1"})
	s.taken, s.kept[entryPrefix+"b"] = false, ErrDecode
	s.tries = []values{{entryPrefix + "a": "1"}}
	if _, err := s.observe(view{}, us); err != nil {
		t.Fatal(err)
	}
	if !s.taken || s.fenced || len(s.tries) > 0 || len(s.kept) > 0 {
		t.Errorf("taken %t, fenced %t, %d writes may land, kept %v", s.taken, s.fenced, len(s.tries), s.kept)
	}
	s.wants(t, values{"a": "1"})
}

func TestConcludeRespectsPendingWrites(t *testing.T) {
	a := entryPrefix + "a"
	for name, test := range map[string]struct {
		stored values
		tries  []values
		put    bool
		want   bool
	}{
		"a removal": {nil, nil, false, true},
		"a removal, and a write may bring it back": {
			nil, []values{{a: "1"}}, false, false,
		},
		"a removal, and a write may store another": {
			nil, []values{{"b": "1"}}, false, true,
		},
		"a Put after a removal":               {values{"a": "1"}, nil, true, true},
		"a Put after a removal that may land": {values{"a": "1"}, []values{{}}, true, false},
		"a Put after a replacement that may land": {
			values{"a": "1"}, []values{{a: "2"}}, true, false,
		},
		"a Put, and a write of the same, which may land": {
			values{"a": "1"}, []values{{a: "1"}}, true, true,
		},
		"a Put of an entry that the Lease lacks": {
			nil, []values{{a: "1"}}, true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := holding(values{"a": "1"})
			s.remove(a, time.Time{})
			var it *item
			if test.put {
				it = s.mustPut(t, "a", "1")
			}
			s.tries = test.tries
			s.seen = seenAs("7", 6, test.stored)
			s.conclude()
			if got := len(s.changed) > 0 || test.put && it.confirmed; got != test.want {
				t.Errorf("confirmed %t", got)
			}
		})
	}
}

func TestConfirmNeedsALaterRead(t *testing.T) {
	s := holding(values{"a": "1"})
	read := func() {
		t.Helper()
		if _, err := s.observe(seenAs("7", 6, values{"a": "1"}), us); err != nil {
			t.Fatal(err)
		}
	}
	c := &check{key: entryPrefix + "a", done: make(chan error, 1)}
	s.checks = []*check{c}
	if read(); len(c.done) > 0 {
		t.Error("a read that began before answers it")
	}
	s.ask(true)
	s.ask(false) // it failed
	if !s.situation(us, time.Now()).asked {
		t.Error("it is not read again")
	}
	if read(); len(c.done) > 0 {
		t.Error("a read that failed answers it")
	}
	s.ask(true)
	if read(); len(c.done) != 1 || <-c.done != nil {
		t.Error("it is not answered")
	}
}

func TestRecheckInterval(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		edit func(*shard)
		want time.Duration
	}{
		"all is well":                {func(*shard) {}, -1},
		"it is not ours":             {func(s *shard) { s.seen.err = ErrForeign }, time.Second},
		"an entry cannot be read":    {func(s *shard) { s.kept["a"] = ErrDecode }, time.Second},
		"and that was some time ago": {func(s *shard) { s.kept["a"], s.recheckAt = ErrDecode, now.Add(-time.Hour) }, 0},
	} {
		s := holding(values{"a": "1"})
		s.recheckAt = now.Add(time.Second)
		test.edit(s)
		if got := s.situation(us, now); got.recheckIn != test.want || !got.ours {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestShardNumber(t *testing.T) {
	for name, want := range map[string]int{
		"log-0": 0, "log-7": 7, "a-log-7": 7, "log-8": -1, "log--1": 1, "log-7-old": 7, "log-old": -1, "log-8-old": -1,
		"log-x": -1, "log": -1, "7": -1, "": -1,
	} {
		got, named := shardNumber(name)
		if !named {
			got = -1
		}
		if got != want {
			t.Errorf("%q has number %d, want %d", name, got, want)
		}
	}
}
