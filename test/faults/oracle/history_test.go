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

// history writes a history by hand; each line takes ten milliseconds.
type history struct {
	Case
	now     time.Time
	version uint64
	pv      Object
	claim   Object
	shard   Object
	changed bool
}

// newHistory adds a bound, protected PV with its claim, and of a sidecar that runs.
func newHistory() *history {
	h := &history{now: start}
	h.Case = Case{
		Driver: "d", Finalizer: ours, User: sidecar, OnDisk: map[string]string{"vol": "vol"}, MayLeak: map[string]bool{},
		Processes: []Process{{Span: Span{start, start.Add(time.Hour)}}}, Events: map[string]int{},
	}
	h.pv = Object{
		Kind: PV, Name: "pv", UID: "pv-uid", Driver: "d", Handle: "vol", Policy: "Delete", Phase: "Bound",
		ClaimNamespace: "ns", ClaimName: "pv", ClaimUID: "claim-uid", Finalizers: []string{ours},
	}
	h.claim = Object{Kind: Claim, Namespace: "ns", Name: "pv", UID: "claim-uid", Finalizers: []string{"protection"},
		Volume: "pv"}
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

func (h *history) read(resource, namespace string, code int) {
	h.Requests = append(h.Requests, Request{Span: h.tick(), User: sidecar, Verb: "get", Resource: resource,
		Namespace: namespace, Name: "pv", Code: code})
}

func (h *history) reads() {
	h.read("persistentvolumeclaims", "ns", 404)
	h.read("persistentvolumes", "", 200)
}

func (h *history) claimDeleted() {
	h.claim.Terminating = true
	h.write(user, "delete", h.claim)
	h.claim.Finalizers = nil
	h.write(manager, "update", h.claim)
	h.pv.Phase = "Released"
	h.write(manager, "update", h.pv)
}

// claimRecreated adds a new claim of the old name, which names this PV.
func (h *history) claimRecreated(names string) {
	h.claim.UID, h.claim.Terminating, h.claim.Volume = "newer-uid", false, names
	h.write(user, "create", h.claim)
	h.Now = append(h.Now, h.claim)
}

// call adds a DeleteVolume, with the code of its answer.
func (h *history) call(code string) {
	s := h.tick()
	c := ledger.Call{Boot: "b", Seq: uint64(len(h.Calls) + 1), Method: "DeleteVolume", Volume: "vol", Received: s.From,
		Answered: s.To, Code: code}
	if code == "OK" && !h.changed {
		h.changed, c.Changed, c.Done = true, true, s.From.Add(time.Millisecond)
		h.OnDisk = map[string]string{}
	}
	h.Calls = append(h.Calls, c)
}

func (h *history) pvDeleted(by string) {
	h.pv.Terminating = true
	h.write(by, "delete", h.pv)
}

func (h *history) released(by string) {
	h.pv.Finalizers = nil
	h.write(by, "patch", h.pv)
}

func (h *history) removeFinalizer(by string) {
	h.pv.Finalizers = []string{"kubernetes.io/pv-protection"}
	h.write(by, "patch", h.pv)
}

func (h *history) policy(p string) {
	h.pv.Policy = p
	h.write(user, "patch", h.pv)
}

// restarted adds a sidecar that was replaced by another: processes 7 and 8.
func (h *history) restarted() {
	h.Processes = []Process{{Span{start, h.now.Add(-time.Nanosecond)}, 7}, {Span{h.now, h.now.Add(time.Hour)}, 8}}
}

// claimFirst is how it should be.
func claimFirst(h *history) {
	h.volumeDeleted()
	h.pvGone()
}

// volumeDeleted adds the end of the claim, and a deletion of the volume after live reads.
func (h *history) volumeDeleted() {
	h.claimDeleted()
	h.reads()
	h.call("OK")
}

// pvGone adds the deletion of the PV by the sidecar.
func (h *history) pvGone() {
	h.pvDeleted(sidecar)
	h.released(sidecar)
}

// expectFindings judges the history, and compares the kinds of the findings.
func expectFindings(t *testing.T, h *history, want []string) {
	t.Helper()
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
	if !slices.Equal(kinds, want) {
		t.Errorf("found %q, want %q", kinds, want)
		for _, f := range found {
			t.Log(f)
		}
	}
}
