package provision

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// Each operand of a condition counts by itself, even where present facts never have one without the other.
func TestDecideByEachOperand(t *testing.T) {
	late := func(f *Facts) {
		f.Claim.SelectedNode = "b"
		f.Record.Requests[0].Node, f.Record.Requests[0].MayReschedule = "a", true
	}
	unsent := func(f *Facts) { f.Record = Opened(uid, Request{}) }
	cases := map[string]struct {
		facts  Facts
		action Action
		reason Reason
	}{
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
			if d := Decide(tc.facts, now, quiet); d.Action != tc.action || d.Reason != tc.reason {
				t.Errorf("got %s because %s, want %s because %s", d.Action, d.Reason, tc.action, tc.reason)
			}
		})
	}
}

func TestZeroValuesProveNoState(t *testing.T) {
	var never time.Time
	for name, is := range map[string]bool{
		"a PV that does not exist is stored":             PV{OfClaim: true, OfDriver: true}.stored(),
		"a PV that does not exist names a volume":        PV{OfDriver: true, Handle: "vol-1"}.Names("vol-1"),
		"a PV without handle names a volume without one": PV{Exists: true, OfDriver: true}.Names(""),
		"a read that was never made is fresh":            Claim{}.Fresh(never.Add(time.Second)),
		"a PV that was not read is fresh":                PV{Read: now}.Fresh(now),
	} {
		if is {
			t.Error(name)
		}
	}
}

func TestRecordByEachOperand(t *testing.T) {
	var never time.Time
	r := Opened(uid, Request{Node: "a", MayReschedule: true})
	if !r.Quiet(never, quiet) {
		t.Error("a record without a call is not quiet")
	}
	if at := r.Add(Request{Node: "b"}); at != 0 || r.Count != 1 {
		t.Errorf("a request that was not sent is not replaced: %d of %d", at, r.Count)
	}
	none := Record{}
	if none.Settled() || none.Unsent() {
		t.Error("a record without requests is settled, or known to be unsent")
	}
	if sent := Inherited(uid, []Request{{}}, now); !r.Unsent() || sent.Unsent() {
		t.Errorf("a new request is unsent: %t; an earlier process's: %t", r.Unsent(), sent.Unsent())
	}
	r.Requests[0].Settled = true
	if !r.Settled() {
		t.Error("a record whose request is settled is not")
	}
	r.Volume = VolumeMade
	if r.Settled() {
		t.Error("a record with a volume is settled")
	}
}

func TestSettledRequestAllowsNoNode(t *testing.T) {
	r := Opened(uid, Request{Node: "a", MayReschedule: true})
	r.Requests[0] = Request{Node: "c", MayReschedule: true, Sent: true, Settled: true}
	r.By = 0
	if r.takesNode("d") {
		t.Error("a request that made nothing lets another node be added")
	}
}

func TestLearnKeepsDiscarding(t *testing.T) {
	f := made(unfit, discarding)
	f.Learn(MarkDiscarding, Reply{Class: errclass.Refused, Log: LogOpen}, false, now, now, quiet)
	if !f.Record.Discarding {
		t.Error("a mark is lost with the write of another")
	}
}
