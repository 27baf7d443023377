package oracle

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

const (
	holds = "example.com/holds"
	name  = "pvc-claim-uid"
)

// asked tells of a claim that is to be provisioned, and of a sidecar that runs.
func asked() *tale {
	t := &tale{now: start}
	t.Case = Case{
		Driver: "d", Finalizer: ours, ClaimFinalizer: holds, User: sidecar, OnDisk: map[string]string{}, MayLeak: map[string]bool{},
		Processes: []Process{{Span: Span{start, start.Add(time.Hour)}}}, Told: map[string]bool{}, ClaimEvents: map[string]int{},
	}
	t.pv = Object{
		Kind: PV, Name: name, UID: "pv-uid", Driver: "d", Handle: "vol", Policy: "Delete", Phase: "Pending",
		ClaimNamespace: "ns", ClaimName: "data", ClaimUID: "claim-uid", Finalizers: []string{ours},
	}
	t.claim = Object{Kind: Claim, Namespace: "ns", Name: "data", UID: "claim-uid", Driver: "d", Class: "fast", Phase: "Pending", Finalizers: []string{"protection"}}
	t.write(user, "create", t.claim)
	return t
}

func (t *tale) hold() {
	t.claim.Finalizers = append(t.claim.Finalizers, holds)
	t.write(sidecar, "patch", t.claim)
}

// holdKilled tells of a write whose client was killed before it was answered.
func (t *tale) holdKilled() (made Seen) {
	t.hold()
	last := &t.Requests[len(t.Requests)-1]
	made = Seen{Object: *last.Object, At: last.To}
	last.Object, last.Code = nil, 504
	return made
}

func (t *tale) letGo() {
	t.claim.Finalizers = slices.DeleteFunc(slices.Clone(t.claim.Finalizers), func(f string) bool { return f == holds })
	t.write(sidecar, "patch", t.claim)
}

func (t *tale) claimIsDeleted() {
	t.claim.Terminating, t.claim.Finalizers = true, []string{holds}
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
	t.hold()
	t.make("vol")
	t.claimIsDeleted()
}

// bound is how it should be.
func bound(t *tale) {
	t.hold()
	provided(t)
}

// provided is what comes after the claim is held.
func provided(t *tale) {
	t.make("vol")
	t.write(sidecar, "create", t.pv)
	t.letGo()
	t.pv.Phase, t.claim.Volume, t.claim.Phase = "Bound", name, "Bound"
	t.write(manager, "update", t.pv)
	t.write(manager, "update", t.claim)
	t.Now = []Object{t.pv, t.claim}
}

func TestJudgeProvisioning(t *testing.T) {
	cases := map[string]struct {
		tell func(*tale)
		want []string
	}{
		"bound": {bound, nil},
		"the claim is deleted while its volume is made: that is deleted, and then the claim let go": {func(t *tale) {
			halfMade(t)
			t.readPV(404)
			t.call("OK")
			t.letGo()
		}, nil},
		"killed, found again by its name, and deleted": {func(t *tale) {
			halfMade(t)
			t.Processes = []Process{{Span: Span{start, t.now}}, {Span: Span{t.now, t.now.Add(time.Hour)}}}
			t.now = t.now.Add(time.Millisecond)
			t.readPV(404)
			t.make("vol")
			t.call("OK")
			t.letGo()
		}, nil},
		"nobody knows whether it has a volume, and it is said": {func(t *tale) {
			halfMade(t)
			t.Now, t.Told = []Object{t.claim}, map[string]bool{"claim-uid": true}
		}, nil},
		"held by a write whose answer nobody got": {func(t *tale) {
			t.Seen = append(t.Seen, t.holdKilled())
			provided(t)
		}, nil},
		"UNHELD: nobody saw that the write whose answer nobody got had been done": {func(t *tale) {
			t.holdKilled()
			provided(t)
		}, []string{Unheld}},
		"LEFT EARLY: let go by a write whose answer nobody got": {func(t *tale) {
			t.hold()
			t.make("vol")
			t.letGo()
			last := &t.Requests[len(t.Requests)-1]
			t.Seen = append(t.Seen, Seen{Object: *last.Object, At: last.To})
			last.Object, last.Code = nil, 504
			t.write(sidecar, "create", t.pv)
		}, []string{LeftEarly}},
		"refused, let go and held again": {func(t *tale) {
			t.hold()
			t.letGo()
			bound(t)
		}, nil},

		"LEAK after CreateVolume: the claim went and the volume stayed": {func(t *tale) {
			halfMade(t)
			t.letGo()
		}, []string{LeftEarly, Leak}},
		"LEAK after CreateVolume: nobody held the claim, and it went": {func(t *tale) {
			t.make("vol")
			t.claim.Terminating, t.claim.Finalizers = true, nil
			t.write(user, "delete", t.claim)
		}, []string{Unheld, Leak}},
		"LEAK: made again after it was deleted, and the claim let go": {func(t *tale) {
			halfMade(t)
			t.readPV(404)
			t.call("OK")
			t.make("again")
			t.letGo()
		}, []string{LeftEarly, Leak}},
		"LEFT EARLY: the claim was let go before its PV was made": {func(t *tale) {
			t.hold()
			t.make("vol")
			t.letGo()
			t.write(sidecar, "create", t.pv)
		}, []string{LeftEarly}},
		"UNHELD: asked before the claim was held": {func(t *tale) {
			t.make("vol")
			bound(t)
		}, []string{Unheld}},
		"UNHELD: asked for a claim that nobody made": {func(t *tale) {
			t.hold()
			t.make("vol")
			t.Calls[0].Name, t.OnDisk = "pvc-another", map[string]string{}
		}, []string{Unheld}},
		"MADE TWICE: two volumes of one name": {func(t *tale) {
			bound(t)
			t.make("another")
			t.claim.Finalizers = append(t.claim.Finalizers, holds)
			t.Now = []Object{t.pv, t.claim}
		}, []string{Unheld, MadeTwice, Stuck}},
		"WRONG DELETE: the claim lives": {func(t *tale) {
			t.hold()
			t.make("vol")
			t.readPV(404)
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: nobody looked whether it has a PV": {func(t *tale) {
			halfMade(t)
			t.call("OK")
			t.letGo()
		}, []string{WrongDelete}},
		"WRONG DELETE: the PV was there when it was looked for": {func(t *tale) {
			halfMade(t)
			t.readPV(200)
			t.call("OK")
			t.letGo()
		}, []string{WrongDelete}},
		"WRONG DELETE: tried again on what was read before": {func(t *tale) {
			halfMade(t)
			t.readPV(404)
			t.call("Internal")
			t.call("OK")
			t.letGo()
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
		"DOUBLE: deleted again after success": {func(t *tale) {
			halfMade(t)
			for range 2 {
				t.readPV(404)
				t.call("OK")
			}
			t.letGo()
		}, []string{DoubleDelete}},
		"STUCK: held, and nobody is told why": {func(t *tale) {
			halfMade(t)
			t.Now = []Object{t.claim}
		}, []string{Stuck}},
		"FOREIGN: another driver's claim is let go": {func(t *tale) {
			bound(t)
			t.write(sidecar, "patch", Object{Kind: Claim, Namespace: "ns", Name: "theirs", UID: "their-uid", Driver: "e", Volume: "pvc-their-uid"})
		}, []string{Foreign}},
		"STORM: CreateVolume calls": {func(t *tale) {
			t.ClaimBudget = Budget{name: 1}
			t.hold()
			for range 4 {
				t.make("vol")
			}
			t.write(sidecar, "create", t.pv)
		}, []string{Storm}},
		"STORM: writes of the claim": {func(t *tale) {
			t.ClaimBudget = Budget{name: 1}
			for range 2 {
				t.hold()
				t.letGo()
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
	heldBy := func(o *Object) { o.Finalizers = []string{holds} }
	class := Object{Kind: Class, Name: "fast", Driver: "d"}
	pv := Object{Kind: PV, Name: name, ClaimUID: "claim-uid", Driver: "d"}
	for title, c := range map[string]struct {
		now  []Object
		told bool
		rest bool
	}{
		"its class is there": {now: []Object{claim, class}},
		"its class is there, and nobody said yet whose it is": {now: []Object{change(func(o *Object) { o.Driver = "" }), class}},
		"its class is gone":                           {now: []Object{claim}, rest: true},
		"held, its class is gone, and it is said":     {now: []Object{change(heldBy)}, told: true, rest: true},
		"held, its class is gone, and it is not said": {now: []Object{change(heldBy)}},
		"held and terminating, its class is there":    {now: []Object{change(func(o *Object) { heldBy(o); o.Terminating = true }), class}, told: true},
		"held and terminating, its PV is there":       {now: []Object{change(func(o *Object) { heldBy(o); o.Terminating = true }), pv}, told: true},
		"going":                                       {now: []Object{change(func(o *Object) { o.Terminating = true })}},
		"its PV is there, and not bound":              {now: []Object{claim, pv}},
		"its PV was deleted too early":                {now: []Object{claim, class, {Kind: PV, ClaimUID: "claim-uid", Terminating: true}}, rest: true},
		"bound":                                       {now: []Object{change(func(o *Object) { o.Volume, o.Phase = name, "Bound" }), pv, class}, rest: true},
		"bound, and still held":                       {now: []Object{change(func(o *Object) { heldBy(o); o.Volume, o.Phase = name, "Bound" }), pv}, told: true},
		"being bound":                                 {now: []Object{change(func(o *Object) { o.Volume = name }), pv}},
		"its PV is lost":                              {now: []Object{change(func(o *Object) { o.Volume, o.Phase = name, "Lost" })}, rest: true},
		"of another driver":                           {now: []Object{change(func(o *Object) { o.Driver = "e" }), {Kind: Class, Name: "fast", Driver: "e"}}, rest: true},
		"one that nobody was to provision":            {now: []Object{change(func(o *Object) { o.Driver, o.Class = "", "" }), class}, rest: true},
	} {
		t.Run(title, func(t *testing.T) {
			if got := UnrestClaims("d", holds, c.now, map[string]bool{"claim-uid": c.told}); (len(got) == 0) != c.rest {
				t.Errorf("got %+v, want rest: %t", got, c.rest)
			}
		})
	}
}
