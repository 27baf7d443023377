package oracle

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

const (
	ours    = "example.com/finalizer"
	sidecar = "sidecar"
	user    = "user"
	manager = "controllers"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// history is a history that steps add to; each line takes ten milliseconds.
type history struct {
	Case
	now     time.Time
	version uint64
	pv      Object
	claim   Object
	shard   Object
	changed bool
}

type (
	// step adds something that happens.
	step = func(*history)
	// judged is a story, and the kinds of the findings in it.
	judged struct {
		story []step
		want  []string
	}
	steps = []step
)

// newHistory has a sidecar that runs, and the objects that the steps change.
func newHistory(pv, claim Object) *history {
	h := &history{now: start, pv: pv, claim: claim}
	h.Case = Case{
		Driver: "d", Finalizer: ours, User: sidecar, OnDisk: map[string]string{}, MayLeak: map[string]bool{},
		Processes: []Process{{Span: Span{start, start.Add(time.Hour)}}}, Events: map[string]int{},
	}
	return h
}

// boundVolume begins with a bound, protected PV and its claim.
func boundVolume() *history {
	h := newHistory(Object{
		Kind: PV, Name: "pv", UID: "pv-uid", Driver: "d", Handle: "vol", Policy: "Delete", Phase: "Bound",
		ClaimNamespace: "ns", ClaimName: "pv", ClaimUID: "claim-uid", Finalizers: []string{ours},
	}, Object{Kind: Claim, Namespace: "ns", Name: "pv", UID: "claim-uid", Volume: "pv",
		Finalizers: []string{"protection"}})
	h.OnDisk["vol"] = "vol"
	h.write(user, "create", h.pv)
	h.write(user, "create", h.claim)
	return h
}

func (h *history) tick() Span {
	s := Span{h.now, h.now.Add(8 * time.Millisecond)}
	h.now = h.now.Add(10 * time.Millisecond)
	return s
}

func (h *history) write(by, verb string, o Object) {
	h.version++
	o.Version = h.version
	resource := map[Kind]string{PV: "persistentvolumes", Claim: "persistentvolumeclaims", Attachment: "volumeattachments",
		Log: "leases"}[o.Kind]
	h.Requests = append(h.Requests, Request{Span: h.tick(), User: by, Verb: verb, Resource: resource,
		Namespace: o.Namespace, Name: o.Name, Code: 200, Object: &o})
}

func (h *history) add(steps ...step) {
	for _, s := range steps {
		s(h)
	}
}

func (h *history) lastRequest() *Request { return &h.Requests[len(h.Requests)-1] }

// passes lets time pass.
func passes(d time.Duration) step { return func(h *history) { h.now = h.now.Add(d) } }

// atOnce has a request come while the last one is under way.
func atOnce(s step) step {
	return func(h *history) {
		span := h.lastRequest().Span
		s(h)
		h.lastRequest().Span = span
	}
}

// readPV and readClaim are live reads of the sidecar.
func readPV(code int) step {
	return func(h *history) {
		h.Requests = append(h.Requests, Request{Span: h.tick(), User: sidecar, Verb: "get", Resource: "persistentvolumes",
			Name: h.pv.Name, Code: code})
	}
}

func readClaim(code int) step {
	return func(h *history) {
		h.Requests = append(h.Requests, Request{Span: h.tick(), User: sidecar, Verb: "get",
			Resource: "persistentvolumeclaims", Namespace: h.claim.Namespace, Name: h.claim.Name, Code: code})
	}
}

func reads(h *history) { h.add(readClaim(404), readPV(200)) }

func pvWritten(by, verb string, change func(pv *Object)) step {
	return func(h *history) {
		change(&h.pv)
		h.write(by, verb, h.pv)
	}
}

func pvDeleted(by string) step {
	return pvWritten(by, "delete", func(pv *Object) { pv.Terminating = true })
}

func released(by string) step {
	return pvWritten(by, "patch", func(pv *Object) { pv.Finalizers = nil })
}

func removeFinalizer(by string) step {
	return pvWritten(by, "patch", func(pv *Object) { pv.Finalizers = []string{pvProtection} })
}

func policy(p string) step { return pvWritten(user, "patch", func(pv *Object) { pv.Policy = p }) }

func phaseReleased(h *history) {
	h.add(pvWritten(manager, "update", func(pv *Object) { pv.Phase = "Released" }))
}

// neverProtected has a PV without the finalizer from its beginning.
func neverProtected(h *history) {
	h.add(removeFinalizer(sidecar))
	h.Requests = h.Requests[1:]
}

func claimDeleted(h *history) {
	h.claim.Terminating = true
	h.write(user, "delete", h.claim)
	h.claim.Finalizers = nil
	h.write(manager, "update", h.claim)
	phaseReleased(h)
}

// claimRecreated adds a new claim of the old name, which names this PV.
func claimRecreated(names string) step {
	return func(h *history) {
		h.claim.UID, h.claim.Terminating, h.claim.Volume = "newer-uid", false, names
		h.write(user, "create", h.claim)
		h.Now = append(h.Now, h.claim)
	}
}

// pvStays has the PV in the cluster at the end.
func pvStays(h *history) { h.Now = append(h.Now, h.pv) }

// claimsWatched has the sidecar watch claims.
func claimsWatched(h *history) { h.ClaimsWatched = true }

func attached(h *history) {
	h.write(user, "create", Object{Kind: Attachment, Name: "va", UID: "va-uid", Volume: "pv"})
}

// call adds a DeleteVolume, with the code of its answer.
func call(code string) step {
	return func(h *history) {
		s := h.tick()
		c := ledger.Call{Boot: "b", Seq: uint64(len(h.Calls) + 1), Method: "DeleteVolume", Volume: "vol", Received: s.From,
			Answered: s.To, Code: code}
		if code == "OK" && !h.changed {
			h.changed, c.Changed, c.Done = true, true, s.From.Add(time.Millisecond)
			h.OnDisk = map[string]string{}
		}
		h.Calls = append(h.Calls, c)
	}
}

// callBy has the first call be of a process.
func callBy(pid int) step { return func(h *history) { h.Calls[0].PID = pid } }

// restarted adds a sidecar that was replaced by another: processes 7 and 8.
func restarted(h *history) {
	h.Processes = []Process{{Span{start, h.now.Add(-time.Nanosecond)}, 7}, {Span{h.now, h.now.Add(time.Hour)}, 8}}
}

// replaced is the same with processes whose numbers are unknown.
func replaced(h *history) {
	h.Processes = []Process{{Span: Span{start, h.now}}, {Span: Span{h.now, h.now.Add(time.Hour)}}}
	h.now = h.now.Add(time.Millisecond)
}

// killed ends the sidecar, this long from now.
func killed(in time.Duration) step {
	return func(h *history) { h.Processes = []Process{{Span: Span{start, h.now.Add(in)}}} }
}

// claimFirst is how it should be.
func claimFirst(h *history) { h.add(volumeDeleted, pvGone) }

// volumeDeleted adds the end of the claim, and a deletion of the volume after live reads.
func volumeDeleted(h *history) { h.add(claimDeleted, reads, call("OK")) }

// pvGone adds the deletion of the PV by the sidecar.
func pvGone(h *history) { h.add(pvDeleted(sidecar), released(sidecar)) }

// times repeats steps.
func times(n int, steps ...step) step {
	return func(h *history) {
		for range n {
			h.add(steps...)
		}
	}
}

// expectFindings judges stories, and compares the kinds of the findings.
func expectFindings(t *testing.T, begin func() *history, cases map[string]judged) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := begin()
			h.add(c.story...)
			sortByTime(h.Requests)
			found := Judge(h.Case)
			var kinds []string
			for _, f := range found {
				kinds = append(kinds, f.Kind)
				if len(f.History) > 2*longest+1 {
					t.Errorf("%s has %d lines", f.Kind, len(f.History))
				}
				if len(f.History) == 0 && (f.PV != "?" || h.claim.Name != "") { // a volume without PV and claim has none
					t.Errorf("%s has no history", f.Kind)
				}
			}
			if !slices.Equal(kinds, c.want) {
				t.Errorf("found %q, want %q: %v", kinds, c.want, found)
			}
		})
	}
}
