package reclaim

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Each outcome of a step determines the retry and the report.
func TestFailedStepResult(t *testing.T) {
	want := map[Outcome]struct {
		result Result
		kind   Kind
	}{
		Unanswered: {Retry, Failed},
		Changed:    {Soon, None},
		Gone:       {Idle, None},
		Restored:   {Slow, FailedByCause},
		Refused:    {Slow, FailedByCause},
		Unclear:    {Slow, FailedByCause},
		InProgress: {Retry, Counts},
		Stale:      {Soon, Failed},
		NotSent:    {Retry, None},
		Canceled:   {Idle, None},
	}
	for outcome := Unanswered; outcome <= Canceled; outcome++ {
		w, listed := want[outcome]
		if listed == (outcome == OK) {
			t.Fatalf("outcome %d is not listed", outcome)
		}
		if !listed {
			continue
		}
		got := failed(do(ReadPV, ReasonReclaim), ReasonAPIReadFailed, outcome)
		if got.Result != w.result || got.Report.Kind != w.kind {
			t.Errorf("outcome %d: result %d, report %d, want %+v", outcome, got.Result, got.Report.Kind, w)
		}
	}
	for outcome, reason := range map[Outcome]Reason{
		Unclear: ReasonSecretUnclear, Stale: ReasonCacheStale, Unanswered: ReasonAPIReadFailed, Refused: ReasonAPIReadFailed,
	} {
		if got := readFailed(outcome); got != reason {
			t.Errorf("a read with outcome %d: %s, want %s", outcome, got, reason)
		}
	}
	for _, outcome := range []Outcome{OK, Gone} {
		if got := written(Ask{}, Reply{Outcome: outcome}); got.Result != Idle || got.Report.Kind != None {
			t.Errorf("a write with outcome %d: %+v", outcome, got)
		}
	}
}

// asking returns a session on a released PV that waits for the answer to this step.
func asking(a Action) *Session {
	s := &Session{Facts: released()}
	s.Facts.PVRead = session.Read{}
	s.Ask = Ask{Decision: do(a, ReasonReclaim), PV: s.Facts.PV, Read: read(4, 0)}
	return s
}

// Only a live read that finds the PV itself counts as a read of it.
func TestReadOfAnotherPVEndsSession(t *testing.T) {
	namesake := released().PV
	namesake.UID = "another"
	for name, reply := range map[string]Reply{
		"gone":             {Outcome: OK, PV: released().PV},
		"one of its name":  {Outcome: OK, PV: namesake, Found: true},
		"the PV, released": {Outcome: OK, PV: released().PV, Found: true},
	} {
		s := asking(ReadPV)
		over, _ := s.read(reply)
		itself := reply.Found && reply.PV.UID == s.Ask.PV.UID
		if over == itself || (s.Facts.PVRead != session.Read{}) != itself {
			t.Errorf("%s: over %t, read %+v", name, over, s.Facts.PVRead)
		}
	}
}

// A PV that names another claim or Secret than the PV that was asked for does not count as read last. The end of that
// claim may be younger than the read, and the Secret in hand is another one.
func TestReadOfChangedPVIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(*volume.PV)
		last, secrets bool
	}{
		"unchanged":          {func(*volume.PV) {}, true, true},
		"another version":    {func(pv *volume.PV) { pv.ResourceVersion = "11" }, true, true},
		"another claim":      {claimUID("another"), false, true},
		"another Secret":     {func(pv *volume.PV) { pv.DeletionSecret.Name = "another" }, false, false},
		"no Secret":          {func(pv *volume.PV) { pv.SecretKnown = !pv.SecretKnown }, false, false},
		"another class":      {func(pv *volume.PV) { pv.StorageClass = "another" }, false, false},
		"set to Retain only": {of(volume.PolicyRetain), true, true},
	} {
		s, pv := asking(ReadPV), released().PV
		s.Facts.SecretsRead = true
		c.change(&pv)
		s.read(Reply{Outcome: OK, Found: true, PV: pv})
		if last := s.Facts.PVRead != (session.Read{}); last != c.last || s.Facts.SecretsRead != c.secrets {
			t.Errorf("%s: read last %t, Secrets read %t", name, last, s.Facts.SecretsRead)
		}
	}
}

// The volume of a PV that is gone is shared if a live list has PVs that name it.
func TestPVsListedFindsSharedVolume(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*volume.PV)
		shared bool
	}{
		"another PV of the volume":            {func(*volume.PV) {}, true},
		"another PV, the handle in capitals":  {handle("VOL-1"), true},
		"the PV itself, restored with etcd":   {uidIs(released().PV.UID), true},
		"another volume":                      {handle("vol-2"), false},
		"a volume of that name of a stranger": {ofDriver("other"), false},
	} {
		s, pv := asking(ListPVs), sibling()
		c.change(&pv)
		if s.read(Reply{Outcome: OK, PVs: []volume.PV{pv}}); s.Facts.End.Shared != c.shared {
			t.Errorf("%s: shared %t", name, s.Facts.End.Shared)
		}
	}
}

// A sibling that is to be deleted needs the volume while its claim does. A sibling that a live read does not find is
// absent.
func TestSiblingsRead(t *testing.T) {
	live, lost, third := sibling(), sibling(), sibling()
	lost.UID, third.UID, third.Policy = "lost", "third", volume.PolicyRetain
	exists := pvclaim.Result{Of: live.Claim, Found: true, UID: live.Claim.UID, VolumeName: live.Name}
	kept := live
	kept.Policy = volume.PolicyRetain
	for name, c := range map[string]struct {
		found  volume.PV
		claim  pvclaim.Result
		needed string
	}{
		"its claim exists":       {live, exists, live.Name},
		"its claim was not read": {live, pvclaim.Result{}, live.Name},
		"its claim is gone":      {live, pvclaim.Result{Of: live.Claim}, ""},
		"kept, despite claims":   {kept, exists, ""},
	} {
		s := asking(ReadSiblings)
		s.Ask.Siblings = []volume.PV{live, lost, third}
		s.siblingsRead(Reply{Outcome: OK, PVs: []volume.PV{c.found, third},
			Claims: map[types.UID]pvclaim.Result{live.UID: c.claim}})
		if s.Facts.SiblingNeeded != c.needed || !slices.Equal(s.Absent, []types.UID{"lost"}) {
			t.Errorf("%s: needed %q, absent %v", name, s.Facts.SiblingNeeded, s.Absent)
		}
	}
}

// A PV that has taken the name of a sibling counts if it names the volume, and keeps it: its claim was not read.
func TestSiblingsReadCountNewPVOfVolume(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*volume.PV)
		counts bool
	}{
		"the volume":                   {func(*volume.PV) {}, true},
		"the volume, in capitals":      {handle("VOL-1"), true},
		"another volume":               {handle("vol-2"), false},
		"a volume of another driver":   {ofDriver("other"), false},
		"another volume, the same UID": {func(pv *volume.PV) { pv.UID, pv.Handle = sibling().UID, "vol-2" }, true},
	} {
		found := sibling(uidIs("newer"))
		c.change(&found)
		s := asking(ReadSiblings)
		s.Ask.Siblings = []volume.PV{sibling()}
		s.siblingsRead(Reply{Outcome: OK, PVs: []volume.PV{found}})
		if counts := s.Facts.SiblingNeeded == found.Name; counts != c.counts || counts != (len(s.Facts.Siblings) == 1) {
			t.Errorf("%s: siblings %v, needed %q", name, s.Facts.Siblings, s.Facts.SiblingNeeded)
		}
		if absent := found.UID != sibling().UID; absent != slices.Contains(s.Absent, sibling().UID) {
			t.Errorf("%s: absent %v", name, s.Absent)
		}
	}
}

// A claim that is alive, was not read, or took over the name and names the PV keeps the volume.
func TestClaimNeedsVolume(t *testing.T) {
	pv := released().PV
	for name, c := range map[string]struct {
		claim pvclaim.Result
		needs bool
	}{
		"not read":            {pvclaim.Result{}, true},
		"gone":                {pvclaim.Result{Of: pv.Claim}, false},
		"alive":               {pvclaim.Result{Of: pv.Claim, Found: true, UID: pv.Claim.UID}, true},
		"another of the name": {pvclaim.Result{Of: pv.Claim, Found: true, UID: "new"}, false},
		"another of the name, which names the PV": {
			pvclaim.Result{Of: pv.Claim, Found: true, UID: "new", VolumeName: pv.Name}, true},
	} {
		if got := ClaimNeedsVolume(pv, c.claim); got != c.needs {
			t.Errorf("%s: needs it %t", name, got)
		}
	}
}

// A PV is decided on only once its event was received, and only if the driver owns it.
func TestFactsOfKnownPVs(t *testing.T) {
	e, cache := engineOf(inUse("a"), inUse("given"))
	unseen, foreign := inUse("unseen"), inUse("foreign")
	foreign.ProvisionedBy = "other"
	cache["unseen"], cache["foreign"] = &unseen, &foreign
	cache["given"].ProvisionedBy = "other" // to another driver
	for name, want := range map[string]bool{"a": true, "unseen": false, "foreign": false, "given": false,
		"nobody": false} {
		if _, found := e.Facts(Item{Name: name}, Moment{Now: now()}); found != want {
			t.Errorf("PV %s: found %t", name, found)
		}
	}
	if _, found := e.Facts(Item{Name: "a", Gone: "a"}, Moment{Now: now()}); found {
		t.Error("a PV that exists has an end")
	}
}

func TestAttachmentsOfSiblingsCount(t *testing.T) {
	other := inUse("b", handle("vol-a"))
	e, cache := engineOf(inUse("a"), other)
	e.AttachmentAdded("b")
	if f, _ := e.Facts(Item{Name: "a"}, Moment{Now: now()}); f.Attachments != 1 {
		t.Errorf("%d attachments, want that of b", f.Attachments)
	}
	last := *cache["a"]
	delete(cache, "a")
	e.PVDeleted(&last, true, now())
	f, found := e.Facts(Item{Name: "a", Gone: "a"}, Moment{Now: now()})
	if !found || f.Attachments != 1 || len(f.Siblings) != 1 {
		t.Errorf("after the end of a: found %t, %d attachments, siblings %v", found, f.Attachments, f.Siblings)
	}
	again := inUse("a")
	again.UID = "again"
	cache["a"] = &again
	e.PVAdded(&again, now())
	e.AttachmentAdded("a")
	if f, _ = e.Facts(Item{Name: "a", Gone: "a"}, Moment{Now: now()}); f.Attachments != 2 || len(f.Siblings) != 2 {
		t.Errorf("another PV has its name and volume: %d attachments, siblings %v", f.Attachments, f.Siblings)
	}
	delete(cache, "b") // its event is still to come
	if f, _ = e.Facts(Item{Name: "a"}, Moment{Now: now()}); len(f.Siblings) > 0 {
		t.Errorf("b is gone: siblings %v", f.Siblings)
	}
}

// A later leader must not act on ends that an earlier one observed.
func TestTombstonesEndWithTerm(t *testing.T) {
	e, cache := engineOf(inUse("a"))
	last := *cache["a"]
	delete(cache, "a")
	e.PVDeleted(&last, true, now())
	if e.Lead(true); len(e.Items("a")) != 2 || !slices.Contains(e.Names(), "a") {
		t.Error("forgotten while it leads")
	}
	if e.Lead(false); len(e.Items("a")) != 1 || e.Tracker.Tracks("a") {
		t.Error("remembered after the term")
	}
}

// A PV that is kept after a DeleteVolume whose outcome is not known has a warning. A call that was
// refused or not sent changes nothing.
func TestKeptPVAfterUnansweredDeleteVolume(t *testing.T) {
	keeps := sibling(of(volume.PolicyRetain))
	kept := map[string]func(e *Engine, cache pvs){
		"held":     func(_ *Engine, cache pvs) { cache["pv"].Held = true },
		"Retain":   func(_ *Engine, cache pvs) { cache["pv"].Policy = volume.PolicyRetain },
		"rebound":  func(_ *Engine, cache pvs) { cache["pv"].Claim.UID = "newer" },
		"unbound":  func(_ *Engine, cache pvs) { cache["pv"].Claim.UID = "" },
		"shared":   func(e *Engine, cache pvs) { cache["other"] = &keeps; e.PVAdded(&keeps, now()) },
		"deleting": func(*Engine, pvs) {},
	}
	for name, keep := range kept {
		for _, outcomes := range [][]Outcome{{Unanswered}, {InProgress}, {Canceled}, {Unanswered, Refused},
			{InProgress, NotSent}, {Refused}, {NotSent}} {
			e, cache := engineOf(released().PV)
			for _, outcome := range outcomes {
				s, _ := beginOn(t, e, Item{Name: "pv"})
				answerReads(t, e, s)
				e.Answer(s, Reply{Outcome: outcome}, leading())
			}
			keep(e, cache)
			_, step := beginOn(t, e, Item{Name: "pv"})
			sent := outcomes[0] != Refused && outcomes[0] != NotSent
			if warned := step.Besides.Reason == ReasonTooLateToKeep; warned != (sent && name != "deleting") {
				t.Errorf("%s after %v: %+v", name, outcomes, step)
			}
		}
	}
}

// A volume whose handle differs in case from that of another PV may be another one.
func TestHandlesThatDifferInCaseAreNamed(t *testing.T) {
	s, other := released(), sibling()
	other.Handle, other.Policy = "VOL-1", volume.PolicyRetain
	s.Siblings = []volume.PV{other}
	for reason, want := range map[Reason]string{
		ReasonSharedHandle:     `handle "VOL-1" and that of this PV, "vol-1", differ in case`,
		ReasonVolumeLeftBehind: `PV other names "VOL-1", which differs in case`,
	} {
		if got := detail(s, reason); !strings.Contains(got, want) {
			t.Errorf("%s: %q", reason, got)
		}
	}
	s.Siblings[0].Handle = s.PV.Handle
	if got := detail(s, ReasonSharedHandle); got != "It is PV other." {
		t.Errorf("the same handle: %q", got)
	}
}

// A wait's report has the words that its Event adds to the reason: the facts, and the remedy.
func TestReportOfWait(t *testing.T) {
	const handle = `It is volume "vol-1".`
	abandoned := with(pvIs(terminating, unguarded), stripped)
	for _, c := range []struct {
		facts    Facts
		tookOver bool
		want     Report
	}{
		{with(pvIs(in(volume.PhaseBound), terminatingFor(3600))), false, Report{Waits, ReasonTerminatingBound,
			"`kubectl reclaim explain pv/pv` names the pods that use claim ns/claim."}},
		{with(pvIs(held)), true, Report{Waits, ReasonHeld, `Its reason: "".`}},
		{abandoned, false, Report{Waits, ReasonReclaimAbandoned, handle}},
		{abandoned, true, Report{Waits, ReasonReclaimAbandoned,
			handle + " Or the previous leader removed it after it had the volume deleted: it led until a moment ago."}},
	} {
		e, _ := engineOf(c.facts.PV)
		at := leading()
		at.TookOver = c.tookOver
		if _, step := e.Begin(c.facts, at); step.Report != c.want {
			t.Errorf("took over %v: %+v, want %+v", c.tookOver, step.Report, c.want)
		}
	}
}
