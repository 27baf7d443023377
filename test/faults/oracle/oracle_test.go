package oracle

import (
	"testing"
	"time"
)

func TestJudgeReclaim(t *testing.T) {
	expectFindings(t, boundVolume, map[string]judged{
		"claim first": {steps{claimFirst}, nil},
		"PV first":    {steps{pvDeleted(user), volumeDeleted, released(sidecar)}, nil},
		"turned to Retain and kept": {steps{policy("Retain"), removeFinalizer(sidecar), claimDeleted, pvDeleted(user),
			released(manager)}, nil},
		"turned to Retain while the PV was being read": {steps{claimDeleted, reads, atOnce(policy("Retain")), call("OK")},
			nil},
		"deleted, the answer lost, asked again": {steps{volumeDeleted, func(h *history) { h.Calls[0].Code = "Unavailable" },
			reads, call("OK"), pvGone}, nil},
		"deleted, killed, asked again by the next process": {steps{volumeDeleted, replaced, reads, call("OK"), pvGone}, nil},
		"finalizer removed by hand: the volume stays":      {steps{pvDeleted(user), released(user)}, nil},
		"finalizer removed by hand before the sidecar's process began, and gone: it cannot know": {steps{mayLeak,
			removeFinalizer(user), replaced, pvDeleted(user), claimDeleted, released(manager), readClaim(404), call("OK")}, nil},
		"gone before it could be protected: deleted afterwards": {steps{neverProtected, pvDeleted(user), claimDeleted,
			released(manager), readClaim(404), call("OK")}, nil},
		"a new claim has the name of the old one": {steps{claimDeleted, claimRecreated("another"), readClaim(200),
			readPV(200), call("OK"), pvGone}, nil},
		"a new claim names the PV, which vanished unprotected: the volume stays": {steps{neverProtected, pvDeleted(user),
			claimDeleted, claimRecreated("pv"), released(manager)}, nil},
		"a new claim names the PV: at rest":    {steps{claimDeleted, claimRecreated("pv"), pvStays}, nil},
		"STUCK: a new claim names another PV":  {steps{claimDeleted, claimRecreated("another"), pvStays}, []string{Stuck}},
		"STUCK: deleted, and nothing happens":  {steps{claimDeleted, pvStays}, []string{Stuck}},
		"LEAK: PV released without a deletion": {steps{pvDeleted(user), claimDeleted, released(sidecar)}, []string{Leak}},
		"LEAK: never protected": {steps{removeFinalizer(sidecar), claimDeleted, pvDeleted(user), released(manager)},
			[]string{Leak}},
		"LEFT EARLY: PV released before the deletion": {steps{pvDeleted(user), claimDeleted, reads, released(sidecar),
			call("OK")}, []string{WrongDelete, LeftEarly}},
		"LEFT EARLY: the driver was slower than the PV": {steps{pvDeleted(user), volumeDeleted, released(sidecar),
			func(h *history) { h.Calls[0].Done, h.Calls[0].Answered = h.now, h.now }}, []string{LeftEarly}},
		"WRONG DELETE: a new claim names the PV": {steps{claimDeleted, claimRecreated("pv"), readClaim(200), readPV(200),
			call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: policy Retain": {steps{policy("Retain"), volumeDeleted}, []string{WrongDelete}},
		"WRONG DELETE: the claim lives": {steps{phaseReleased, readClaim(200), readPV(200), call("OK")},
			[]string{WrongDelete}},
		"WRONG DELETE: nothing was read":       {steps{claimDeleted, call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: the claim was not read": {steps{claimDeleted, readPV(200), call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: the claim was read after the PV": {steps{claimDeleted, readPV(200), readClaim(404), call("OK")},
			[]string{WrongDelete}},
		"WRONG DELETE: the claim was read while the PV was being read": {steps{claimDeleted, readPV(200), readClaim(404),
			func(h *history) { h.Requests[len(h.Requests)-2].To = h.lastRequest().To }, call("OK")}, []string{WrongDelete}},
		"the claim was not read, but its end was watched": {steps{claimsWatched, claimDeleted, readPV(200), call("OK"),
			pvGone}, nil},
		"WRONG DELETE: the claim exists, and claims are watched": {steps{claimsWatched, phaseReleased, readPV(200),
			call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: the end was in the life of an earlier process": {steps{claimsWatched, claimDeleted, restarted,
			readPV(200), call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: the end came after the call": {steps{claimsWatched, phaseReleased, readPV(200), call("OK"),
			claimDeleted, pvGone}, []string{WrongDelete}},
		"WRONG DELETE: a claim was restored long ago, not read": {steps{claimsWatched, claimDeleted, claimRecreated("pv"),
			passes(time.Minute), readPV(200), call("OK")}, []string{WrongDelete}},
		"a claim was restored a moment ago, or the watch was held up": {steps{claimsWatched, claimDeleted,
			claimRecreated("pv"), readPV(200), call("OK"), pvGone}, nil},
		"WRONG DELETE: read long ago": {steps{claimDeleted, reads, passes(time.Minute), call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: tried again on an earlier read": {steps{claimDeleted, reads, call("Internal"), call("OK")},
			[]string{WrongDelete}},
		"WRONG DELETE: read by the process before": {steps{claimDeleted, reads, restarted, call("OK")},
			[]string{WrongDelete}},
		"a call of the process before, which comes when the next has begun": {steps{claimDeleted, reads, restarted,
			call("OK"), callBy(7), pvDeleted(user), released(sidecar)}, nil},
		"WRONG DELETE: by a process that read nothing": {steps{claimDeleted, reads, restarted, call("OK"), callBy(8)},
			[]string{WrongDelete}},
		"WRONG DELETE: by another program": {steps{claimDeleted, reads, func(h *history) { h.Processes[0].PID = 7 },
			call("OK"), callBy(9)}, []string{WrongDelete}},
		"WRONG DELETE: without a finalizer": {steps{removeFinalizer(user), volumeDeleted}, []string{WrongDelete}},
		"WRONG DELETE: the claim was taken back": {steps{claimDeleted, pvWritten(user, "patch", func(pv *Object) {
			pv.ClaimUID = ""
		}), reads, call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: bound anew": {steps{claimDeleted, pvWritten(manager, "update", func(pv *Object) {
			pv.ClaimUID, pv.Phase = "other", "Bound"
		}), reads, call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: finalizer removed by hand, and gone": {steps{claimDeleted, pvDeleted(user), released(user),
			readClaim(404), call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: finalizer removed by hand while it lived, and gone": {steps{mayLeak, removeFinalizer(user),
			pvDeleted(user), claimDeleted, released(manager), readClaim(404), call("OK")}, []string{WrongDelete}},
		"WRONG DELETE: a volume without a PV": {steps{call("OK"), func(h *history) { h.Calls[0].Volume = "other" }},
			[]string{WrongDelete}},
		"IN USE: attached for long":                     {steps{attached, passes(time.Minute), claimFirst}, []string{InUse}},
		"attached a moment ago: the watch may not know": {steps{attached, claimFirst}, nil},
		"attached for long, with a watch that was held up": {steps{attached, func(h *history) {
			h.Lags = []Span{{h.now, h.now.Add(2 * time.Minute)}}
		}, passes(time.Minute), claimFirst}, nil},
		"IN USE: another PV has the volume": {steps{func(h *history) {
			other := h.pv
			other.Name, other.UID = "other", "other-uid"
			h.write(user, "create", other)
		}, passes(time.Minute), claimFirst}, []string{InUse}},
		"a call that was under way when the sidecar was killed": {steps{claimDeleted, reads, killed(-time.Millisecond),
			call("OK"), pvDeleted(user), released(sidecar)}, nil},
		"WRONG DELETE: long after the sidecar was killed": {steps{claimDeleted, reads, killed(0), passes(2 * time.Second),
			call("OK"), pvDeleted(user), released(sidecar)}, []string{WrongDelete}},
		"two PVs of one volume, each deleted after its own reads": {steps{func(h *history) {
			other := h.pv
			other.Name, other.UID, other.ClaimName, other.ClaimUID, other.Phase = "b", "b-uid", "b", "b-claim", "Released"
			h.write(user, "create", other)
			h.add(volumeDeleted, call("OK"), pvGone)
			other.Finalizers, other.Terminating = nil, true
			h.write(sidecar, "patch", other)
		}}, nil},
		"DOUBLE: again after success": {steps{volumeDeleted, reads, call("OK"), pvGone}, []string{DoubleDelete}},
		"STORM: writes":               {steps{writesFor(2), times(7, writesPV)}, []string{Storm}},
		"within the budget":           {steps{writesFor(2), times(6, writesPV)}, nil},
		"STORM: Events":               {steps{eventsFor(1), func(h *history) { h.Events["pv"] = 4 }}, []string{Storm}},
		"STORM: calls":                {steps{claimDeleted, callsFor(1), times(4, reads, call("Internal"))}, []string{Storm}},
		"STORM: calls by the thousand, in a few lines": {steps{claimDeleted, callsFor(1),
			times(5000, reads, call("Internal"))}, []string{Storm}},
	})
}

func mayLeak(h *history) { h.MayLeak["pv"] = true }

func writesPV(h *history) { h.write(sidecar, "patch", h.pv) }

// writesFor, eventsFor and callsFor have reasons for so many of each.
func writesFor(n int) step { return func(h *history) { h.WriteBudget = Budget{"pv": n} } }
func eventsFor(n int) step { return func(h *history) { h.EventBudget = Budget{"pv": n} } }
func callsFor(n int) step  { return func(h *history) { h.CallBudget = Budget{"pv": n} } }

func TestUnsettledPVs(t *testing.T) {
	claim := Object{Kind: Claim, Name: "pv", UID: "claim-uid"}
	pv := boundVolume().pv
	changed := func(do func(*Object)) Object { o := pv; do(&o); return o }
	released := changed(func(o *Object) { o.Phase = "Released" })
	terminating := func(finalizers ...string) Object {
		return changed(func(o *Object) { o.Phase, o.Terminating, o.Finalizers = "Released", true, finalizers })
	}
	for name, c := range map[string]struct {
		now  []Object
		rest bool
	}{
		"bound and protected":          {[]Object{pv, claim}, true},
		"bound and unprotected":        {[]Object{changed(func(o *Object) { o.Finalizers = nil }), claim}, false},
		"terminating, its claim lives": {[]Object{changed(func(o *Object) { o.Terminating = true }), claim}, true},
		"released":                     {[]Object{released}, false},
		"released and attached":        {[]Object{released, {Kind: Attachment, Volume: "pv"}}, true},
		"released, another PV needs it": {[]Object{released,
			changed(func(o *Object) { o.Name, o.UID, o.ClaimUID = "b", "b", "" })}, true},
		"released, so is the other": {[]Object{released, changed(func(o *Object) { o.UID, o.Phase = "b", "Released" })},
			false},
		"released, unprotected": {[]Object{changed(func(o *Object) { o.Phase, o.Finalizers = "Released", nil })},
			false},
		"its claim is gone":         {[]Object{pv}, false},
		"its claim is going":        {[]Object{pv, {Kind: Claim, UID: "claim-uid", Terminating: true}}, false},
		"Retain with the finalizer": {[]Object{changed(func(o *Object) { o.Policy = "Retain" }), claim}, false},
		"Retain, bound and terminating": {[]Object{changed(func(o *Object) { o.Policy, o.Terminating = "Retain", true }),
			claim}, true},
		"Retain, released": {[]Object{changed(func(o *Object) {
			o.Policy, o.Phase, o.Finalizers = "Retain", "Released", nil
		})}, true},
		"unclaimed, terminating": {[]Object{changed(func(o *Object) {
			o.ClaimUID, o.Phase, o.Terminating = "", "Available", true
		})}, false},
		"abandoned, held by another":     {[]Object{terminating("x")}, true},
		"terminating, with no finalizer": {[]Object{terminating(pvProtection)}, false},
		"of another driver":              {[]Object{changed(func(o *Object) { o.Driver, o.Phase = "e", "Released" })}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Unrest("d", ours, c.now); (len(got) == 0) != c.rest {
				t.Errorf("got %+v, want rest: %t", got, c.rest)
			}
		})
	}
}
