package provision

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

func TestDecide(t *testing.T) {
	late := func(f *Facts) {
		f.Claim.SelectedNode = "b"
		f.Record.Requests[0].Node, f.Record.Requests[0].MayReschedule = "a", true
	}
	unconfirmed := func(f *Facts) { f.Confirmed = false }
	taken := func(f *Facts) { f.PV.Handle = "vol-0" }
	settled := func(f *Facts) { f.Record.Requests[0].Settled = true }
	unsent := func(f *Facts) { f.Record = Opened(uid, Request{}) }
	elsewhere := func(f *Facts) { f.PV.Handle, f.PV.Elsewhere = "vol-0", true }
	terminating := func(f *Facts) { f.PV.Terminating = true }
	others := func(f *Facts) { f.PV.OfClaim = false }
	unnamed := func(f *Facts) { f.PV.Handle = "" }
	unread := func(f *Facts) { f.PV = PV{} }
	twice := func(f *Facts) { f.Record.Add(Request{Node: "c"}); f.Record.Sending() }
	cases := map[string]struct {
		facts  Facts
		action Action
		reason Reason
	}{
		"nothing is known":                  {Facts{}, Wait, ReasonNotLeading},
		"another replica leads":             {waiting(func(f *Facts) { f.MayAct = false }), Wait, ReasonNotLeading},
		"another replica leads, entry open": {begun(func(f *Facts) { f.MayAct = false }), Wait, ReasonNotLeading},
		"the log was not read":              {waiting(func(f *Facts) { f.Log = LogUnknown }), Wait, ReasonLogNotRead},
		"a write of the log is on its way":  {begun(func(f *Facts) { f.Log = LogChanging }), Wait, ReasonLogChanging},
		"there is no claim":                 {waiting(func(f *Facts) { f.Claim = Claim{} }), Wait, ReasonNotOurs},
		"another driver's claim":            {waiting(func(f *Facts) { f.Claim.Ours = false }), Wait, ReasonNotOurs},
		"a claim that is terminating":       {waiting(func(f *Facts) { f.Claim.Terminating = true }), Wait, ReasonNotNeeded},
		"a claim that is gone":              {waiting(gone), Wait, ReasonNotNeeded},
		"a claim that is bound":             {waiting(func(f *Facts) { f.Claim.VolumeName = "x" }), Wait, ReasonNotNeeded},
		"another node is selected": {waiting(func(f *Facts) { f.Claim.Node = NodeElsewhere }), Wait,
			ReasonOtherNode},
		"its PV is stored": {waiting(cached), Wait, ReasonStored},
		"its PV is terminating": {waiting(cached, func(f *Facts) { f.PV.Terminating = true }), Wait,
			ReasonNameTaken},
		"its PV is on another node": {waiting(cached, func(f *Facts) { f.PV.Elsewhere = true }), Wait,
			ReasonNameTaken},
		"its PV's name is another claim's": {waiting(cached, func(f *Facts) { f.PV.OfClaim = false }), Wait,
			ReasonNameTaken},
		"its PV's name is another driver's": {waiting(cached, func(f *Facts) { f.PV.OfDriver = false }), Wait,
			ReasonNameTaken},
		"the entry is another claim's":    {waiting(func(f *Facts) { f.Log = LogOthers }), Wait, ReasonNameTaken},
		"the entry cannot be read":        {waiting(func(f *Facts) { f.Log = LogUnreadable }), Wait, ReasonLogUnreadable},
		"the log is full":                 {waiting(func(f *Facts) { f.Log = LogFull }), Wait, ReasonLogFull},
		"no class, or no node":            {waiting(func(f *Facts) { f.Wanted = false }), Wait, ReasonNotWanted},
		"the request is not composed":     {waiting(func(f *Facts) { f.Composed = false }), BuildRequest, ReasonProvision},
		"its Secret was not read":         {waiting(func(f *Facts) { f.Prepared = false }), Prepare, ReasonProvision},
		"a claim that waits":              {waiting(), OpenEntry, ReasonProvision},
		"it may have had an entry before": {waiting(func(f *Facts) { f.First = false }), ReadPV, ReasonProvision},
		"and no PV was found": {waiting(absent, func(f *Facts) { f.First = false }), ReadClaim,
			ReasonProvision},
		"and the claim was found": {waiting(absent, func(f *Facts) { f.First, f.Claim.Read = false, now }),
			OpenEntry, ReasonProvision},
		"and that was a while ago": {waiting(absent,
			func(f *Facts) { f.First, f.Claim.Read = false, now.Add(-time.Hour) }), ReadClaim, ReasonProvision},
		"this node is selected": {waiting(func(f *Facts) { f.Claim.Node = NodeHere }), ReadPV, ReasonProvision},
		"this node is, and no PV was found": {waiting(absent, func(f *Facts) { f.Claim.Node = NodeHere }), OpenEntry,
			ReasonProvision},
		"an entry of an earlier session":       {begun(unconfirmed), ConfirmEntry, ReasonFinish},
		"and its volume is made":               {made(unconfirmed), ConfirmEntry, ReasonFinish},
		"and its PV's name is another claim's": {made(live, taken, unconfirmed), ConfirmEntry, ReasonFinish},
		"and it is settled":                    {begun(settled, unconfirmed), ConfirmEntry, ReasonFinish},
		"the driver's version is not noted":    {begun(func(f *Facts) { f.VersionNoted = false }), NoteVersion, ReasonFinish},
		"nor is it for a first call": {begun(unsent, func(f *Facts) { f.VersionNoted = false }), NoteVersion,
			ReasonProvision},
		"an entry that was written":    {begun(unsent), CreateVolume, ReasonProvision},
		"an entry, and the claim goes": {begun(gone, unsent), CloseEntry, ReasonNotBegun},
		"an inherited entry, and it is gone": {begun(gone,
			func(f *Facts) { f.Record = Inherited(uid, []Request{{}}, now) }), CreateVolume, ReasonFinish},
		"a call was not answered":           {begun(), CreateVolume, ReasonFinish},
		"a call was not answered, no claim": {begun(gone), CreateVolume, ReasonFinish},
		"and its PV was not read":           {begun(unread), ReadPV, ReasonFinish},
		"and its PV was read a while ago": {begun(func(f *Facts) { f.PV.Read = now.Add(-time.Hour) }), ReadPV,
			ReasonFinish},
		"a call was not answered, and a cache shows the PV":    {begun(cached), ReadPV, ReasonFinish},
		"a call was not answered, and the PV is there":         {begun(live), CloseEntry, ReasonStored},
		"a call may still come, and the PV is there":           {begun(live, loud), Wait, ReasonNotQuiet},
		"a call was not answered, and the PV is terminating":   {begun(live, terminating), CloseEntry, ReasonStored},
		"a call was not answered, and the PV is on a node":     {begun(live, elsewhere), CreateVolume, ReasonFinish},
		"a call was not answered, and the PV is another's":     {begun(live, others), CreateVolume, ReasonFinish},
		"a call was not answered, and the PV has no handle":    {begun(live, unnamed), CreateVolume, ReasonFinish},
		"one of two calls was, and the PV is there":            {begun(live, twice), CreateVolume, ReasonFinish},
		"a volume may be deleted, and the PV is there":         {begun(live, discarding), CreateVolume, ReasonFinish},
		"two calls were not answered, and the PV was not read": {begun(twice, unread), CreateVolume, ReasonFinish},
		"no call was sent, and the PV is there":                {begun(live, unsent), CloseEntry, ReasonStored},
		"the request made nothing":                             {begun(settled), CloseEntry, ReasonNothingMade},
		"another node is selected meanwhile":                   {begun(late), OpenEntry, ReasonFinish},
		"and the request is not composed": {
			begun(late, func(f *Facts) { f.Composed = false }), BuildRequest, ReasonFinish},
		"and its Secret was not read": {begun(late, func(f *Facts) { f.Prepared = false }), Prepare, ReasonFinish},
		"and that failed":             {begun(late, func(f *Facts) { f.SecondFailed = true }), CreateVolume, ReasonFinish},
		"and the claim is gone":       {begun(late, gone), CreateVolume, ReasonFinish},
		"and the class binds immediately": {begun(late, func(f *Facts) { f.Record.Requests[0].MayReschedule = false }),
			CreateVolume, ReasonFinish},
		"the volume is made":              {made(), StorePV, ReasonProvision},
		"the volume is made, no claim":    {made(gone), StorePV, ReasonProvision},
		"its PV is there":                 {made(live), CloseEntry, ReasonStored},
		"its PV is there, calls may come": {made(live, loud), Wait, ReasonNotQuiet},
		"only a cache shows its PV":       {made(cached), ReadPV, ReasonFinish},
		"a read of its PV was a while ago": {made(live, func(f *Facts) { f.PV.Read = now.Add(-time.Hour) }), ReadPV,
			ReasonFinish},
		"a PV of another handle is there": {made(live, func(f *Facts) { f.PV.Handle = "vol-0" }), Wait, ReasonNameTaken},
		"a PV of another driver is there": {made(live, func(f *Facts) { f.PV.OfDriver = false }), Wait, ReasonNameTaken},
		"another node's PV has the name":  {made(live, gone, elsewhere), StoreApart, ReasonFinish},
		"and the claim is not bound yet":  {made(live, elsewhere), Wait, ReasonNameTaken},
		"and the PV is stored apart": {made(live, gone, func(f *Facts) { f.Apart = f.PV }, elsewhere), CloseEntry,
			ReasonStored},
		"and only a cache shows that": {made(cached, gone, func(f *Facts) { f.Apart = f.PV }, live, elsewhere), StoreApart,
			ReasonFinish},
		"an unfit volume":         {made(unfit), MarkDiscarding, ReasonDiscard},
		"an unfit volume, marked": {made(unfit, discarding), ReadPV, ReasonDiscard},
		"and only a cache shows no PV": {made(unfit, discarding, func(f *Facts) { f.PV = PV{Known: true} }), ReadPV,
			ReasonDiscard},
		"and a live read found none": {made(unfit, discarding, absent), DeleteVolume, ReasonDiscard},
		"and that was long ago": {made(unfit, discarding,
			func(f *Facts) { f.PV = PV{Known: true, Read: now.Add(-time.Hour)} }), ReadPV, ReasonDiscard},
		"a PV names an unfit volume":        {made(unfit, discarding, live), CloseEntry, ReasonStored},
		"a PV names it, and calls may come": {made(unfit, discarding, live, loud), Wait, ReasonNotQuiet},
		"only a cache shows that a PV does": {made(unfit, discarding, cached), ReadPV, ReasonFinish},
		"a PV that was stored apart names it": {made(unfit, discarding, absent, func(f *Facts) {
			f.Apart = PV{Known: true, Exists: true, OfDriver: true, Handle: f.Record.Handle, Read: now}
		}), Wait, ReasonHasAnother},
		"a PV names it in another case": {made(unfit, discarding, live,
			func(f *Facts) { f.PV.Handle = "VOL-1" }), CloseEntry, ReasonStored},
		"the claim's PV may name it in another form": {made(unfit, discarding, live, migrated), Wait, ReasonHasAnother},
		"another claim's PV has the name": {made(unfit, discarding, live, migrated,
			func(f *Facts) { f.PV.OfClaim = false }), DeleteVolume, ReasonDiscard},
		"another driver's PV has the name": {made(unfit, discarding, live, migrated,
			func(f *Facts) { f.PV.OfDriver = false }), DeleteVolume, ReasonDiscard},
		"no PV has the name": {made(unfit, discarding, absent, migrated), DeleteVolume, ReasonDiscard},
		"another PV names it": {made(unfit, discarding, absent, func(f *Facts) { f.Shared = true }), Wait,
			ReasonHasAnother},
		"another claim may have the name": {made(unfit, discarding, absent,
			func(f *Facts) { f.Claim.PVName = "pvc-1111" }), Wait, ReasonHasAnother},
		"deleted, and calls may come":        {begun(discarding, loud), Wait, ReasonNotQuiet},
		"deleted, and no call can come":      {begun(discarding), CreateVolume, ReasonFinish},
		"deleted, and nothing was under way": {begun(discarding, settled), CloseEntry, ReasonNothingMade},
		"the volume is as requested at last": {made(discarding), StorePV, ReasonProvision},
		"an open entry needs no other reads": {begun(func(f *Facts) { f.First = false }), CreateVolume, ReasonFinish},
		"no room for a third request":        {begun(late, twice), CreateVolume, ReasonFinish},
		"the second request was never sent": {begun(late, func(f *Facts) { f.Record.Add(Request{Node: "c"}) }), OpenEntry,
			ReasonFinish},
		"the node's request is under way": {begun(late, func(f *Facts) { f.Record.Add(Request{Node: "b"}) }),
			CreateVolume, ReasonFinish},
		"the node's request was just refused": {begun(late,
			func(f *Facts) { f.Record.Add(Request{Node: "b"}); f.Record.Requests[1].Settled = true; f.Record.By = 1 }),
			CreateVolume, ReasonFinish},
		"and the other one since then": {begun(late,
			func(f *Facts) { f.Record.Add(Request{Node: "b"}); f.Record.Requests[1].Settled = true; f.Record.By = 0 }),
			OpenEntry, ReasonFinish},

		// Each operand of a condition counts by itself, even where present facts never have one without the other.
		"a claim without UID": {waiting(func(f *Facts) { f.Claim.UID = "" }), Wait, ReasonNotOurs},
		"another node, and the class is gone": {begun(late, func(f *Facts) { f.Wanted, f.Composed = false, false }),
			CreateVolume, ReasonFinish},
		"no other node, and nothing is composed": {begun(func(f *Facts) { f.Composed = false }), CreateVolume,
			ReasonFinish},
		"unfit, but no volume is known":          {begun(unfit), CreateVolume, ReasonFinish},
		"no PV names the volume, calls may come": {made(loud), StorePV, ReasonProvision},
		"an entry that was not sent, no claim": {begun(unsent, func(f *Facts) { f.Claim.UID = "" }), CloseEntry,
			ReasonNotBegun},
		"a claim whose volume has another name": {waiting(func(f *Facts) { f.Claim.Renamed = true }), Wait,
			ReasonNotNeeded},
		"an entry that was not sent, another name": {begun(unsent, func(f *Facts) { f.Claim.Renamed = true }), CloseEntry,
			ReasonNotBegun},
		"an entry that was sent, another name": {begun(func(f *Facts) { f.Claim.Renamed = true }), CreateVolume,
			ReasonFinish},
		"an entry that was not sent, not ours": {begun(unsent, func(f *Facts) { f.Claim.Ours = false }), CloseEntry,
			ReasonNotBegun},
		"a PV that does not exist, on another node": {made(gone, func(f *Facts) { f.PV.Elsewhere = true }), StorePV,
			ReasonProvision},
		"a cached PV, and another handle apart": {made(cached, func(f *Facts) {
			f.Apart = PV{Known: true, Exists: true, OfDriver: true, Handle: "vol-0", Read: now}
		}), ReadPV, ReasonFinish},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Decide(tc.facts, now, quiet)
			if d.Action != tc.action || d.Reason != tc.reason {
				t.Errorf("decided %v (%s), want %v (%s)", d.Action, d.Reason, tc.action, tc.reason)
			}
			if d.Action != Wait && (d.Timed || d.Done) {
				t.Errorf("a step is said to be the end: %+v", d)
			}
		})
	}
}

// TestAdds: without these steps, the request of an open entry is sent nevertheless.
func TestAdds(t *testing.T) {
	for a := Wait; a <= SelectNode; a++ {
		want := a == BuildRequest || a == Prepare || a == OpenEntry
		if open, first := begun().Adds(a), waiting().Adds(a); open != want || first {
			t.Errorf("%v: adds to an open entry %t, want %t, and to none %t", a, open, want, first)
		}
	}
}

func TestReschedules(t *testing.T) {
	on := func(edit ...func(*Facts)) Facts {
		return begun(append([]func(*Facts){func(f *Facts) { f.Claim.SelectedNode = "a" }}, edit...)...)
	}
	asked := Request{Node: "a", MayReschedule: true, Sent: true}
	for name, tc := range map[string]struct {
		facts Facts
		asked Request
		class errclass.Class
		gone  bool
		want  bool
	}{
		"no room":                        {on(), asked, errclass.Exhausted, false, true},
		"in doubt":                       {on(), asked, errclass.Uncertain, false, false},
		"in doubt, and the node is gone": {on(), asked, errclass.Uncertain, true, true},
		"at work, and the node is gone":  {on(), asked, errclass.InProgress, true, true},
		"refused, and the node is gone":  {on(), asked, errclass.Refused, true, true},
		"made, and the node is gone":     {on(), asked, errclass.Done, true, false},
		"another node is selected already": {on(func(f *Facts) { f.Claim.SelectedNode = "b" }), asked, errclass.Exhausted,
			true, false},
		"the class binds immediately": {on(), Request{Node: "a"}, errclass.Exhausted, true, false},
		"no node was selected": {on(func(f *Facts) { f.Claim.SelectedNode = "" }), Request{MayReschedule: true},
			errclass.Exhausted, true, false},
		"the claim is gone": {on(gone), asked, errclass.Exhausted, true, false},
	} {
		const quiet = time.Minute
		if got := tc.facts.Reschedules(tc.asked, tc.class, tc.gone, 5*quiet, quiet); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if tc.facts.Reschedules(tc.asked, tc.class, tc.gone, 5*quiet-1, quiet) {
			t.Errorf("%s: while the driver may answer with the volume of the first call", name)
		}
		tc.facts.Record.Requests[0].Settled = true
		if got := tc.facts.Reschedules(tc.asked, tc.class, tc.gone, 0, quiet); got != tc.want {
			t.Errorf("%s, and nothing was made: %v, want %v", name, got, tc.want)
		}
	}
}

// An event or the clock ends a wait, or no work is left.
func TestEachWaitEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		facts       Facts
		timed, done bool
	}{
		"another replica leads":            {waiting(func(f *Facts) { f.MayAct = false }), false, false},
		"a write is on its way":            {begun(func(f *Facts) { f.Log = LogChanging }), false, false},
		"no class, or no node":             {waiting(func(f *Facts) { f.Wanted = false }), false, false},
		"another driver's claim":           {waiting(func(f *Facts) { f.Claim.Ours = false }), false, true},
		"a claim that needs no volume":     {waiting(gone), false, true},
		"its PV is stored":                 {waiting(cached), false, true},
		"another node is selected":         {waiting(func(f *Facts) { f.Claim.Node = NodeElsewhere }), false, true},
		"the name is taken":                {made(live, func(f *Facts) { f.PV.Handle = "vol-0" }), true, false},
		"the entry is another claim's":     {waiting(func(f *Facts) { f.Log = LogOthers }), true, false},
		"the log is full":                  {waiting(func(f *Facts) { f.Log = LogFull }), true, false},
		"calls may come":                   {made(live, loud), true, false},
		"deleted, and calls may come":      {begun(discarding, loud), true, false},
		"another PV names an unfit volume": {made(unfit, absent, func(f *Facts) { f.Shared = true }), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if d := Decide(tc.facts, now, quiet); d.Action != Wait || d.Timed != tc.timed || d.Done != tc.done {
				t.Errorf("decided %+v, want timed %v, done %v", d, tc.timed, tc.done)
			}
		})
	}
}

func TestActionsAndReasons(t *testing.T) {
	sessiontest.Names(t, SelectNode)
	sessiontest.Reasons(t, Reasons(), 1)
	if Reason("x").EventType() != "" || ReasonFailed.EventType() == "" {
		t.Error("a reason's Event is wrong")
	}
}
