package oracle

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

const name = "pvc-claim-uid"

// provisioningStarted adds a claim that is to be provisioned, and of a sidecar that runs.
func provisioningStarted() *history {
	h := &history{now: start}
	h.Case = Case{
		Driver: "d", Finalizer: ours, User: sidecar, OnDisk: map[string]string{}, MayLeak: map[string]bool{},
		Processes: []Process{{Span: Span{start, start.Add(time.Hour)}}}, ClaimEvents: map[string]int{},
	}
	h.pv = Object{
		Kind: PV, Name: name, UID: "pv-uid", Driver: "d", Handle: "vol", Policy: "Delete", Phase: "Pending",
		ClaimNamespace: "ns", ClaimName: "data", ClaimUID: "claim-uid", Finalizers: []string{ours},
	}
	h.claim = Object{Kind: Claim, Namespace: "ns", Name: "data", UID: "claim-uid", Driver: "d", Class: "fast",
		Phase: "Pending", Finalizers: []string{"protection"}}
	h.write(user, "create", h.claim)
	h.shard = Object{Kind: Log, Namespace: "ns", Name: "log-3", UID: "log-uid"}
	h.write(sidecar, "create", h.shard)
	return h
}

// enter adds a write of the entry.
func (h *history) enter() {
	h.shard.Entries = []string{"pvc-another", name}
	h.write(sidecar, "update", h.shard)
}

// enterKilled adds a write whose client was killed before it was answered.
func (h *history) enterKilled() (made Seen) {
	h.enter()
	last := &h.Requests[len(h.Requests)-1]
	made = Seen{Object: *last.Object, At: last.To}
	last.Object, last.Code = nil, 504
	return made
}

func (h *history) settle() {
	h.shard.Entries = []string{"pvc-another"}
	h.write(sidecar, "update", h.shard)
}

func (h *history) claimIsDeleted() {
	h.claim.Terminating, h.claim.Finalizers = true, nil
	h.write(user, "delete", h.claim)
}

// make adds a CreateVolume that does its work.
func (h *history) make(handle string) {
	s := h.tick()
	h.Calls = append(h.Calls, ledger.Call{
		Boot: "b", Seq: uint64(len(h.Calls) + 1), Method: "CreateVolume", Name: name, Volume: handle,
		Received: s.From, Done: s.From.Add(time.Millisecond), Answered: s.To, Code: "OK", Changed: len(h.OnDisk) == 0,
	})
	h.OnDisk[handle] = name
}

// readPV adds a live read of the claim's PV.
func (h *history) readPV(code int) {
	h.Requests = append(h.Requests, Request{Span: h.tick(), User: sidecar, Verb: "get", Resource: "persistentvolumes",
		Name: name, Code: code})
}

// volumeCreated is a claim that is deleted while its volume is made.
func volumeCreated(h *history) {
	h.enter()
	h.make("vol")
	h.claimIsDeleted()
}

// bound is how it should be.
func bound(h *history) {
	h.enter()
	provisioned(h)
}

// provisioned adds the history after the entry exists.
func provisioned(h *history) {
	h.make("vol")
	h.write(sidecar, "create", h.pv)
	h.settle()
	h.pv.Phase, h.claim.Volume, h.claim.Phase = "Bound", name, "Bound"
	h.write(manager, "update", h.pv)
	h.write(manager, "update", h.claim)
	h.Now = []Object{h.pv, h.claim}
}

// finished adds the history after the claim's deletion: the volume gets its PV, and goes with it.
func finished(h *history) {
	h.pv.Phase = "Released"
	h.write(sidecar, "create", h.pv)
	h.settle()
	h.readClaim()
	h.readPV(200)
	h.call("OK")
	h.pvGone()
}

// readClaim adds a live read of the claim, which is gone.
func (h *history) readClaim() {
	h.Requests = append(h.Requests, Request{Span: h.tick(), User: sidecar, Verb: "get", Resource: "persistentvolumeclaims",
		Namespace: "ns", Name: "data", Code: 404})
}

func TestJudgeProvisioning(t *testing.T) {
	cases := map[string]struct {
		happens func(*history)
		want    []string
	}{
		"bound": {bound, nil},
		"the claim is deleted while its volume is made: the volume gets its PV, and is deleted with it": {func(h *history) {
			volumeCreated(h)
			finished(h)
		}, nil},
		"killed, found again by its name, and finished": {func(h *history) {
			volumeCreated(h)
			h.Processes = []Process{{Span: Span{start, h.now}}, {Span: Span{h.now, h.now.Add(time.Hour)}}}
			h.now = h.now.Add(time.Millisecond)
			h.make("vol")
			finished(h)
		}, nil},
		"logged by a write with a lost response": {func(h *history) {
			h.Seen = append(h.Seen, h.enterKilled())
			provisioned(h)
		}, nil},
		"UNLOGGED: the write with a lost response was not seen to be done": {func(h *history) {
			h.enterKilled()
			provisioned(h)
		}, []string{Unlogged}},
		"LEFT EARLY: settled by a write with a lost response": {func(h *history) {
			h.enter()
			h.make("vol")
			h.settle()
			last := &h.Requests[len(h.Requests)-1]
			h.Seen = append(h.Seen, Seen{Object: *last.Object, At: last.To})
			last.Object, last.Code = nil, 504
			h.write(sidecar, "create", h.pv)
		}, []string{LeftEarly}},
		"refused, settled and logged again": {func(h *history) {
			h.enter()
			h.settle()
			bound(h)
		}, nil},
		"removed by hand": {func(h *history) {
			h.enter()
			h.make("vol")
			h.shard.Entries = nil
			h.write(user, "patch", h.shard)
			h.write(sidecar, "create", h.pv)
		}, nil},

		"STUCK: an entry is left": {func(h *history) {
			volumeCreated(h)
			h.Now = []Object{h.shard}
			h.Now[0].Entries = []string{name}
		}, []string{Stuck}},
		"LEAK after CreateVolume: the claim went and the volume stayed": {func(h *history) {
			volumeCreated(h)
			h.settle()
		}, []string{LeftEarly, Leak}},
		"LEAK after CreateVolume: not logged, and the claim went": {func(h *history) {
			h.make("vol")
			h.claimIsDeleted()
		}, []string{Unlogged, Leak}},
		"LEFT EARLY: the entry was removed before its PV was made": {func(h *history) {
			h.enter()
			h.make("vol")
			h.settle()
			h.write(sidecar, "create", h.pv)
		}, []string{LeftEarly}},
		"UNLOGGED: asked before the entry was there": {func(h *history) {
			h.make("vol")
			bound(h)
		}, []string{Unlogged}},
		"UNLOGGED: asked for another volume than the log has": {func(h *history) {
			h.enter()
			h.make("vol")
			h.Calls[0].Name, h.OnDisk = "pvc-a-third", map[string]string{}
		}, []string{Unlogged}},
		"MADE TWICE: two volumes of one name": {func(h *history) {
			bound(h)
			h.make("another")
			h.shard.Entries = []string{name}
			h.Now = []Object{h.pv, h.claim, h.shard}
		}, []string{Unlogged, MadeTwice, Stuck}},
		"WRONG DELETE: it has no PV, and its claim lives": {func(h *history) {
			h.enter()
			h.make("vol")
			h.readPV(404)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: it has no PV, and its claim is gone": {func(h *history) {
			volumeCreated(h)
			h.readPV(404)
			h.call("OK")
			h.settle()
		}, []string{WrongDelete}},
		"WRONG DELETE: a PV is made for it afterwards": {func(h *history) {
			volumeCreated(h)
			h.readPV(404)
			h.call("OK")
			h.write(sidecar, "create", h.pv)
		}, []string{WrongDelete}},
		"WRONG DELETE: it has a PV, and its claim lives": {func(h *history) {
			bound(h)
			h.readPV(404)
			h.call("OK")
		}, []string{WrongDelete}},
		"FOREIGN: another driver's claim is released": {func(h *history) {
			bound(h)
			h.write(sidecar, "patch", Object{Kind: Claim, Namespace: "ns", Name: "theirs", UID: "their-uid", Driver: "e",
				Volume: "pvc-their-uid"})
		}, []string{Foreign}},
		"STORM: CreateVolume calls": {func(h *history) {
			h.ClaimBudget = Budget{name: 1}
			h.enter()
			for range 4 {
				h.make("vol")
			}
			h.write(sidecar, "create", h.pv)
		}, []string{Storm}},
		"STORM: writes of the claim": {func(h *history) {
			h.ClaimBudget = Budget{name: 1}
			for range 4 {
				h.write(sidecar, "patch", h.claim)
			}
		}, []string{Storm}},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			h := provisioningStarted()
			c.happens(h)
			expectFindings(t, h, c.want)
		})
	}
}

func TestUnsettledClaims(t *testing.T) {
	claim := provisioningStarted().claim
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
		"its class exists, and its provisioner is not set": {now: []Object{change(func(o *Object) { o.Driver = "" }),
			class}},
		"its class is gone":              {now: []Object{claim}, rest: true},
		"going":                          {now: []Object{change(func(o *Object) { o.Terminating = true })}},
		"its PV is there, and not bound": {now: []Object{claim, pv}},
		"its PV was deleted too early": {now: []Object{claim, class,
			{Kind: PV, ClaimUID: "claim-uid", Terminating: true}}, rest: true},
		"bound": {now: []Object{change(func(o *Object) { o.Volume, o.Phase = name, "Bound" }), pv,
			class}, rest: true},
		"being bound": {now: []Object{change(func(o *Object) { o.Volume = name }), pv}},
		"its PV is lost": {now: []Object{change(func(o *Object) { o.Volume, o.Phase = name, "Lost" })},
			rest: true},
		"of another driver": {now: []Object{change(func(o *Object) { o.Driver = "e" }),
			{Kind: Class, Name: "fast", Driver: "e"}}, rest: true},
		"a claim without a provisioner": {now: []Object{change(func(o *Object) { o.Driver, o.Class = "", "" }), class},
			rest: true},
	} {
		t.Run(title, func(t *testing.T) {
			if got := UnrestClaims("d", c.now); (len(got) == 0) != c.rest {
				t.Errorf("got %+v, want rest: %t", got, c.rest)
			}
		})
	}
	if got := UnrestLog([]Object{{Kind: Log}, {Kind: Log, Entries: []string{name}}}); len(got) != 1 ||
		got[0].Name != name {
		t.Errorf("of the log: %+v", got)
	}
}
