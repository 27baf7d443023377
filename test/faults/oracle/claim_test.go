package oracle

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

const name = "pvc-claim-uid"

// pendingClaim begins with a claim that is to be provisioned.
func pendingClaim() *history {
	h := newHistory(Object{
		Kind: PV, Name: name, UID: "pv-uid", Driver: "d", Handle: "vol", Policy: "Delete", Phase: "Pending",
		ClaimNamespace: "ns", ClaimName: "data", ClaimUID: "claim-uid", Finalizers: []string{ours},
	}, Object{Kind: Claim, Namespace: "ns", Name: "data", UID: "claim-uid", Driver: "d", Class: "fast", Phase: "Pending",
		Finalizers: []string{"protection"}})
	h.write(user, "create", h.claim)
	h.shard = Object{Kind: Log, Namespace: "ns", Name: "log-3", UID: "log-uid"}
	h.write(sidecar, "create", h.shard)
	return h
}

// logged adds a write of the entries of the in-flight log.
func logged(by, verb string, entries ...string) step {
	return func(h *history) {
		h.shard.Entries = entries
		h.write(by, verb, h.shard)
	}
}

func enter(h *history) { h.add(logged(sidecar, "update", "pvc-another", name)) }

func settle(h *history) { h.add(logged(sidecar, "update", "pvc-another")) }

// unanswered is a step whose last write has no answer, as of a client that was killed. A watch may show the write.
func unanswered(s step, seen bool) step {
	return func(h *history) {
		s(h)
		last := h.lastRequest()
		if seen {
			h.Seen = append(h.Seen, Seen{Object: *last.Object, At: last.To})
		}
		last.Object, last.Code = nil, 504
	}
}

func pendingDeleted(h *history) {
	h.claim.Terminating, h.claim.Finalizers = true, nil
	h.write(user, "delete", h.claim)
}

// made adds a CreateVolume that does its work.
func made(handle string) step {
	return func(h *history) {
		s := h.tick()
		h.Calls = append(h.Calls, ledger.Call{
			Boot: "b", Seq: uint64(len(h.Calls) + 1), Method: "CreateVolume", Name: name, Volume: handle,
			Received: s.From, Done: s.From.Add(time.Millisecond), Answered: s.To, Code: "OK", Changed: len(h.OnDisk) == 0,
		})
		h.OnDisk[handle] = name
	}
}

func pvCreated(h *history) { h.write(sidecar, "create", h.pv) }

// volumeCreated is a claim that is deleted while its volume is made.
func volumeCreated(h *history) { h.add(enter, made("vol"), pendingDeleted) }

// bound is how it should be.
func bound(h *history) { h.add(enter, provisioned) }

// provisioned adds the history after the entry exists.
func provisioned(h *history) {
	h.add(made("vol"), pvCreated, settle)
	h.pv.Phase, h.claim.Volume, h.claim.Phase = "Bound", name, "Bound"
	h.write(manager, "update", h.pv)
	h.write(manager, "update", h.claim)
	h.Now = []Object{h.pv, h.claim}
}

// finished adds the history after the claim's deletion: the volume gets its PV, and goes with it.
func finished(h *history) {
	h.pv.Phase = "Released"
	h.add(pvCreated, settle, reads, call("OK"), pvGone)
}

// left has the log have entries at the end.
func left(entries ...string) step {
	return func(h *history) {
		h.shard.Entries = entries
		h.Now = append(h.Now, h.shard)
	}
}

func TestJudgeProvisioning(t *testing.T) {
	once := func(h *history) { h.ClaimBudget = Budget{name: 1} }
	expectFindings(t, pendingClaim, map[string]judged{
		"bound": {steps{bound}, nil},
		"the claim is deleted while its volume is made: the volume gets its PV, and is deleted with it": {
			steps{volumeCreated, finished}, nil},
		"killed, found again by its name, and finished": {steps{volumeCreated, replaced, made("vol"), finished}, nil},
		"logged by a write with a lost response":        {steps{unanswered(enter, true), provisioned}, nil},
		"UNLOGGED: the write with a lost response was not seen to be done": {steps{unanswered(enter, false), provisioned},
			[]string{Unlogged}},
		"LEFT EARLY: settled by a write with a lost response": {steps{enter, made("vol"), unanswered(settle, true),
			pvCreated}, []string{LeftEarly}},
		"refused, settled and logged again": {steps{enter, settle, bound}, nil},
		"removed by hand":                   {steps{enter, made("vol"), logged(user, "patch"), pvCreated}, nil},
		"STUCK: an entry is left":           {steps{volumeCreated, left(name)}, []string{Stuck}},
		"LEAK after CreateVolume: the claim went and the volume stayed": {steps{volumeCreated, settle},
			[]string{LeftEarly, Leak}},
		"LEAK after CreateVolume: not logged, and the claim went": {steps{made("vol"), pendingDeleted},
			[]string{Unlogged, Leak}},
		"LEFT EARLY: the entry was removed before its PV was made": {steps{enter, made("vol"), settle, pvCreated},
			[]string{LeftEarly}},
		"UNLOGGED: asked before the entry was there": {steps{made("vol"), bound}, []string{Unlogged}},
		"UNLOGGED: asked for another volume than the log has": {steps{enter, made("vol"), func(h *history) {
			h.Calls[0].Name, h.OnDisk = "pvc-a-third", map[string]string{}
		}}, []string{Unlogged}},
		"MADE TWICE: two volumes of one name": {steps{bound, made("another"), left(name)},
			[]string{Unlogged, MadeTwice, Stuck}},
		"WRONG DELETE: it has no PV, and its claim lives": {steps{enter, made("vol"), readPV(404), call("OK")},
			[]string{WrongDelete}},
		"WRONG DELETE: it has no PV, and its claim is gone": {steps{volumeCreated, readPV(404), call("OK"), settle},
			[]string{WrongDelete}},
		"WRONG DELETE: a PV is made for it afterwards": {steps{volumeCreated, readPV(404), call("OK"), pvCreated},
			[]string{WrongDelete}},
		"WRONG DELETE: it has a PV, and its claim lives": {steps{bound, readPV(404), call("OK")}, []string{WrongDelete}},
		"FOREIGN: another driver's claim is released": {steps{bound, func(h *history) {
			h.write(sidecar, "patch", Object{Kind: Claim, Namespace: "ns", Name: "theirs", UID: "their-uid", Driver: "e",
				Volume: "pvc-their-uid"})
		}}, []string{Foreign}},
		"STORM: CreateVolume calls": {steps{once, enter, times(4, made("vol")), pvCreated}, []string{Storm}},
		"STORM: writes of the claim": {steps{once, times(4, func(h *history) { h.write(sidecar, "patch", h.claim) })},
			[]string{Storm}},
	})
}

func TestUnsettledClaims(t *testing.T) {
	claim := pendingClaim().claim
	changed := func(do func(*Object)) Object { o := claim; do(&o); return o }
	class := Object{Kind: Class, Name: "fast", Driver: "d"}
	pv := Object{Kind: PV, Name: name, ClaimUID: "claim-uid", Driver: "d"}
	for title, c := range map[string]struct {
		now  []Object
		rest bool
	}{
		"its class is there": {[]Object{claim, class}, false},
		"its class exists, and its provisioner is not set": {[]Object{changed(func(o *Object) { o.Driver = "" }), class},
			false},
		"its class is gone":              {[]Object{claim}, true},
		"going":                          {[]Object{changed(func(o *Object) { o.Terminating = true })}, false},
		"its PV is there, and not bound": {[]Object{claim, pv}, false},
		"its PV was deleted too early": {[]Object{claim, class,
			{Kind: PV, ClaimUID: "claim-uid", Terminating: true}}, true},
		"bound": {[]Object{changed(func(o *Object) { o.Volume, o.Phase = name, "Bound" }), pv, class},
			true},
		"being bound":    {[]Object{changed(func(o *Object) { o.Volume = name }), pv}, false},
		"its PV is lost": {[]Object{changed(func(o *Object) { o.Volume, o.Phase = name, "Lost" })}, true},
		"of another driver": {[]Object{changed(func(o *Object) { o.Driver = "e" }),
			{Kind: Class, Name: "fast", Driver: "e"}}, true},
		"a claim without a provisioner": {[]Object{changed(func(o *Object) { o.Driver, o.Class = "", "" }), class}, true},
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
