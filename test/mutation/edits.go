package main

// edits are the mutants that no operator makes: another order of steps, another value.
var edits = []edit{
	{"pkg/internal/engine/provisioning", "Record.Add", "an open request is replaced", []place{
		{node: "r.Requests[i].Settled || !r.Requests[i].Sent", instead: "true"}}},
	{"pkg/internal/engine/provisioning", "Record.Answered", "InvalidArgument settles a call that was begun too early",
		[]place{
			{node: "r.Quiet(began, quiet)", instead: "r.Quiet(now, quiet)"}}},
	{"pkg/internal/engine/provisioning", "Facts.Learn", "a deletion is judged by when it was answered", []place{
		{node: "f.Record.Deleted(began, quiet)", instead: "f.Record.Deleted(now, quiet)"}}},
	{"pkg/internal/engine/provisioning", "Inherited", "an earlier process's calls do not count", []place{
		{node: "now", zero: true}}},
	{"pkg/internal/engine/provisioning", "Inherited", "an earlier process's requests are new", []place{
		{node: "true", zero: true}}},
	{"pkg/internal/engine/provisioning", "Claim.namedAlone", "a short name counts as a whole UID", []place{
		{node: "strings.HasSuffix(bare(c.PVName), bare(string(c.UID)))",
			instead: `strings.HasPrefix(bare(c.PVName), "pvc")`}}},
	{"pkg/provision", "provisioner.Delete", "the library deletes the PVs of volumes", []place{
		{node: "return &libcontroller.IgnoredError", instead: "return nil"}}},

	{"pkg/reclaim", "Decide", "a PV is reclaimed before the log is read", []place{
		{node: "return wait(ReasonLogNotRead)", before: "if ON && s.Log == LogUnknown { return d }"}}},
	{"pkg/reclaim", "decide", "a companion takes the end of a PV that was released for the peer's deletion", []place{
		{node: "s.Done.VolumeDeleted", nth: 1,
			instead: "s.Done.VolumeDeleted || s.Rules.Role == RoleCompanion && s.History.SeenReleased && s.PV.Terminating"}}},
	{"pkg/reclaim", "decide", "a PV that is terminating loses its finalizer", []place{
		{node: "s.Done.VolumeDeleted", nth: 1, instead: "s.Done.VolumeDeleted || s.PV.deletable() && s.PV.Terminating"}}},
	{"pkg/reclaim", "decide", "a node deletes what several may reach", []place{
		{node: "s.PV.Reach != ReachHere", instead: "s.PV.Reach == ReachElsewhere"}}},
	{"pkg/reclaim", "reclaim", "the PV is deleted before its volume", []place{
		{node: "return step(DeleteVolume",
			before: "if ON && !s.PV.Terminating && !s.Done.PVDeleted { return step(DeletePV, ReasonReclaim) }"}}},
	{"pkg/reclaim", "secretOfClass", "an in-tree class is read for its Secret without translation", []place{
		{node: "pv.Driver", zero: true}}},
	{"pkg/reclaim", "run.begin", "the finalizer is removed although the PV has changed since", []place{
		{node: "c.drop, c.bound = ", instead: "c.drop = w.facts.Rules.finalizers(c.pv)"}}},
	{"pkg/reclaim", "run.look", "the lease is checked only where a run begins", []place{
		{node: "holds(w.observer.lease)", instead: "w.facts.Leading"}}},
	{"pkg/reclaim", "notes.leave", "what is noted of a PV is forgotten with its end", []place{
		{node: "m.present().over = ", instead: "m = &memory{history: m.history, acts: &acts{over: &ending{*pv, end}}}"}}},
	{"pkg/reclaim", "notes.end", "a write that is answered late counts as the last one", []place{
		{node: "switch",
			before: "if ON && c.protects() && put == nil && took != nil && a.err == nil { took.version = a.version }"}}},
	{"pkg/reclaim", "attachmentChanges.count", "the end of an attachment wakes nobody", []place{
		{node: "by > 0", instead: "by != 0"}}},
	{"pkg/reclaim", "Reclaimer.afterTrouble", "a call that failed is not repeated", []place{
		{node: "r.usual()", nth: 1, zero: true}}},
	{"pkg/lease", "observed.write", "a renewal counts from its answer", []place{
		{node: "o.clock.renew(sent", before: "if ON { sent = o.clock.now() }"}}},

	{"pkg/intree", "newTwin", "a twin is born armed", []place{
		{node: "v1.PersistentVolumeReclaimRetain", instead: "o.Spec.PersistentVolumeReclaimPolicy"}}},
	{"pkg/intree", "byTwin", "a twin is armed before the PV controller has acted", []place{
		{node: "return wait(ReasonTwinMade)", before: "if ON { return check(s, ArmTwin, now) }"}}},
	{"pkg/intree", "byTwin", "a twin is armed without a second read", []place{
		{node: "return check(s, ArmTwin, now)", before: "if ON { return step(ArmTwin, ReasonReclaim) }"}}},
	{"pkg/intree", "byTwin", "a twin that failed stays armed", []place{
		{node: "d, _ := retire(s, ReasonVolumeFailedDelete)", before: "if ON { return wait(ReasonTwinArmed) }"}}},

	{"pkg/inuse/pvc", "kind.List", "a release reads the pods before the claims", []place{
		{node: "claims, err := k.cluster.listClaims(ctx)",
			before: "var early []Pod; if ON { early, _ = k.cluster.listPods(ctx, metav1.NamespaceAll) }"},
		{node: "users := indexed(pods)", before: "if ON { pods = early }"}}},
	{"pkg/inuse/pvc", "ifDeleted", "a release counts pods that have ended as none", []place{
		{node: "ended", nth: 0, instead: "ReleaseTerminated"}}},
	{"pkg/inuse/pvc", "ifDeleted", "a release counts claims as unused", []place{{node: "used", zero: true}}},
	{"pkg/inuse/pvc", "apiServer.listPods", "the list may be an old one", []place{
		{node: "err = kube.EachPage", before: `if ON { options.ResourceVersion = "0" }`}}},
	{"pkg/inuse/pvc", "apiServer.listPods", "pods with a node are not listed", []place{
		{node: `"spec.nodeName!="`, instead: `"spec.nodeName="`}}},
	{"pkg/inuse/pv", "held", "a release counts PVs as unused", []place{
		{node: "pv.Object = pv.AsDeleted()", instead: "pv.Object, pv.Phase = pv.AsDeleted(), PhaseFree"}}},
	{"pkg/internal/kube", "EachPage", "only the first page of a list is read", []place{{node: `next == ""`,
		instead: "true"}}},

	{"pkg/leaks", "look", "PVs are read before the in-flight log", []place{
		{node: "entries, problems, err := at.inFlight(ctx)",
			before: "if ON { _ = at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(reclaim.PVOf(pv), driver) }) }"},
		{node: "at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(reclaim.PVOf(pv), driver) })",
			instead: "error(nil)"}}},
	{"pkg/leaks", "Decide", "one sighting is enough", []place{
		{node: "max(s.Rules.Sightings, leastSightings)", instead: "s.Rules.Sightings"}}},
	{"pkg/leaks", "keyOf", "letters matter", []place{{node: "strings.ToLower(handle)", instead: "handle"}}},
	{"pkg/leaks", "Case.goOn", "a PV is turned before it is Released", []place{
		{node: "pv.Phase == reclaim.PhaseReleased", instead: "pv.Phase != reclaim.PhaseUnknown"}}},
	{"pkg/capacity", "Decide", "of two objects the one is deleted that is kept up to date", []place{
		{node: "ours[len(ours)-1]", instead: "ours[0]"}}},
	{"pkg/capacity", "Controller.ask", "what happens while the driver is asked does not count", []place{
		{node: "c.memory.asking(spot)", instead: "_ = spot"},
		{node: "a := Answer{", before: "if ON { c.memory.asking(spot) }"}}},

	{"pkg/admission", "driversOf", "the driver of the volume answers for another provisioner's", []place{
		{node: "return append(drivers, provisioner)", instead: "drivers = append(drivers, provisioner)"}}},
	{"pkg/admission", "protectPVs", "other resources count as PVs", []place{
		{node: `"persistentvolumes"`, instead: "request.Resource.Resource"}}},
	{"pkg/admission", "guardPods", "a read may take for ever", []place{{node: "readFor", instead: "100 * readFor"}}},
	{"pkg/admission", "refusal", "a claim that cannot be read saves the pod", []place{{node: "failed = err",
		before: `if ON { return "", err }`}}},
	{"pkg/admission", "lists.bound", "a release waits for ever for a list", []place{{node: "c.timeout",
		instead: "100 * callTimeout"}}},
	{"pkg/admission", "releaser.bound", "a release waits for ever for the API server", []place{
		{node: "r.timeout", instead: "100 * callTimeout"}}},
	{"pkg/admission/certs", "Decide", "a next certificate of no use is presented", []place{
		{node: "return MakeNext", before: "if ON { return Promote }"}}},
	{"pkg/admission/certs", "State.after", "trust in the certificate before ends at once", []place{
		{node: "s.old()", nth: 1, instead: "s.Old"}}},
	{"pkg/admission/certs", "Keeper.make", "what is presented is thrown away where the Secret is", []place{
		{node: "a == MakeFirst", instead: "a == Rest"}}},
	{"pkg/admission/certs", "Keeper.observe", "one webhook that trusts is enough", []place{
		{node: "len(untrusting(seen.hooks, s.State.bundle())) == 0",
			instead: "len(untrusting(seen.hooks, s.State.bundle())) < 2"}}},
}
