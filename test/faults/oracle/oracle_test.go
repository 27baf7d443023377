package oracle

import (
	"testing"
	"time"
)

func TestJudgeReclaim(t *testing.T) {
	cases := map[string]struct {
		happens func(*history)
		want    []string
	}{
		"claim first": {claimFirst, nil},
		"PV first": {func(h *history) {
			h.pvDeleted(user)
			h.volumeDeleted()
			h.released(sidecar)
		}, nil},
		"turned to Retain and kept": {func(h *history) {
			h.policy("Retain")
			h.removeFinalizer(sidecar)
			h.claimDeleted()
			h.pvDeleted(user)
			h.released(manager)
		}, nil},
		"turned to Retain while the PV was being read": {func(h *history) {
			h.claimDeleted()
			h.reads()
			flip := h.Requests[len(h.Requests)-1].Span
			h.policy("Retain")
			h.Requests[len(h.Requests)-1].Span = flip
			h.call("OK")
		}, nil},
		"deleted, the answer lost, asked again": {func(h *history) {
			h.volumeDeleted()
			h.Calls[0].Code = "Unavailable"
			h.reads()
			h.call("OK")
			h.pvGone()
		}, nil},
		"deleted, killed, asked again by the next process": {func(h *history) {
			h.volumeDeleted()
			h.Processes = []Process{{Span: Span{start, h.now}}, {Span: Span{h.now.Add(time.Millisecond), h.now.Add(time.Hour)}}}
			h.tick()
			h.reads()
			h.call("OK")
			h.pvGone()
		}, nil},
		"finalizer removed by hand: the volume stays": {func(h *history) {
			h.pvDeleted(user)
			h.released(user)
		}, nil},
		"finalizer removed by hand before the sidecar's process began, and gone: it cannot know": {func(h *history) {
			h.MayLeak["pv"] = true
			h.removeFinalizer(user)
			h.Processes = []Process{{Span: Span{start, h.now}}, {Span: Span{h.now, h.now.Add(time.Hour)}}}
			h.now = h.now.Add(time.Millisecond)
			h.pvDeleted(user)
			h.claimDeleted()
			h.released(manager)
			h.read("persistentvolumeclaims", "ns", 404)
			h.call("OK")
		}, nil},
		"gone before it could be protected: deleted afterwards": {func(h *history) {
			h.removeFinalizer(sidecar)
			h.Requests = h.Requests[1:] // it was never on
			h.pvDeleted(user)
			h.claimDeleted()
			h.released(manager)
			h.read("persistentvolumeclaims", "ns", 404)
			h.call("OK")
		}, nil},

		"a new claim has the name of the old one": {func(h *history) {
			h.claimDeleted()
			h.claimRecreated("another")
			h.read("persistentvolumeclaims", "ns", 200)
			h.read("persistentvolumes", "", 200)
			h.call("OK")
			h.pvGone()
		}, nil},
		"a new claim names the PV, which vanished unprotected: the volume stays": {func(h *history) {
			h.removeFinalizer(sidecar)
			h.Requests = h.Requests[1:] // it was never on
			h.pvDeleted(user)
			h.claimDeleted()
			h.claimRecreated("pv")
			h.released(manager)
		}, nil},
		"a new claim names the PV: at rest": {func(h *history) {
			h.claimDeleted()
			h.claimRecreated("pv")
			h.Now = append(h.Now, h.pv)
		}, nil},
		"STUCK: a new claim names another PV": {func(h *history) {
			h.claimDeleted()
			h.claimRecreated("another")
			h.Now = append(h.Now, h.pv)
		}, []string{Stuck}},
		"WRONG DELETE: a new claim names the PV": {func(h *history) {
			h.claimDeleted()
			h.claimRecreated("pv")
			h.read("persistentvolumeclaims", "ns", 200)
			h.read("persistentvolumes", "", 200)
			h.call("OK")
		}, []string{WrongDelete}},

		"LEAK: PV released without a deletion": {func(h *history) {
			h.pvDeleted(user)
			h.claimDeleted()
			h.released(sidecar)
		}, []string{Leak}},
		"LEAK: never protected": {func(h *history) {
			h.removeFinalizer(sidecar)
			h.claimDeleted()
			h.pvDeleted(user)
			h.released(manager)
		}, []string{Leak}},
		"LEFT EARLY: PV released before the deletion": {func(h *history) {
			h.pvDeleted(user)
			h.claimDeleted()
			h.reads()
			h.released(sidecar)
			h.call("OK")
		}, []string{WrongDelete, LeftEarly}},
		"LEFT EARLY: the driver was slower than the PV": {func(h *history) {
			h.pvDeleted(user)
			h.volumeDeleted()
			h.released(sidecar)
			h.Calls[0].Done = h.now
			h.Calls[0].Answered = h.now
		}, []string{LeftEarly}},
		"WRONG DELETE: policy Retain": {func(h *history) {
			h.policy("Retain")
			h.volumeDeleted()
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim lives": {func(h *history) {
			h.pv.Phase = "Released"
			h.write(manager, "update", h.pv)
			h.read("persistentvolumeclaims", "ns", 200)
			h.read("persistentvolumes", "", 200)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: nothing was read": {func(h *history) {
			h.claimDeleted()
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim was not read": {func(h *history) {
			h.claimDeleted()
			h.read("persistentvolumes", "", 200)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim was read after the PV": {func(h *history) {
			h.claimDeleted()
			h.read("persistentvolumes", "", 200)
			h.read("persistentvolumeclaims", "ns", 404)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim was read while the PV was being read": {func(h *history) {
			h.claimDeleted()
			h.read("persistentvolumes", "", 200)
			h.read("persistentvolumeclaims", "ns", 404)
			pv, claim := &h.Requests[len(h.Requests)-2], h.Requests[len(h.Requests)-1]
			pv.To = claim.To
			h.call("OK")
		}, []string{WrongDelete}},
		"the claim was not read, but its end was watched": {func(h *history) {
			h.ClaimsWatched = true
			h.claimDeleted()
			h.read("persistentvolumes", "", 200)
			h.call("OK")
			h.pvGone()
		}, nil},
		"WRONG DELETE: the claim exists, and claims are watched": {func(h *history) {
			h.ClaimsWatched = true
			h.pv.Phase = "Released"
			h.write(manager, "update", h.pv)
			h.read("persistentvolumes", "", 200)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the end was in the life of an earlier process": {func(h *history) {
			h.ClaimsWatched = true
			h.claimDeleted()
			h.restarted()
			h.read("persistentvolumes", "", 200)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the end came after the call": {func(h *history) {
			h.ClaimsWatched = true
			h.pv.Phase = "Released"
			h.write(manager, "update", h.pv)
			h.read("persistentvolumes", "", 200)
			h.call("OK")
			h.claimDeleted()
			h.pvGone()
		}, []string{WrongDelete}},
		"WRONG DELETE: a claim was restored long ago, not read": {func(h *history) {
			h.ClaimsWatched = true
			h.claimDeleted()
			h.claimRecreated("pv")
			h.now = h.now.Add(time.Minute)
			h.read("persistentvolumes", "", 200)
			h.call("OK")
		}, []string{WrongDelete}},
		"a claim was restored a moment ago, or the watch was held up": {func(h *history) {
			h.ClaimsWatched = true
			h.claimDeleted()
			h.claimRecreated("pv")
			h.read("persistentvolumes", "", 200)
			h.call("OK")
			h.pvGone()
		}, nil},
		"WRONG DELETE: read long ago": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.now = h.now.Add(time.Minute)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: tried again on an earlier read": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.call("Internal")
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: read by the process before": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.restarted()
			h.call("OK")
		}, []string{WrongDelete}},
		"a call of the process before, which comes when the next has begun": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.restarted()
			h.call("OK")
			h.Calls[0].PID = 7
			h.pvDeleted(user)
			h.released(sidecar)
		}, nil},
		"WRONG DELETE: by a process that read nothing": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.restarted()
			h.call("OK")
			h.Calls[0].PID = 8
		}, []string{WrongDelete}},
		"WRONG DELETE: by another program": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.Processes[0].PID = 7
			h.call("OK")
			h.Calls[0].PID = 9
		}, []string{WrongDelete}},
		"WRONG DELETE: without a finalizer": {func(h *history) {
			h.removeFinalizer(user)
			h.volumeDeleted()
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim was taken back": {func(h *history) {
			h.claimDeleted()
			h.pv.ClaimUID = ""
			h.write(user, "patch", h.pv)
			h.reads()
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: bound anew": {func(h *history) {
			h.claimDeleted()
			h.pv.ClaimUID, h.pv.Phase = "other", "Bound"
			h.write(manager, "update", h.pv)
			h.reads()
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: finalizer removed by hand, and gone": {func(h *history) {
			h.claimDeleted()
			h.pvDeleted(user)
			h.released(user)
			h.read("persistentvolumeclaims", "ns", 404)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: finalizer removed by hand while it lived, and gone": {func(h *history) {
			h.MayLeak["pv"] = true
			h.removeFinalizer(user)
			h.pvDeleted(user)
			h.claimDeleted()
			h.released(manager)
			h.read("persistentvolumeclaims", "ns", 404)
			h.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: a volume without a PV": {func(h *history) {
			h.call("OK")
			h.Calls[0].Volume = "other"
		}, []string{WrongDelete}},
		"IN USE: attached for long": {func(h *history) {
			h.write(user, "create", Object{Kind: Attachment, Name: "va", UID: "va-uid", Volume: "pv"})
			h.now = h.now.Add(time.Minute)
			claimFirst(h)
		}, []string{InUse}},
		"attached a moment ago: the watch may not know": {func(h *history) {
			h.write(user, "create", Object{Kind: Attachment, Name: "va", UID: "va-uid", Volume: "pv"})
			claimFirst(h)
		}, nil},
		"attached for long, with a watch that was held up": {func(h *history) {
			h.write(user, "create", Object{Kind: Attachment, Name: "va", UID: "va-uid", Volume: "pv"})
			h.Lags = []Span{{h.now, h.now.Add(2 * time.Minute)}}
			h.now = h.now.Add(time.Minute)
			claimFirst(h)
		}, nil},
		"IN USE: another PV has the volume": {func(h *history) {
			other := h.pv
			other.Name, other.UID = "other", "other-uid"
			h.write(user, "create", other)
			h.now = h.now.Add(time.Minute)
			claimFirst(h)
		}, []string{InUse}},
		"a call that was under way when the sidecar was killed": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.Processes = []Process{{Span: Span{start, h.now.Add(-time.Millisecond)}}}
			h.call("OK")
			h.pvDeleted(user)
			h.released(sidecar)
		}, nil},
		"WRONG DELETE: long after the sidecar was killed": {func(h *history) {
			h.claimDeleted()
			h.reads()
			h.Processes = []Process{{Span: Span{start, h.now}}}
			h.now = h.now.Add(2 * time.Second)
			h.call("OK")
			h.pvDeleted(user)
			h.released(sidecar)
		}, []string{WrongDelete}},
		"two PVs of one volume, each deleted after its own reads": {func(h *history) {
			other := h.pv
			other.Name, other.UID, other.ClaimName, other.ClaimUID, other.Phase = "b", "b-uid", "b", "b-claim", "Released"
			h.write(user, "create", other)
			h.volumeDeleted()
			h.call("OK")
			h.pvGone()
			other.Finalizers, other.Terminating = nil, true
			h.write(sidecar, "patch", other)
		}, nil},
		"DOUBLE: again after success": {func(h *history) {
			h.volumeDeleted()
			h.reads()
			h.call("OK")
			h.pvGone()
		}, []string{DoubleDelete}},
		"STUCK: deleted, and nothing happens": {func(h *history) {
			h.claimDeleted()
			h.Now = []Object{h.pv}
		}, []string{Stuck}},
		"STORM: writes": {func(h *history) {
			h.WriteBudget = Budget{"pv": 2}
			for range 7 {
				h.write(sidecar, "patch", h.pv)
			}
		}, []string{Storm}},
		"STORM: Events": {func(h *history) {
			h.EventBudget = Budget{"pv": 1}
			h.Events["pv"] = 4
		}, []string{Storm}},
		"STORM: calls": {func(h *history) {
			h.claimDeleted()
			h.CallBudget = Budget{"pv": 1}
			for range 4 {
				h.reads()
				h.call("Internal")
			}
		}, []string{Storm}},
		"STORM: calls by the thousand, in a few lines": {func(h *history) {
			h.claimDeleted()
			h.CallBudget = Budget{"pv": 1}
			for range 5000 {
				h.reads()
				h.call("Internal")
			}
		}, []string{Storm}},
		"within the budget": {func(h *history) {
			h.WriteBudget = Budget{"pv": 2}
			for range 6 {
				h.write(sidecar, "patch", h.pv)
			}
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			c.happens(h)
			expectFindings(t, h, c.want)
		})
	}
}

func TestUnsettledPVs(t *testing.T) {
	claim := Object{Kind: Claim, Name: "pv", UID: "claim-uid"}
	pv := newHistory().pv
	change := func(do func(*Object)) Object { o := pv; do(&o); return o }
	released := change(func(o *Object) { o.Phase = "Released" })
	cases := map[string]struct {
		now  []Object
		rest bool
	}{
		"bound and protected":          {[]Object{pv, claim}, true},
		"bound and unprotected":        {[]Object{change(func(o *Object) { o.Finalizers = nil }), claim}, false},
		"terminating, its claim lives": {[]Object{change(func(o *Object) { o.Terminating = true }), claim}, true},
		"released":                     {[]Object{released}, false},
		"released and attached":        {[]Object{released, {Kind: Attachment, Volume: "pv"}}, true},
		"released, another PV needs it": {[]Object{released,
			change(func(o *Object) { o.Name, o.UID, o.ClaimUID = "b", "b", "" })}, true},
		"released, so is the other": {[]Object{released, change(func(o *Object) { o.UID, o.Phase = "b", "Released" })},
			false},
		"released, unprotected": {[]Object{change(func(o *Object) { o.Phase, o.Finalizers = "Released", nil })},
			false},
		"its claim is gone":         {[]Object{pv}, false},
		"its claim is going":        {[]Object{pv, {Kind: Claim, UID: "claim-uid", Terminating: true}}, false},
		"Retain with the finalizer": {[]Object{change(func(o *Object) { o.Policy = "Retain" }), claim}, false},
		"Retain, bound and terminating": {[]Object{change(func(o *Object) { o.Policy, o.Terminating = "Retain", true }),
			claim}, true},
		"Retain, released": {[]Object{change(func(o *Object) {
			o.Policy, o.Phase, o.Finalizers = "Retain",
				"Released", nil
		})}, true},
		"unclaimed, terminating": {[]Object{change(func(o *Object) {
			o.ClaimUID, o.Phase, o.Terminating = "",
				"Available", true
		})}, false},
		"abandoned, held by another": {[]Object{change(func(o *Object) {
			o.Phase, o.Terminating,
				o.Finalizers = "Released", true, []string{"x"}
		})}, true},
		"terminating, with no finalizer": {[]Object{change(func(o *Object) {
			o.Phase, o.Terminating,
				o.Finalizers = "Released", true, []string{pvProtection}
		})}, false},
		"of another driver": {[]Object{change(func(o *Object) { o.Driver, o.Phase = "e", "Released" })}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Unrest("d", ours, c.now); (len(got) == 0) != c.rest {
				t.Errorf("got %+v, want rest: %t", got, c.rest)
			}
		})
	}
}
