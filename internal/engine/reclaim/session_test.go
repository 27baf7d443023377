package reclaim

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// pvs is a cache that a test fills.
type pvs map[string]*volume.PV

func (c pvs) Get(name string) (*volume.PV, bool) { pv, found := c[name]; return pv, found }
func (c pvs) Each(visit func(*volume.PV)) {
	for _, pv := range c {
		visit(pv)
	}
}

// Another replica may have changed the state, so no answer is reported.
func TestNoReportsWithoutLease(t *testing.T) {
	for outcome := Unanswered; outcome <= Canceled; outcome++ {
		for _, leads := range []bool{true, false} {
			e, _ := engineOf(released().PV)
			s, step := beginOn(t, e, Item{Name: "pv"})
			if step.Result != Asks {
				t.Fatalf("asks nothing: %+v", step)
			}
			step = e.Answer(s, Reply{Outcome: outcome, Missing: "the Secret"}, Moment{Now: now(), Leading: leads})
			if reported := step.Report.Kind != None || step.Besides.Kind != None; reported && !leads {
				t.Errorf("outcome %d: reports %+v", outcome, step)
			} else if leads && !reported && (outcome == Unanswered || outcome == OK || outcome == Refused) {
				t.Errorf("outcome %d: reports nothing", outcome)
			}
			if !leads && step.Result == Asks {
				t.Errorf("outcome %d: asks %v without the lease", outcome, s.Ask.Action)
			}
		}
	}
}

// A program that stops closes the log and ends the deletions in progress.
func TestClosedLogKeepsLastState(t *testing.T) {
	e, _ := engineOf(released().PV)
	for name, c := range map[string]struct{ before, read, want volume.InFlight }{
		"closed":            {volume.InFlightSettled, volume.InFlightUnknown, volume.InFlightSettled},
		"a new entry":       {volume.InFlightSettled, volume.InFlightOpen, volume.InFlightOpen},
		"the entry is gone": {volume.InFlightOpen, volume.InFlightSettled, volume.InFlightSettled},
		"not read yet":      {volume.InFlightUnknown, volume.InFlightUnknown, volume.InFlightUnknown},
		"not to be read":    {volume.InFlightSettled, volume.InFlightUnreadable, volume.InFlightUnreadable},
		"read again":        {volume.InFlightUnreadable, volume.InFlightSettled, volume.InFlightSettled},
	} {
		facts, found := e.Facts(Item{Name: "pv"}, Moment{Now: now(), Leading: true, Log: c.before})
		if !found {
			t.Fatal("the PV is not known")
		}
		s := &Session{Facts: facts}
		if e.observe(s, Moment{Now: now(), Leading: true, Log: c.read}); s.Facts.Log != c.want {
			t.Errorf("%s: log state %d, want %d", name, s.Facts.Log, c.want)
		}
	}
}

// beginOn begins a session on the facts about a PV, or about the end of one.
func beginOn(t *testing.T, e *Engine, item Item) (*Session, Step) {
	t.Helper()
	at := leading()
	f, found := e.Facts(item, at)
	if !found {
		t.Fatalf("%+v is not known", item)
	}
	return e.Begin(f, at)
}

// answerReads answers the reads of a session up to DeleteVolume, each with a result that permits the deletion.
func answerReads(t *testing.T, e *Engine, s *Session) Step {
	t.Helper()
	for range MaxSteps {
		if s.Ask.Action == DeleteVolume {
			return Step{Decision: s.Ask.Decision}
		}
		step := e.Answer(s, Reply{Outcome: OK, PV: s.Facts.PV, Found: true}, leading())
		if step.Result != Asks {
			return step
		}
	}
	t.Fatal("DeleteVolume is never reached")
	return Step{}
}

// Events of a PV, or of the end of one, that arrive while a session reads count for its next decision.
func TestObserveDuringSession(t *testing.T) {
	at := leading()
	existing := func() (*Engine, *Session) {
		e, _ := engineOf(released().PV)
		s, _ := beginOn(t, e, Item{Name: "pv"})
		return e, s
	}
	gone := func() (*Engine, *Session) { e, _, s := afterItsEnd(t); return e, s }
	for name, begin := range map[string]func() (*Engine, *Session){"a PV": existing, "an end": gone} {
		for what, c := range map[string]struct {
			change func(*Engine, *Record)
			known  func(Facts) bool
		}{
			"nothing": {func(*Engine, *Record) {}, func(f Facts) bool {
				return f.Done == (Done{}) && !f.History.Stripped && !f.Contested && !f.DriverContested
			}},
			"its finalizer is removed": {func(_ *Engine, r *Record) { r.History.Stripped = true },
				func(f Facts) bool { return f.History.Stripped }},
			"its volume is deleted": {func(_ *Engine, r *Record) { r.edit().Done.VolumeDeleted = true },
				func(f Facts) bool { return f.Done.VolumeDeleted }},
			"it is contested": {func(_ *Engine, r *Record) { r.edit().ContestedAt = now() },
				func(f Facts) bool { return f.Contested && !f.DriverContested }},
			"the driver is contested": {func(e *Engine, _ *Record) { e.Tracker.Contested = true },
				func(f Facts) bool { return f.Contested && f.DriverContested }},
		} {
			e, s := begin()
			c.change(e, e.Tracker.Records[s.Facts.PV.UID])
			if e.observe(s, at); !c.known(s.Facts) {
				t.Errorf("%s, %s: %+v", name, what, s.Facts)
			}
		}
	}
	e, s := existing()
	e.Attached["pv"] = 1
	if e.observe(s, at); s.Facts.Attachments != 1 {
		t.Errorf("an attachment is shown: %d", s.Facts.Attachments)
	}
}

// Siblings come from the watch until they are read, and again when the watch shows an unread sibling.
func TestSiblingsDuringSession(t *testing.T) {
	at := leading()
	e, cache := engineOf(released().PV, sibling())
	s, _ := beginOn(t, e, Item{Name: "pv"})
	other := cache["other"]
	if len(s.Facts.Siblings) != 1 {
		t.Fatalf("siblings %v", s.Facts.Siblings)
	}
	delete(cache, "other") // its event is still to come
	if e.observe(s, at); len(s.Facts.Siblings) > 0 {
		t.Errorf("the sibling is gone: %v", s.Facts.Siblings)
	}
	cache["other"] = other
	s.Listed = map[string]int{"other": 2}
	if e.observe(s, at); len(s.Facts.Siblings) != 1 || s.Facts.Attachments != 2 {
		t.Errorf("the sibling is there, and attached as a list shows: %v, %d attachments", s.Facts.Siblings,
			s.Facts.Attachments)
	}
	third := sibling()
	third.UID = "third"
	for name, c := range map[string]struct {
		cached, read []volume.PV
		unread       bool
	}{
		"all read":                    {[]volume.PV{third, sibling()}, []volume.PV{sibling(), third}, false},
		"one is not read":             {[]volume.PV{third, sibling()}, []volume.PV{sibling()}, true},
		"one of the name is not read": {[]volume.PV{third}, []volume.PV{sibling()}, true},
		"nothing is cached":           {nil, []volume.PV{sibling()}, false},
	} {
		if got := hasUnread(c.cached, c.read); got != c.unread {
			t.Errorf("%s: unread: %t", name, got)
		}
	}
}

// toDeleteVolume drives a session on a PV up to DeleteVolume, with a result for each read that permits the deletion.
func toDeleteVolume(t *testing.T, e *Engine, cache pvs, name string) (s *Session, step Step) {
	t.Helper()
	for s, step = beginOn(t, e, Item{Name: name}); step.Result == Asks && s.Ask.Action != DeleteVolume; {
		r := Reply{Outcome: OK, PV: s.Facts.PV, Found: true, Claims: map[types.UID]pvclaim.Result{}}
		for _, other := range s.Ask.Siblings {
			if is := cache[other.Name]; is != nil {
				r.PVs = append(r.PVs, *is)
				r.Claims[other.UID] = pvclaim.Result{Of: other.Claim}
			}
		}
		step = e.Answer(s, r, leading())
	}
	return s, step
}

// A PV that is changed to keep the volume, or created for it, while another of its PVs has it deleted is reported.
func TestTooLateOfOtherPVs(t *testing.T) {
	change := func(change func(*volume.PV)) func(*Engine, pvs) {
		return func(e *Engine, cache pvs) { update(e, cache, "other", change) }
	}
	for name, c := range map[string]struct {
		meanwhile func(*Engine, pvs)
		reply     Outcome
		deposed   bool
		want      []string
	}{
		"nothing happens":  {func(*Engine, pvs) {}, OK, false, nil},
		"it is held":       {change(held), OK, false, []string{"other"}},
		"it is to be kept": {change(of(volume.PolicyRetain)), OK, false, []string{"other"}},
		"it is relabeled":  {change(func(*volume.PV) {}), OK, false, nil},
		"another is created": {func(e *Engine, cache pvs) {
			created := inUse("created")
			created.Handle, cache["created"] = "VOL-1", &created
			e.PVAdded(&created, now())
		}, OK, false, []string{"created"}},
		"it is held, the volume is not deleted": {change(held), Refused, false, nil},
		"it is held, the term is over":          {change(held), OK, true, nil},
	} {
		e, cache := engineOf(released().PV, sibling())
		e.Breaker = NewBreaker(0, 0)
		e.Lead(true)
		s, _ := toDeleteVolume(t, e, cache, "pv")
		c.meanwhile(e, cache)
		var got []string
		for _, pv := range e.Answer(s, Reply{Outcome: c.reply}, Moment{Now: now(), Leading: !c.deposed}).TooLate {
			got = append(got, pv.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: reported on %q, want %q", name, got, c.want)
		}
	}
}

// The cache may still show how a PV was before it was read, or a PV that a read did not find.
func TestTooLateIsReportedOnlyOfChangesSinceRead(t *testing.T) {
	e, cache := engineOf(released().PV, sibling())
	e.Breaker = NewBreaker(0, 0)
	e.Lead(true)
	s, _ := toDeleteVolume(t, e, cache, "pv")
	s.Facts.Siblings[0].ResourceVersion = "1000"
	update(e, cache, "other", of(volume.PolicyRetain))
	if got := e.tooLate(s); len(got) > 0 {
		t.Errorf("changed before it was read: reported on %v", got)
	}
	s.Facts.Siblings, s.Absent = nil, []types.UID{sibling().UID}
	if got := e.tooLate(s); len(got) > 0 {
		t.Errorf("gone when it was read: reported on %v", got)
	}
}

// DeleteVolume is called once at a time for one volume, without delay for other steps.
func TestOneDeleteVolumeAtATime(t *testing.T) {
	at := leading()
	other := sibling(handle("VOL-1"))
	e, cache := engineOf(released().PV, other)
	e.Breaker = NewBreaker(0, 0)
	e.Lead(true)
	drive := func(name string) (*Session, Step) { return toDeleteVolume(t, e, cache, name) }
	first, step := drive("pv")
	if step.Result != Asks {
		t.Fatalf("asks nothing: %+v", step)
	}
	second, step := drive("other")
	if step.Result != Soon || step.Report.Reason != ReasonVolumeBusy || second.Steps == 0 {
		t.Errorf("while the volume is being deleted, after %d steps: %+v", second.Steps, step)
	}
	e.Abandon(second)
	if !e.isDeleting("vol-1") {
		t.Fatal("a session that called nothing ends the call of another")
	}
	if step := e.Answer(first, Reply{Outcome: Refused}, at); step.Report.Kind != FailedByCause {
		t.Errorf("refused: %+v", step)
	}
	if second, step = drive("other"); step.Result != Asks {
		t.Errorf("after the answer: %+v", step)
	}
	e.Abandon(first)
	if !e.isDeleting("vol-1") {
		t.Error("a session that has its answer ends the call of another")
	}
	sent := func(s *Session) bool { return e.Tracker.Records[s.Facts.PV.UID].read().Done.Sent }
	if sent(first) || sent(second) {
		t.Error("a refused call, or one without an answer yet, counts as sent")
	}
	e.Abandon(second)
	if e.isDeleting("vol-1") || !sent(second) {
		t.Error("a session that was abandoned keeps the volume busy, or does not count as sent")
	}
}

// A dry run makes the reads, and ends before the step that writes. An end is settled by that.
func TestDryRunReadsOnly(t *testing.T) {
	e, _ := engineOf(released().PV)
	e.DryRun = true
	s, _ := beginOn(t, e, Item{Name: "pv"})
	if step := answerReads(t, e, s); step.Result != Idle || step.Report.Kind != Would || step.Settled ||
		step.Decision.Action != DeleteVolume || s.Reads == 0 {
		t.Errorf("a PV, after %d reads: %+v", s.Reads, step)
	}
	e, _, s = afterItsEnd(t)
	e.DryRun = true
	if step := answerReads(t, e, s); step.Report.Kind != Would || !step.Settled || len(e.Items("a")) != 1 {
		t.Errorf("an end: %+v", step)
	}
}

// An admission policy may put the companion's finalizer back in each write to a PV that is not terminating.
func TestOwnerRemovesCompanionsFinalizerLast(t *testing.T) {
	pv := released().PV
	guardedByCompanion(&pv)
	e, _ := engineOf(pv)
	s, _ := beginOn(t, e, Item{Name: "pv"})
	answerReads(t, e, s)
	for _, want := range []Action{DeletePV, FinalizePV} {
		if step := e.Answer(s, Reply{Outcome: OK}, leading()); step.Decision.Action != want {
			t.Fatalf("%s: %+v", want, step)
		}
	}
	if both := []string{volume.Finalizer, volume.CompanionFinalizer}; !slices.Equal(s.Ask.Remove, both) {
		t.Errorf("removes %q, want %q", s.Ask.Remove, both)
	}
}

// Additional reports come with the answer that shows them.
func TestReportsAfterDeleteVolume(t *testing.T) {
	at, tooLate := leading(), Report{Besides, ReasonTooLateToKeep, ""}
	ok := Reply{Outcome: OK, Found: true}
	for name, c := range map[string]struct {
		reply     Reply
		meanwhile func(*volume.PV)
		want      Report
	}{
		"a PV":                        {ok, func(*volume.PV) {}, Report{}},
		"it was bound meanwhile":      {ok, in(volume.PhaseBound), tooLate},
		"another claim is named":      {ok, claimUID("newer"), tooLate},
		"it is to be kept by now":     {ok, of(volume.PolicyRetain), tooLate},
		"it is held by now":           {ok, held, tooLate},
		"the answer does not show it": {Reply{Outcome: OK}, func(pv *volume.PV) { *pv = volume.PV{} }, Report{}},
		"the write is refused": {Reply{Outcome: Restored, Found: true},
			of(volume.PolicyRetain), Report{}},
	} {
		e, _ := engineOf(released().PV)
		s, _ := beginOn(t, e, Item{Name: "pv"})
		answerReads(t, e, s)
		for _, want := range []Action{DeletePV, FinalizePV} {
			if step := e.Answer(s, Reply{Outcome: OK}, at); step.Decision.Action != want || step.Besides != (Report{}) {
				t.Fatalf("%s: %+v", name, step)
			}
		}
		c.reply.PV = s.Facts.PV
		c.meanwhile(&c.reply.PV)
		if step := e.Answer(s, c.reply, at); step.Besides != c.want {
			t.Errorf("%s: %+v", name, step)
		}
	}
	for name, c := range map[string]struct {
		meanwhile func(*volume.PV)
		want      Report
	}{
		"its end is seen before the answer":      {func(*volume.PV) {}, Report{}},
		"its end is seen, and that it was bound": {in(volume.PhaseBound), tooLate},
	} {
		e, cache := engineOf(released().PV)
		s, _ := beginOn(t, e, Item{Name: "pv"})
		answerReads(t, e, s)
		for range 2 {
			e.Answer(s, ok, at)
		}
		last := s.Facts.PV
		c.meanwhile(&last)
		e.PVDeleted(cache["pv"], true, now())
		if step := e.Answer(s, Reply{Outcome: OK, Found: true, PV: last}, at); step.Besides != c.want {
			t.Errorf("%s: %+v", name, step)
		}
	}
	for name, meanwhile := range map[string]func(*Engine){
		"a PV that is gone":                 func(*Engine) {},
		"a PV that is gone, as is its term": func(e *Engine) { e.Lead(false); e.Lead(true) },
	} {
		e, _, s := afterItsEnd(t)
		answerReads(t, e, s)
		meanwhile(e)
		step := e.Answer(s, Reply{Outcome: OK}, at)
		if want := (Report{Besides, ReasonUnprotectedReclaim, `Volume "vol-a".`}); step.Besides != want || !step.Settled ||
			step.Decision.Reason != ReasonGone {
			t.Errorf("%s: %+v", name, step)
		}
	}
}

// An event ends a wait if one is sure to come; only other waits are timed.
func TestResultOfWait(t *testing.T) {
	held, attached := released().PV, inUse("a")
	held.Held = true
	e, _ := engineOf(held, attached)
	if _, step := beginOn(t, e, Item{Name: "pv"}); step.Result != Idle ||
		step.Report != (Report{Waits, ReasonHeld, `Its reason: "".`}) {
		t.Errorf("held: %+v", step)
	}
	used := inUse("b")
	used.Terminating, used.TerminatingSince = true, now().Unix()
	e, _ = engineOf(used, attached)
	if _, step := beginOn(t, e, Item{Name: "b"}); step.Result != Later || step.Decision.Quiet != time.Minute ||
		step.Report != (Report{Counts, ReasonTerminatingBound, ""}) {
		t.Errorf("terminating while bound: %+v", step)
	}
	f, _ := e.Facts(Item{Name: "a"}, Moment{Now: now()})
	if _, step := e.Begin(f, leading()); step.Result != Retry || step.Report.Kind != None {
		t.Errorf("the lease came back after the facts were read: %+v", step)
	}
}

// The finalizer counts as removed if the PV was gone before the removal.
func TestFinalizedByOutcome(t *testing.T) {
	for outcome := Unanswered; outcome <= Canceled; outcome++ {
		pv := released().PV
		pv.Terminating = true
		e, _ := engineOf(pv)
		e.Tracker.done(pv.UID, func(d *Done) { *d = done(pv, true, false) })
		s, _ := beginOn(t, e, Item{Name: "pv"})
		e.Answer(s, Reply{Outcome: outcome}, leading())
		if got := e.Tracker.Records[pv.UID].Activity.Done.Finalized; got != (outcome == OK || outcome == Gone) {
			t.Errorf("outcome %d: finalized: %t", outcome, got)
		}
	}
}

// The loop of first-time protection reports failures.
func TestAnswerProtect(t *testing.T) {
	at := leading()
	for outcome, want := range map[Outcome]Step{
		OK:      {Result: Idle},
		Refused: {Result: Slow, Report: Report{FailedByCause, ReasonAPIWriteFailed, ""}},
	} {
		pv := inUse("a", unguarded)
		e, _ := engineOf(pv)
		if _, needed := e.BeginProtect("nobody", at); needed {
			t.Error("a PV that is not known needs protection")
		}
		a, needed := e.BeginProtect("a", at)
		if want.Decision = a.Decision; !needed {
			t.Fatal("an unprotected PV needs no protection")
		}
		if got := e.AnswerProtect(a, Reply{Outcome: outcome}, at); !reflect.DeepEqual(got, want) {
			t.Errorf("outcome %d: %+v, want %+v", outcome, got, want)
		}
	}
}

// A peer has most likely deleted the volume of a PV that was released before it was terminating.
func TestRepeated(t *testing.T) {
	for role, want := range map[volume.Role]bool{volume.RoleOwner: false, volume.RoleCompanion: true} {
		for _, released := range []bool{false, true} {
			s := &Session{Facts: with(as(role), func(s *Facts) { s.History.SeenReleased = released })}
			if got := s.Repeated(); got != (want && released) {
				t.Errorf("role %s, released before %t: repeated %t", role, released, got)
			}
		}
	}
}

// TestEngineIsPure lists all imports, including the imports of package session.
func TestEngineIsPure(t *testing.T) {
	const own = "github.com/csi-reclaimer/csi-reclaimer/"
	allowed := []string{
		"cmp", "fmt", "slices", "strings", "time", "k8s.io/apimachinery/pkg/types",
		"k8s.io/apimachinery/pkg/util/resourceversion",
		own + "internal/engine/pvclaim", own + "internal/engine/session", own + "internal/plural", own + "internal/reasons",
		own + "pkg/volume",
	}
	files, err := filepath.Glob("*.go")
	shared, sharedErr := filepath.Glob("../session/*.go")
	if err != nil || sharedErr != nil || len(files) == 0 || len(shared) == 0 {
		t.Fatal(files, shared, err, sharedErr)
	}
	for _, name := range append(files, shared...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
		for _, spec := range file.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err != nil || !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			}
		}
	}
}
