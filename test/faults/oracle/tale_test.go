package oracle

import (
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

// tale writes a history by hand; each line takes ten milliseconds.
type tale struct {
	Case
	now     time.Time
	version uint64
	pv      Object
	claim   Object
	shard   Object
	changed bool
}

// begin tells of a bound, protected PV with its claim, and of a sidecar that runs.
func begin() *tale {
	t := &tale{now: start}
	t.Case = Case{
		Driver: "d", Finalizer: ours, User: sidecar, OnDisk: map[string]string{"vol": "vol"}, MayLeak: map[string]bool{},
		Processes: []Process{{Span: Span{start, start.Add(time.Hour)}}}, Events: map[string]int{},
	}
	t.pv = Object{
		Kind: PV, Name: "pv", UID: "pv-uid", Driver: "d", Handle: "vol", Policy: "Delete", Phase: "Bound",
		ClaimNamespace: "ns", ClaimName: "pv", ClaimUID: "claim-uid", Finalizers: []string{ours},
	}
	t.claim = Object{Kind: Claim, Namespace: "ns", Name: "pv", UID: "claim-uid", Finalizers: []string{"protection"}, Volume: "pv"}
	t.write(user, "create", t.pv)
	t.write(user, "create", t.claim)
	return t
}

func (t *tale) tick() Span {
	s := Span{t.now, t.now.Add(8 * time.Millisecond)}
	t.now = t.now.Add(10 * time.Millisecond)
	return s
}

func (t *tale) write(by, verb string, o Object) {
	t.version++
	o.Version = t.version
	resource := map[Kind]string{PV: "persistentvolumes", Claim: "persistentvolumeclaims", Attachment: "volumeattachments", Log: "leases"}[o.Kind]
	t.Requests = append(t.Requests, Request{Span: t.tick(), User: by, Verb: verb, Resource: resource, Namespace: o.Namespace, Name: o.Name, Code: 200, Object: &o})
}

func (t *tale) read(resource, namespace string, code int) {
	t.Requests = append(t.Requests, Request{Span: t.tick(), User: sidecar, Verb: "get", Resource: resource, Namespace: namespace, Name: "pv", Code: code})
}

func (t *tale) reads() {
	t.read("persistentvolumeclaims", "ns", 404)
	t.read("persistentvolumes", "", 200)
}

func (t *tale) claimGoes() {
	t.claim.Terminating = true
	t.write(user, "delete", t.claim)
	t.claim.Finalizers = nil
	t.write(manager, "update", t.claim)
	t.pv.Phase = "Released"
	t.write(manager, "update", t.pv)
}

// claimAgain tells of a new claim of the old name, which names this PV.
func (t *tale) claimAgain(names string) {
	t.claim.UID, t.claim.Terminating, t.claim.Volume = "newer-uid", false, names
	t.write(user, "create", t.claim)
	t.Now = append(t.Now, t.claim)
}

// call tells of a DeleteVolume, with the code of its answer.
func (t *tale) call(code string) {
	s := t.tick()
	c := ledger.Call{Boot: "b", Seq: uint64(len(t.Calls) + 1), Method: "DeleteVolume", Volume: "vol", Received: s.From, Answered: s.To, Code: code}
	if code == "OK" && !t.changed {
		t.changed, c.Changed, c.Done = true, true, s.From.Add(time.Millisecond)
		t.OnDisk = map[string]string{}
	}
	t.Calls = append(t.Calls, c)
}

func (t *tale) pvGoes(by string) {
	t.pv.Terminating = true
	t.write(by, "delete", t.pv)
}

func (t *tale) released(by string) {
	t.pv.Finalizers = nil
	t.write(by, "patch", t.pv)
}

func (t *tale) strip(by string) {
	t.pv.Finalizers = []string{"kubernetes.io/pv-protection"}
	t.write(by, "patch", t.pv)
}

func (t *tale) policy(p string) {
	t.pv.Policy = p
	t.write(user, "patch", t.pv)
}

// restarted tells of a sidecar that was replaced by another: processes 7 and 8.
func (t *tale) restarted() {
	t.Processes = []Process{{Span{start, t.now.Add(-time.Nanosecond)}, 7}, {Span{t.now, t.now.Add(time.Hour)}, 8}}
}

// claimFirst is how it should be.
func claimFirst(t *tale) {
	t.claimGoes()
	t.reads()
	t.call("OK")
	t.pvGoes(sidecar)
	t.released(sidecar)
}
