package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// maxSteps limits the steps of one run, where provisioning a volume takes five.
const maxSteps = 16

func reasonOf(err error) Reason { return reasons.Of(err, provision.ReasonAPIReadFailed) }

// act executes a step and adds its result to the facts.
func (w *run) act(ctx context.Context, d provision.Decision) error {
	ctx, cancel := bound(ctx, d.Action)
	defer cancel()
	if ctx.Err() != nil {
		return reasons.Because(provision.ReasonNotLeading, context.Cause(ctx))
	}
	switch d.Action {
	case provision.BuildRequest:
		return w.buildRequest(ctx)
	case provision.Prepare:
		return w.prepare(ctx)
	case provision.ReadPV:
		return w.readPV(ctx)
	case provision.ReadClaim:
		return w.readClaim(ctx)
	case provision.OpenEntry:
		return w.openEntry(ctx)
	case provision.ConfirmEntry:
		return w.confirmEntry(ctx)
	case provision.NoteVersion:
		return w.noteVersion(ctx)
	case provision.MarkDiscarding:
		return w.markDiscarding(ctx)
	case provision.CreateVolume:
		return w.createVolume(ctx)
	case provision.StorePV, provision.StoreApart:
		return w.storePV(ctx, d.Action)
	case provision.DeleteVolume:
		return w.deleteVolume(ctx, d.Reason)
	case provision.CloseEntry:
		w.closeEntry()
	case provision.Wait, provision.SelectNode:
	}
	return nil
}

// bound limits a step that calls the API server itself. Calls of the driver have Config.CallTimeout. The end of the
// lease ends ctx, and its present rest limits no call, because a call may outlast many renewals.
func bound(ctx context.Context, action provision.Action) (context.Context, context.CancelFunc) {
	switch action {
	case provision.CreateVolume, provision.DeleteVolume, provision.Prepare:
		// Each of their calls to the API server has a limit of its own.
		return context.WithCancel(ctx)
	default:
		return context.WithTimeout(ctx, kube.Timeout)
	}
}

// learn adds the result of a step to the facts. began is the start of its call.
func (w *run) learn(done provision.Action, reply provision.Reply, began time.Time) {
	w.facts.Learn(done, reply, false, began, w.cfg.Clock.Now(), w.cfg.Quiet)
}

func (w *run) buildRequest(ctx context.Context) error {
	if w.claim == nil || !caches.Whole(w.claim) {
		return reasons.Because(provision.ReasonFailed,
			errors.New("too little is known about the claim to build a request"))
	}
	node, err := w.selectedNode(ctx)
	if err != nil {
		return reasons.Because(w.failure(), err)
	}
	built, err := w.requests.Build(ctx, request.Options{Name: w.name, Claim: w.claim, Class: w.wanted, Node: node})
	if err != nil {
		w.reschedule = request.RemediationOf(err) == request.RemediationReschedule
		return reasons.Because(w.failure(), err)
	}
	built.DriverVersion = w.version()
	w.built, w.prepared = built, nil
	return nil
}

// selectedNode reads the node that is selected for the claim, nil for none. If the node is gone, the scheduler has to
// select another one. A node that provisions for itself reads no Node.
func (w *run) selectedNode(ctx context.Context) (node *v1.Node, err error) {
	name := w.claim.Annotations[volume.AnnSelectedNode]
	if name == "" || w.cfg.Local != nil {
		return nil, nil
	}
	node, err = kube.GetObject(ctx, kube.Node.Resource, name, w.client.CoreV1().Nodes().Get)
	if err != nil {
		w.reschedule = kube.Absent(err, kube.Node.Resource, name)
		return nil, fmt.Errorf("failed to get target node: %w", err)
	}
	return node, nil
}

// prepare reads the Secret of the request that is not in the log yet, and protects its source.
func (w *run) prepare(ctx context.Context) error {
	began := w.cfg.Clock.Now()
	secrets, err := w.secrets(ctx, *w.built)
	if err != nil {
		return err
	}
	if err := w.holdSource(ctx, *w.built); err != nil {
		return err
	}
	w.prepared = secrets
	w.learn(provision.Prepare, provision.Reply{Class: errclass.Done}, began)
	return nil
}

// end releases the run's sources. A claim that has gone meanwhile did not free its source, which was in use until now,
// so end queues the source.
func (w *run) end() {
	for source, release := range w.reserved {
		release()
		if w.claims.WholeByUID(w.claimKey.UID) == nil {
			w.wakeSource(source)
		}
	}
	clear(w.reserved)
}

// failure returns the reason of a failed step. If a call is in doubt, the reason is an unknown outcome.
func (w *run) failure() Reason {
	if w.facts.Log == provision.LogOpen && w.facts.Record.Begun() {
		return provision.ReasonOutcomeUnknown
	}
	return provision.ReasonFailed
}

func (w *run) readPV(ctx context.Context) error {
	began := w.cfg.Clock.Now()
	w.assumed.Expect(w.name, w.claimKey.UID)
	pv, err := w.cluster.readPV(ctx, w.name)
	if err != nil {
		w.assumed.Forget(w.name)
		return reasons.Because(provision.ReasonAPIReadFailed, err)
	}
	read := w.read(pv, began)
	w.learn(provision.ReadPV, provision.Reply{Class: errclass.Done, PV: read}, began)
	w.assume(w.name, pv, read)
	return nil
}

func (w *run) readClaim(ctx context.Context) error {
	began, k := w.cfg.Clock.Now(), w.claimKey
	claim, err := w.cluster.readClaim(ctx, k.Namespace, k.Name)
	if err != nil {
		return reasons.Because(provision.ReasonAPIReadFailed, err)
	}
	read := provision.Claim{Namespace: k.Namespace, Name: k.Name, UID: k.UID, PVName: w.name, Gone: true}
	if claim != nil && claim.UID == k.UID {
		read = w.claimOf(claim)
		read.PVName = w.name
	}
	read.Read = began
	w.learn(provision.ReadClaim, provision.Reply{Class: errclass.Done, Claim: read}, began)
	return nil
}

// read returns the facts from a live read. pv is nil if the PV does not exist.
func (w *run) read(pv *v1.PersistentVolume, began time.Time) provision.PV {
	if pv == nil {
		return provision.PV{Known: true, Read: began}
	}
	return w.pvOf(volume.At(w.cfg.node(), pv), began)
}

// openEntry writes the entry before the first call, or adds a request to it.
func (w *run) openEntry(ctx context.Context) error {
	t, began := w.track, w.cfg.Clock.Now()
	entry := inflight.Entry{Volume: w.name,
		Claim: w.claimKey,
		Begun: began}
	record := w.facts.Record
	if w.facts.Log == provision.LogOpen {
		entry = t.entry
		at := record.Add(requestOf(*w.built))
		entry.Requests = slices.Clone(entry.Requests)
		if at == len(entry.Requests) {
			entry.Requests = append(entry.Requests, inflight.Request{})
		}
		entry.Requests[at] = *w.built
	} else {
		entry.Requests = []inflight.Request{*w.built}
	}
	added := w.facts.Log == provision.LogAbsent
	err := w.log.Put(ctx, entry)
	switch {
	case err == nil:
		if added {
			w.entryEnded(w.name) // an earlier entry, whose removal is not reported any more
		}
		w.learn(provision.OpenEntry, provision.Reply{Class: errclass.Done, Request: requestOf(*w.built)}, began)
		t.entry, w.built = entry, nil
		w.tracker.note(entry, false)
		return nil
	case noRoom(err) != "", w.facts.Log == provision.LogOpen && isUnchanged(err): // which is repeated
		w.learn(provision.OpenEntry, provision.Reply{Class: errclass.Refused, Log: provision.LogFull}, began)
	case added && !errors.Is(err, inflight.ErrUnreadable): // the driver was not called
		if errors.Is(err, inflight.ErrUnconfirmed) {
			w.tracker.note(entry, false) // it may be stored until its removal is confirmed
		}
		w.removeEntry(w.name)
	}
	return reasons.Because(ofLog(err, provision.ReasonAPIWriteFailed), err)
}

// noRoom returns the reason of an error of the log that has no room for an entry, empty for another error.
func noRoom(err error) Reason {
	switch {
	case errors.Is(err, inflight.ErrFull):
		return provision.ReasonLogFull
	case errors.Is(err, inflight.ErrShare):
		return provision.ReasonLogShare
	case errors.Is(err, inflight.ErrTooLarge):
		return provision.ReasonTooLarge
	}
	return ""
}

// isUnchanged reports whether an error of the log leaves the entry unchanged and usable by this process.
func isUnchanged(err error) bool {
	return noRoom(err) != "" || errors.Is(err, inflight.ErrUnreadable) || errors.Is(err, inflight.ErrNoShard) ||
		errors.Is(err, inflight.ErrInvalid)
}

// ofLog returns the reason of an error of the log, which is otherwise for an error that the log has no reason for.
func ofLog(err error, otherwise Reason) Reason {
	if reason := noRoom(err); reason != "" {
		return reason
	}
	if errors.Is(err, inflight.ErrUnreadable) {
		return provision.ReasonLogUnreadable
	}
	return otherwise
}

// markDiscarding records in the log that a DeleteVolume may be sent. Until the end of that call is known, no process
// asks for the volume again.
func (w *run) markDiscarding(ctx context.Context) error {
	entry := w.track.entry
	entry.Discarding = true
	return w.rewriteEntry(ctx, provision.MarkDiscarding, entry)
}

// noteVersion writes the version of the driver that is called next to the log, unless the log has it.
func (w *run) noteVersion(ctx context.Context) error {
	entry, next := w.track.entry, w.facts.Record.Next
	entry.Requests = slices.Clone(entry.Requests)
	if asked := &entry.Requests[next]; w.facts.Record.Requests[next].Sent {
		asked.OtherVersions = true
	} else {
		asked.DriverVersion = w.version()
	}
	return w.rewriteEntry(ctx, provision.NoteVersion, entry)
}

// rewriteEntry replaces the open entry in the log.
func (w *run) rewriteEntry(ctx context.Context, done provision.Action, entry inflight.Entry) error {
	began := w.cfg.Clock.Now()
	if err := w.log.Put(ctx, entry); err != nil {
		return reasons.Because(ofLog(err, provision.ReasonAPIWriteFailed), err)
	}
	w.track.entry = entry
	w.learn(done, provision.Reply{Class: errclass.Done}, began)
	return nil
}

// isNoted reports whether the log has the version of the driver that is called next.
func (w *run) isNoted() bool {
	requests, next := w.track.entry.Requests, w.track.record.Next
	return next < len(requests) && (requests[next].OtherVersions || requests[next].DriverVersion == w.version())
}

// confirmEntry reads the log live, because the volume of an entry that an operator settled is left to the operator. A
// read for another entry may have found that first: the entry is absent then.
func (w *run) confirmEntry(ctx context.Context) error {
	began := w.cfg.Clock.Now()
	err := w.log.Confirm(ctx, w.name)
	switch {
	case errors.Is(err, inflight.ErrSettled), errors.Is(err, inflight.ErrAbsent):
		if handle := w.facts.Record.Handle; handle != "" { // nothing else may have it
			w.recorder.Event(ctx, w.eventOn(), provision.ReasonSettled, fmt.Sprintf("Volume %q.", handle))
		}
		w.leaveEntry()
		return reasons.Because(provision.ReasonSettled, err)
	case err != nil:
		return reasons.Because(ofLog(err, provision.ReasonAPIReadFailed), err)
	}
	w.learn(provision.ConfirmEntry, provision.Reply{Class: errclass.Done}, began)
	return nil
}

// reportChanged reports that the driver's free capacity may have changed in the topology of the created volume or,
// without a volume, in the whole class. A panic of Config.Changed does not end the step, whose call was answered.
func (w *run) reportChanged(ctx context.Context, made *csi.Volume) {
	var at []map[string]string
	for _, topology := range made.GetAccessibleTopology() {
		at = append(at, topology.GetSegments())
	}
	class := w.request().PV.Spec.StorageClassName
	_ = panics.Contain(ctx, func() { w.cfg.Changed(class, at) }, "callback", "Config.Changed")
}

// storePV creates the PersistentVolume, under the volume's name or apart. An existing PV is no error here: the answer
// to an earlier CREATE may have been lost, or the PV is another's.
func (w *run) storePV(ctx context.Context, done provision.Action) error {
	name := w.name
	if done == provision.StoreApart {
		name = volume.ApartName(name, w.cfg.Local.Node.Name)
	}
	pv := w.track.pv.DeepCopy()
	pv.Name = name
	w.assumed.Expect(name, w.claimKey.UID)
	began := w.cfg.Clock.Now()
	stored, exists, err := createPV(ctx, w.cluster, pv)
	switch {
	case err != nil:
		w.assumed.Forget(name)
		class := classOfWrite(err)
		w.learn(done, provision.Reply{Class: class}, began)
		if class == errclass.Refused && isRefusal(err) {
			return reasons.Because(provision.ReasonPVRefused, err)
		}
		return reasons.Because(provision.ReasonAPIWriteFailed, err)
	case exists:
		w.learn(done, provision.Reply{Class: errclass.Refused, PV: w.read(stored, began)}, began)
	default:
		w.learn(done, provision.Reply{Class: errclass.Done}, began)
	}
	if added := w.assume(name, stored, w.read(stored, began)); !added && !exists {
		w.offerOf(w.claimKey.UID) // a list without the PV came before the answer, and no event will show its end
	}
	return nil
}

// assume ends the expectation of a PV with its live state, and reports whether the PV is assumed. Only the claim's own
// PV is assumed, while the watch has yet to show it. Otherwise its end could be missed, and the claim would wait for
// ever.
func (w *run) assume(name string, pv *v1.PersistentVolume, live provision.PV) bool {
	_, shown := w.volumes.Get(name)
	if shown || !live.OfClaim || !live.OfDriver || live.Elsewhere {
		w.assumed.Forget(name)
		return false
	}
	return w.assumed.Put(pv)
}

func (w *run) deleteVolume(ctx context.Context, why Reason) error {
	request := w.track.entry.Requests[w.facts.Record.By]
	secrets, whole, err := w.secretsAgain(ctx, request)
	if err != nil {
		return err
	}
	if err := w.mayAct(); err != nil {
		return err
	}
	handle, began := w.facts.Record.Handle, w.cfg.Clock.Now()
	call, cancel := context.WithTimeout(ctx, w.cfg.CallTimeout)
	err = w.driver.DeleteVolume(call, handle, secrets)
	cancel()
	w.learn(provision.DeleteVolume, provision.Reply{Class: errclass.Of(err)}, began)
	if err != nil {
		err = fmt.Errorf("delete volume %q, which does not match the request: %w", handle, err)
		if !whole {
			return withoutSecret(err, request)
		}
		return reasons.Because(provision.ReasonOutcomeUnknown, err)
	}
	w.metrics.discarded.Inc()
	detail := fmt.Sprintf("Volume %q.", handle)
	if !whole { // the driver may have looked in another place
		why, detail = provision.ReasonSecretGone, fmt.Sprintf("The driver answered without Secret %s/%s that volume %q, "+
			"which does not match the request, is deleted.", request.Secret.Namespace, request.Secret.Name, handle)
	}
	w.recorder.Event(ctx, w.eventOn(), why, detail)
	w.reportChanged(ctx, w.track.made)
	return nil
}

// closeEntry removes the entry, and the removal is confirmed later. Its source is then found free, unless the run still
// reserves it.
func (w *run) closeEntry() {
	w.end()
	w.removeEntry(w.name)
	w.leaveEntry()
}

// leaveEntry ends the run's work on an entry that was closed, or that an operator settled.
func (w *run) leaveEntry() {
	w.learn(provision.CloseEntry, provision.Reply{Class: errclass.Done}, w.cfg.Clock.Now())
	w.track.close()
}
