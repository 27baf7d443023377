package provision

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

var all = []errclass.Class{
	errclass.Uncertain, errclass.Done, errclass.InProgress, errclass.Refused, errclass.NotFound, errclass.Exhausted,
	errclass.Unfit,
}

func TestSettledByAnswer(t *testing.T) {
	final := map[errclass.Class]bool{errclass.Refused: true, errclass.NotFound: true, errclass.Exhausted: true,
		errclass.Unfit: true}
	long, short := now.Add(-quiet), now.Add(time.Second-quiet)
	for name, tc := range map[string]struct {
		first      bool
		unanswered time.Time
		other      bool
		began      time.Time
		settles    map[errclass.Class]bool
	}{
		"the first call ever":                {true, time.Time{}, false, now, final},
		"the first call of a second request": {true, now, false, now, final},
		"a later call, all were answered": {false, time.Time{}, false, now,
			map[errclass.Class]bool{errclass.Unfit: true}},
		"a later call, none can arrive any more": {false, long, false, now,
			map[errclass.Class]bool{errclass.Unfit: true}},
		"and the driver is another one":              {false, long, true, now, nil},
		"another one, but it is the first call ever": {true, time.Time{}, true, now, final},
		"a later call, an earlier one can arrive":    {false, short, false, now, nil},
		"it was begun while an earlier could":        {false, long, false, now.Add(-time.Second), nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, class := range all {
				r := Opened(uid, Request{})
				r.Sending()
				r.Unanswered = tc.unanswered
				r.Answered(Reply{Class: class, Handle: "vol-1", Comparable: !tc.other}, tc.first, tc.began, now, quiet)
				if r.Requests[0].Settled != tc.settles[class] {
					t.Errorf("%v: settled %v, want %v", class, r.Requests[0].Settled, tc.settles[class])
				}
				if open := class == errclass.Uncertain || class == errclass.InProgress; open != r.Unanswered.Equal(now) &&
					!tc.unanswered.Equal(now) {
					t.Errorf("%v: the last call that may arrive ended at %v", class, r.Unanswered)
				}
				if r.Failed != (class != errclass.Done) || (r.Volume == VolumeMade) != (class == errclass.Done) {
					t.Errorf("%v: %+v", class, r)
				}
			}
		})
	}
}

func TestAnswerNamesVolume(t *testing.T) {
	r := Opened(uid, Request{Node: "a"})
	r.Add(Request{Node: "b"})
	r.Answered(Reply{Class: errclass.Done, Handle: "vol-1", Unfit: true}, true, now, now, quiet)
	if r.Volume != VolumeMade || r.Handle != "vol-1" || !r.Unfit || r.nothingMade() {
		t.Errorf("%+v", r)
	}
	r.Forget()
	if r.Volume != VolumeUnknown || r.Handle != "" || r.Unfit {
		t.Errorf("not forgotten: %+v", r)
	}
}

func TestSendingReportsFirstCall(t *testing.T) {
	r := Opened(uid, Request{})
	if r.Begun() || !r.Sending() || r.Sending() || !r.Begun() {
		t.Errorf("%+v", r)
	}
	r = Inherited(uid, []Request{{Node: "a"}, {Node: "b"}, {Node: "c"}}, now)
	if r.Sending() || !r.Begun() || r.Quiet(now.Add(quiet-1), quiet) || !r.Quiet(now.Add(quiet), quiet) ||
		r.Count != MaxRequests {
		t.Errorf("inherited: %+v", r)
	}
}

func TestTwoRequestsTakeTurns(t *testing.T) {
	r := Opened(uid, Request{Node: "a", MayReschedule: true})
	r.Sending()
	r.Answered(Reply{Class: errclass.Uncertain}, true, now, now, quiet)
	if !r.takesNode("b") || r.takesNode("a") || r.takesNode("") {
		t.Fatalf("takes no second request: %+v", r)
	}
	if at := r.Add(Request{Node: "b", MayReschedule: true}); at != 1 || r.Next != 1 || !r.Sending() {
		t.Fatalf("the second request is not the next: %+v", r)
	}
	r.Answered(Reply{Class: errclass.Refused}, true, now, now, quiet)
	if r.Next != 0 || r.takesNode("b") {
		t.Errorf("AlreadyExists to the second request: the first is not asked: %+v", r)
	}
	r.Answered(Reply{Class: errclass.Exhausted}, r.Sending(), now, now, quiet)
	if r.Next != 0 || !r.takesNode("b") || !r.takesNode("c") {
		t.Errorf("the second request cannot be sent again: %+v", r)
	}
	if at := r.Add(Request{Node: "c"}); at != 1 || r.Count != 2 || r.Requests[1].Settled || r.Requests[1].Sent {
		t.Errorf("a settled request is not replaced: %+v", r)
	}
	r.Sending()
	r.Answered(Reply{Class: errclass.Uncertain}, true, now, now, quiet)
	if r.takesNode("d") || r.Next != 0 {
		t.Errorf("there is room for a third: %+v", r)
	}
}

func TestDeletedSettlesWithoutLateCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		unanswered, began time.Time
		want              bool
	}{
		"all calls were answered":                {time.Time{}, now, true},
		"no earlier call can arrive":             {now.Add(-quiet), now, true},
		"one can":                                {now.Add(time.Second - quiet), now, false},
		"one could when the deletion was begun":  {now.Add(-quiet), now.Add(-time.Second), false},
		"the deletion before was not answered":   {now, now, false},
		"it was, and that is a long time before": {now.Add(-time.Hour), now, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := made(unfit, discarding)
			f.Record.Unanswered = tc.unanswered
			f.Learn(DeleteVolume, Reply{Class: errclass.Done}, false, tc.began, now, quiet)
			if f.Record.nothingMade() != tc.want || f.Record.Volume != VolumeUnknown || f.Record.Handle != "" || f.Record.Unfit {
				t.Errorf("%+v", f.Record)
			}
		})
	}
	f := made(unfit, discarding)
	f.Learn(DeleteVolume, Reply{Class: errclass.Uncertain}, false, now, now, quiet)
	if f.Record.Volume != VolumeMade || f.Record.Quiet(now, quiet) {
		t.Errorf("a deletion that was not answered: %+v", f.Record)
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

func TestNamedAlone(t *testing.T) {
	for uid, c := range map[types.UID]struct {
		name  string
		alone bool
	}{
		"0f0c-4b1e": {"pvc-0f0c-4b1e", true}, "0f0c-4b1f": {"pvc-0f0c4b1f", true}, "0f0c-4b20": {"pvc-0f0c", false},
	} {
		if got := (Claim{UID: uid, PVName: c.name}).namedAlone(); got != c.alone {
			t.Errorf("%s under %s: alone %v", uid, c.name, got)
		}
	}
}
