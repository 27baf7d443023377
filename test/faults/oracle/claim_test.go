package oracle

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

const name = "pvc-claim-uid"

// asked tells of a claim that is to be provisioned, and of a sidecar that runs.
func asked() *tale {
	t := &tale{now: start}
	t.Case = Case{
		Driver: "d", Finalizer: ours, User: sidecar, OnDisk: map[string]string{}, MayLeak: map[string]bool{},
		Processes: []Process{{Span: Span{start, start.Add(time.Hour)}}}, ClaimEvents: map[string]int{},
	}
	t.pv = Object{
		Kind: PV, Name: name, UID: "pv-uid", Driver: "d", Handle: "vol", Policy: "Delete", Phase: "Pending",
		ClaimNamespace: "ns", ClaimName: "data", ClaimUID: "claim-uid", Finalizers: []string{ours},
	}
	t.claim = Object{Kind: Claim, Namespace: "ns", Name: "data", UID: "claim-uid", Driver: "d", Class: "fast", Phase: "Pending", Finalizers: []string{"protection"}}
	t.write(user, "create", t.claim)
	t.shard = Object{Kind: Log, Namespace: "ns", Name: "log-3", UID: "log-uid"}
	t.write(sidecar, "create", t.shard)
	return t
}

// enter tells of a write of the entry.
func (t *tale) enter() {
	t.shard.Entries = []string{"pvc-another", name}
	t.write(sidecar, "update", t.shard)
}

// enterKilled tells of a write whose client was killed before it was answered.
func (t *tale) enterKilled() (made Seen) {
	t.enter()
	last := &t.Requests[len(t.Requests)-1]
	made = Seen{Object: *last.Object, At: last.To}
	last.Object, last.Code = nil, 504
	return made
}

func (t *tale) settle() {
	t.shard.Entries = []string{"pvc-another"}
	t.write(sidecar, "update", t.shard)
}

func (t *tale) claimIsDeleted() {
	t.claim.Terminating, t.claim.Finalizers = true, nil
	t.write(user, "delete", t.claim)
}

// make tells of a CreateVolume that does its work.
func (t *tale) make(handle string) {
	s := t.tick()
	t.Calls = append(t.Calls, ledger.Call{
		Boot: "b", Seq: uint64(len(t.Calls) + 1), Method: "CreateVolume", Name: name, Volume: handle,
		Received: s.From, Done: s.From.Add(time.Millisecond), Answered: s.To, Code: "OK", Changed: len(t.OnDisk) == 0,
	})
	t.OnDisk[handle] = name
}

// readPV tells of a live read of the claim's PV.
func (t *tale) readPV(code int) {
	t.Requests = append(t.Requests, Request{Span: t.tick(), User: sidecar, Verb: "get", Resource: "persistentvolumes", Name: name, Code: code})
}

// halfMade is a claim that is deleted while its volume is made.
func halfMade(t *tale) {
	t.enter()
	t.make("vol")
	t.claimIsDeleted()
}

// bound is how it should be.
func bound(t *tale) {
	t.enter()
	provided(t)
}

// provided is what comes after the entry is there.
func provided(t *tale) {
	t.make("vol")
	t.write(sidecar, "create", t.pv)
	t.settle()
	t.pv.Phase, t.claim.Volume, t.claim.Phase = "Bound", name, "Bound"
	t.write(manager, "update", t.pv)
	t.write(manager, "update", t.claim)
	t.Now = []Object{t.pv, t.claim}
}

// finished is what comes after the claim was deleted: the volume gets its PV, and goes with it.
func finished(t *tale) {
	t.pv.Phase = "Released"
	t.write(sidecar, "create", t.pv)
	t.settle()
	t.readClaim()
	t.readPV(200)
	t.call("OK")
	t.pvGoes(sidecar)
	t.released(sidecar)
}

// readClaim tells of a live read of the claim, which is gone.
func (t *tale) readClaim() {
	t.Requests = append(t.Requests, Request{Span: t.tick(), User: sidecar, Verb: "get", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "data", Code: 404})
}

func TestJudgeProvisioning(t *testing.T) {
	cases := map[string]struct {
		tell func(*tale)
		want []string
	}{
		"bound": {bound, nil},
		"the claim is deleted while its volume is made: that gets its PV, and goes with it": {func(t *tale) {
			halfMade(t)
			finished(t)
		}, nil},
		"killed, found again by its name, and finished": {func(t *tale) {
			halfMade(t)
			t.Processes = []Process{{Span: Span{start, t.now}}, {Span: Span{t.now, t.now.Add(time.Hour)}}}
			t.now = t.now.Add(time.Millisecond)
			t.make("vol")
			finished(t)
		}, nil},
		"logged by a write whose answer nobody got": {func(t *tale) {
			t.Seen = append(t.Seen, t.enterKilled())
			provided(t)
		}, nil},
		"UNLOGGED: nobody saw that the write whose answer nobody got had been done": {func(t *tale) {
			t.enterKilled()
			provided(t)
		}, []string{Unlogged}},
		"LEFT EARLY: settled by a write whose answer nobody got": {func(t *tale) {
			t.enter()
			t.make("vol")
			t.settle()
			last := &t.Requests[len(t.Requests)-1]
			t.Seen = append(t.Seen, Seen{Object: *last.Object, At: last.To})
			last.Object, last.Code = nil, 504
			t.write(sidecar, "create", t.pv)
		}, []string{LeftEarly}},
		"refused, settled and logged again": {func(t *tale) {
			t.enter()
			t.settle()
			bound(t)
		}, nil},
		"removed by hand": {func(t *tale) {
			t.enter()
			t.make("vol")
			t.shard.Entries = nil
			t.write(user, "patch", t.shard)
			t.write(sidecar, "create", t.pv)
		}, nil},

		"STUCK: an entry is left": {func(t *tale) {
			halfMade(t)
			t.Now = []Object{t.shard}
			t.Now[0].Entries = []string{name}
		}, []string{Stuck}},
		"LEAK after CreateVolume: the claim went and the volume stayed": {func(t *tale) {
			halfMade(t)
			t.settle()
		}, []string{LeftEarly, Leak}},
		"LEAK after CreateVolume: nobody logged it, and the claim went": {func(t *tale) {
			t.make("vol")
			t.claimIsDeleted()
		}, []string{Unlogged, Leak}},
		"LEFT EARLY: the entry was removed before its PV was made": {func(t *tale) {
			t.enter()
			t.make("vol")
			t.settle()
			t.write(sidecar, "create", t.pv)
		}, []string{LeftEarly}},
		"UNLOGGED: asked before the entry was there": {func(t *tale) {
			t.make("vol")
			bound(t)
		}, []string{Unlogged}},
		"UNLOGGED: asked for another volume than the log has": {func(t *tale) {
			t.enter()
			t.make("vol")
			t.Calls[0].Name, t.OnDisk = "pvc-a-third", map[string]string{}
		}, []string{Unlogged}},
		"MADE TWICE: two volumes of one name": {func(t *tale) {
			bound(t)
			t.make("another")
			t.shard.Entries = []string{name}
			t.Now = []Object{t.pv, t.claim, t.shard}
		}, []string{Unlogged, MadeTwice, Stuck}},
		"WRONG DELETE: it has no PV, and its claim lives": {func(t *tale) {
			t.enter()
			t.make("vol")
			t.readPV(404)
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: it has no PV, and its claim is gone": {func(t *tale) {
			halfMade(t)
			t.readPV(404)
			t.call("OK")
			t.settle()
		}, []string{WrongDelete}},
		"WRONG DELETE: a PV is made for it afterwards": {func(t *tale) {
			halfMade(t)
			t.readPV(404)
			t.call("OK")
			t.write(sidecar, "create", t.pv)
		}, []string{WrongDelete}},
		"WRONG DELETE: it has a PV, and its claim lives": {func(t *tale) {
			bound(t)
			t.readPV(404)
			t.call("OK")
		}, []string{WrongDelete}},
		"FOREIGN: another driver's claim is let go": {func(t *tale) {
			bound(t)
			t.write(sidecar, "patch", Object{Kind: Claim, Namespace: "ns", Name: "theirs", UID: "their-uid", Driver: "e", Volume: "pvc-their-uid"})
		}, []string{Foreign}},
		"STORM: CreateVolume calls": {func(t *tale) {
			t.ClaimBudget = Budget{name: 1}
			t.enter()
			for range 4 {
				t.make("vol")
			}
			t.write(sidecar, "create", t.pv)
		}, []string{Storm}},
		"STORM: writes of the claim": {func(t *tale) {
			t.ClaimBudget = Budget{name: 1}
			for range 4 {
				t.write(sidecar, "patch", t.claim)
			}
		}, []string{Storm}},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			told := asked()
			c.tell(told)
			sortByTime(told.Requests)
			found := Judge(told.Case)
			var kinds []string
			for _, f := range found {
				kinds = append(kinds, f.Kind)
				if len(f.History) == 0 {
					t.Errorf("%s is told without its history", f.Kind)
				}
			}
			if !slices.Equal(kinds, c.want) {
				t.Errorf("found %q, want %q", kinds, c.want)
				for _, f := range found {
					t.Log(f)
				}
			}
		})
	}
}

func TestUnrestClaims(t *testing.T) {
	claim := asked().claim
	change := func(do func(*Object)) Object {
		c := claim
		do(&c)
		return c
	}
	class := Object{Kind: Class, Name: "fast", Driver: "d"}
	pv := Object{Kind: PV, Name: name, ClaimUID: "claim-uid", Driver: "d"}
	for title, c := range map[string]struct {
		now  []Object
		rest bool
	}{
		"its class is there": {now: []Object{claim, class}},
		"its class is there, and nobody said yet whose it is": {now: []Object{change(func(o *Object) { o.Driver = "" }), class}},
		"its class is gone":                {now: []Object{claim}, rest: true},
		"going":                            {now: []Object{change(func(o *Object) { o.Terminating = true })}},
		"its PV is there, and not bound":   {now: []Object{claim, pv}},
		"its PV was deleted too early":     {now: []Object{claim, class, {Kind: PV, ClaimUID: "claim-uid", Terminating: true}}, rest: true},
		"bound":                            {now: []Object{change(func(o *Object) { o.Volume, o.Phase = name, "Bound" }), pv, class}, rest: true},
		"being bound":                      {now: []Object{change(func(o *Object) { o.Volume = name }), pv}},
		"its PV is lost":                   {now: []Object{change(func(o *Object) { o.Volume, o.Phase = name, "Lost" })}, rest: true},
		"of another driver":                {now: []Object{change(func(o *Object) { o.Driver = "e" }), {Kind: Class, Name: "fast", Driver: "e"}}, rest: true},
		"one that nobody was to provision": {now: []Object{change(func(o *Object) { o.Driver, o.Class = "", "" }), class}, rest: true},
	} {
		t.Run(title, func(t *testing.T) {
			if got := UnrestClaims("d", c.now); (len(got) == 0) != c.rest {
				t.Errorf("got %+v, want rest: %t", got, c.rest)
			}
		})
	}
	if got := UnrestLog([]Object{{Kind: Log}, {Kind: Log, Entries: []string{name}}}); len(got) != 1 || got[0].Name != name {
		t.Errorf("of the log: %+v", got)
	}
}
