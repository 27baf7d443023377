package main

// Packages that several edits are of.
const (
	provision   = "internal/engine/provision"
	reclaim     = "internal/engine/reclaim"
	intree      = "internal/engine/intree"
	objects     = "internal/objects"
	podsafety   = "internal/engine/podsafety"
	statefulset = "internal/engine/statefulset"
	singlenode  = "internal/engine/singlenode"
	admission   = "pkg/admission"
	certs       = "pkg/admission/certs"
	pvc         = "pkg/inuse/pvc"
)

// edits are the mutants that no operator makes: another order of steps, another value.
var edits = []edit{
	{pkg: provision, name: "an open request is replaced", at: []place{
		{node: "r.Requests[i].Settled || !r.Requests[i].Sent", instead: "true"}}},
	{pkg: provision, name: "InvalidArgument settles a call that was begun too early", in: "*.Answered", at: []place{
		{node: "r.Quiet(began, quiet)", instead: "r.Quiet(now, quiet)"}}},
	{pkg: provision, name: "a deletion is judged by when it was answered", at: []place{
		{node: "f.Record.Deleted(began, quiet)", instead: "f.Record.Deleted(now, quiet)"}}},
	{pkg: provision, name: "an earlier process's calls do not count", in: "Inherited", at: []place{
		{node: "now", zero: true}}},
	{pkg: provision, name: "an earlier process's requests are new", in: "Inherited", at: []place{
		{node: "true", zero: true}}},
	{pkg: provision, name: "a short name counts as a whole UID", at: []place{
		{node: "strings.HasSuffix(bare(c.PVName), bare(string(c.UID)))",
			instead: `strings.HasPrefix(bare(c.PVName), "pvc")`}}},

	{pkg: reclaim, name: "a PV is reclaimed before the log is read", at: []place{
		{node: "return wait(ReasonLogNotRead)", before: "if ON && s.Log == volume.InFlightUnknown { return d }"}}},
	{pkg: reclaim, name: "a companion takes the end of a PV that was released for the peer's deletion", in: "decide",
		at: []place{{node: "s.Done.VolumeDeleted", instead: "s.Done.VolumeDeleted || " +
			"s.Rules.Role == volume.RoleCompanion && s.History.SeenReleased && s.PV.Terminating"}}},
	{pkg: reclaim, name: "a PV that is terminating loses its finalizer", in: "decide", at: []place{
		{node: "s.Done.VolumeDeleted", instead: "s.Done.VolumeDeleted || s.PV.Deletable() && s.PV.Terminating"}}},
	{pkg: reclaim, name: "a node deletes what several may reach", at: []place{
		{node: "s.PV.Reach != volume.ReachHere", instead: "s.PV.Reach == volume.ReachElsewhere"}}},
	{pkg: reclaim, name: "the PV is deleted before its volume", at: []place{
		{node: "return step(DeleteVolume, ReasonReclaim)",
			before: "if ON && !s.PV.Terminating && !s.Done.PVDeleted { return step(DeletePV, ReasonReclaim) }"}}},
	{pkg: reclaim, name: "the finalizer is removed although the PV has changed since", at: []place{
		{node: "a.Remove, a.Bound = ", instead: "a.Remove = s.Facts.Rules.Finalizers(a.PV)"}}},
	{pkg: reclaim, name: "the lease is checked only where a session begins", in: "*.observe", at: []place{
		{node: "at.Leading", instead: "f.Leading"}}},
	{pkg: reclaim, name: "what was done for a PV is forgotten with its end", at: []place{
		{node: "r.edit().Tombstone = ",
			instead: "r = &Record{History: r.History, Activity: &Activity{Tombstone: &Tombstone{*pv, end}}}"}}},
	{pkg: reclaim, name: "a write that is answered late counts as the last one", in: "*.Answered", at: []place{
		{node: "switch", before: "if ON && a.protects() && adding == nil && removing != nil && ok { " +
			"removing.Version = reply.Version }"}}},
	{pkg: reclaim, name: "a call that failed is not repeated", in: "failed", at: []place{
		{node: "Retry", instead: "Idle"}}},
	{pkg: "pkg/reclaim", name: "an in-tree class is read for its Secret without translation", in: "secretOfClass",
		at: []place{{node: "pv.Driver", zero: true}}},
	{pkg: "pkg/reclaim", name: "a PV is deleted by its name", in: "*.deletePV", at: []place{
		{node: "pv.UID", zero: true}}},
	{pkg: "pkg/leadership", name: "a renewal counts from its answer", at: []place{
		{node: "o.clock.renew(sent", before: "if ON { sent = o.clock.now() }"}}},

	{pkg: intree, name: "a twin is born armed", in: "NewTwin", at: []place{
		{node: "v1.PersistentVolumeReclaimRetain", instead: "o.Spec.PersistentVolumeReclaimPolicy"}}},
	{pkg: intree, name: "a twin is armed before the PV controller has acted", at: []place{
		{node: "return wait(ReasonTwinNotReleased)", before: "if ON { return prove(f, SetTwinDelete, now) }"}}},
	{pkg: intree, name: "a twin is armed without a second read", at: []place{
		{node: "return prove(f, SetTwinDelete, now)", before: "if ON { return step(SetTwinDelete, ReasonReclaim) }"}}},
	{pkg: intree, name: "a twin that failed stays armed", at: []place{
		{node: "d, _ := endTwin(f, ReasonVolumeFailedDelete)", before: "if ON { return wait(ReasonTwinDeleting) }"}}},
	{pkg: intree, name: "a write is not bound to the UID", in: "write", at: []place{{node: "pv.UID", zero: true}}},
	{pkg: intree, name: "a write is not bound to what was read", in: "write", at: []place{
		{node: "pv.ResourceVersion", zero: true}}},
	{pkg: "pkg/intree", name: "a twin is deleted although it has changed since", in: "*.deletePV", at: []place{
		{node: "pv.ResourceVersion", zero: true}}},

	{pkg: objects, name: "the garbage collector's observedGeneration counts as the kubelet's",
		in: "*.readConditions", at: []place{
			{node: "c.ObservedGeneration", instead: "o.Status.ObservedGeneration"}}},
	{pkg: podsafety, name: "a release is not bound to the pod as it was judged", in: "*.Ask", at: []place{
		{node: "pod.ResourceVersion", zero: true}}},
	{pkg: podsafety, name: "a pod that has changed is not read before it is judged again", in: "*.Answer", at: []place{
		{node: "s.Facts.Outdated = true", instead: "s.Facts.Outdated = false"}}},
	{pkg: podsafety, name: "a node that is not Ready counts as gone", in: "byNodeObject", at: []place{
		{node: "return wait(ReasonNodeUnreachable)", before: "if ON { return step(RemoveFinalizer, ReasonNodeGone) }"}}},
	{pkg: podsafety, name: "a Node that is Ready shows that another machine has the name", in: "byNodeObject", at: []place{
		{node: "return wait(ReasonProcessesMayRun)", before: "if ON { return step(RemoveFinalizer, ReasonNodeGone) }"}}},
	{pkg: podsafety, name: "evidence of before our own deletion counts after it", in: "*.succeeded", at: []place{
		{node: "f.PodRead, f.NodeRead, f.LeaseRead, f.FenceRead = " +
			"session.Read{}, session.Read{}, session.Read{}, session.Read{}",
			before: "if ON { f.Pod.GraceZero = true; return }"}}},

	{pkg: statefulset, name: "the mark says Delete under each policy", in: "*.mark", at: []place{
		{node: "p.WhenScaled", instead: "Delete"}}},
	{pkg: statefulset, name: "the set is read before the pod", in: "lastReads", at: []place{
		{node: "!f.SetRead.FreshAfter(f.PodRead, now)", instead: "!f.SetRead.Fresh(now)"}}},
	{pkg: statefulset, name: "the pod is read before the claim", in: "lastReads", at: []place{
		{node: "!f.PodRead.FreshAfter(f.ClaimRead, now)", instead: "!f.PodRead.Fresh(now)"}}},
	{pkg: statefulset, name: "a patch that failed counts as contested", in: "*.Answer", at: []place{
		{node: "s.Facts.Sight = t.saw(s.Facts, now)",
			before: "if ON && s.End == session.CallFailed { t.patched(s.Facts.Claim.UID, s.Facts.wanted().String()) }"}}},
	{pkg: statefulset, name: "a reference controls the claim", in: "*.policyRefs", at: []place{
		{node: "return refs", before: "if ON { for i := range refs { yes := true; refs[i].Controller = &yes } }"}}},
	{pkg: statefulset, name: "the grace has passed when the claim is condemned", in: "*.saw", at: []place{
		{node: "s.CondemnedSince, s.Generation = now, f.Set.Generation", before: "if ON { now = now.Add(-time.Hour) }"}}},

	{pkg: singlenode, name: "a lock is taken of a claim that has changed since", in: "Session.Ask", at: []place{
		{node: "c.ResourceVersion", zero: true}}},
	{pkg: singlenode, name: "a lock is taken of a claim that was created again", in: "Session.Ask", at: []place{
		{node: "c.UID", zero: true}}},
	{pkg: singlenode, name: "a pod of the same name loses its gate", in: "Session.Ask", at: []place{
		{node: "pod.UID", nth: 1, zero: true}}},
	{pkg: singlenode, name: "a lock is freed that has changed since", in: "LockSession.Ask", at: []place{
		{node: "c.ResourceVersion", zero: true}}},
	{pkg: singlenode, name: "a lock is freed of a claim that was created again", in: "LockSession.Ask", at: []place{
		{node: "c.UID", zero: true}}},
	{pkg: singlenode, name: "locks are taken in the order of UIDs", in: "Facts.asked", at: []place{
		{node: "a.Claim.Name", instead: "string(a.Claim.UID)"}, {node: "b.Claim.Name", instead: "string(b.Claim.UID)"}}},
	{pkg: singlenode, name: "the pods are listed before the locks are taken", in: "Facts.users", at: []place{
		{node: "f.UsersRead.FreshAfter(c.Read, now)", instead: "f.UsersRead.Fresh(now)"}}},
	{pkg: singlenode, name: "a fence counts that was read before the pod", in: "User.fenced", at: []place{
		{node: "u.FenceRead.FreshAfter(read, now)", instead: "u.FenceRead.Fresh(now)"}}},
	{pkg: singlenode, name: "a node counts that was read before the pod", in: "User.fenced", at: []place{
		{node: "u.NodeRead.FreshAfter(read, now)", instead: "u.NodeRead.Fresh(now)"}}},
	{pkg: singlenode, name: "a claim is read before its namespace", in: "Facts.unasked", at: []place{
		{node: "c.Read.FreshAfter(f.ModeRead, now)", instead: "c.Read.Fresh(now)"}}},
	{pkg: singlenode, name: "a lock is the pod's by its UID alone", in: "Claim.heldBy", at: []place{
		{node: "p.Name", instead: "c.Lock.Name"}}},

	{pkg: pvc, name: "a release reads the pods before the claims", at: []place{
		{node: "claims, err := k.cluster.listClaims(ctx)",
			before: "var early []Pod; if ON { early, _ = k.cluster.listPods(ctx, metav1.NamespaceAll) }"},
		{node: "users := indexed(pods)", before: "if ON { pods = early }"}}},
	{pkg: pvc, name: "a release counts pods that have ended as none", in: "ifDeleted", at: []place{
		{node: "ended", instead: "ReleaseTerminated"}}},
	{pkg: pvc, name: "a release counts claims as unused", in: "ifDeleted", at: []place{{node: "used", zero: true}}},
	{pkg: pvc, name: "the list may be an old one", in: "*.listPods", at: []place{
		{node: "err = kube.Each(", before: `if ON { options.ResourceVersion = "0" }`}}},
	{pkg: pvc, name: "pods with a node are not listed", at: []place{
		{node: `"spec.nodeName!="`, instead: `"spec.nodeName="`}}},
	{pkg: "pkg/inuse/pv", name: "a release counts PVs as unused", at: []place{
		{node: "pv.Object = pv.AsDeleted()", instead: "pv.Object, pv.Free = pv.AsDeleted(), true"}}},
	{pkg: "internal/kube", name: "only the first page of a list is read", at: []place{
		{node: `options.Continue == ""`, instead: "true"}}},

	{pkg: "pkg/leaks", name: "PVs are read before the in-flight log", at: []place{
		{node: "entries, problems, err := at.inFlight(ctx, driver)",
			before: "if ON { _ = at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(volume.At(cfg.Node, pv), driver) }) }"},
		{node: "at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(volume.At(cfg.Node, pv), driver) })",
			instead: "error(nil)"}}},
	{pkg: "pkg/leaks", name: "one sighting is enough", at: []place{
		{node: "max(s.Rules.Sightings, leastSightings)", instead: "s.Rules.Sightings"}}},
	{pkg: "pkg/volume", name: "letters of handles matter", at: []place{
		{node: "strings.ToLower(handle)", instead: "handle"}}},
	{pkg: "pkg/leaks", name: "the policy is turned before the PV is Released", at: []place{
		{node: "pv.Phase == volume.PhaseReleased", instead: "pv.Phase != volume.PhaseUnknown"}}},
	{pkg: "pkg/leaks", name: "a remediation's PV is born with policy Delete", in: "remediationPV", at: []place{
		{node: "v1.PersistentVolumeReclaimRetain", instead: "v1.PersistentVolumeReclaimDelete"}}},
	{pkg: "pkg/capacity", name: "of two objects the one is deleted that is kept up to date", at: []place{
		{node: "ours[len(ours)-1]", instead: "ours[0]"}}},
	{pkg: "pkg/capacity", name: "what happens while the driver is asked does not count", at: []place{
		{node: "c.tracker.asking(item)", instead: "_ = item"},
		{node: "a := Capacity{", before: "if ON { c.tracker.asking(item) }"}}},

	{pkg: admission, name: "the driver of the volume answers for another provisioner's", at: []place{
		{node: "return append(drivers, provisioner)", instead: "drivers = append(drivers, provisioner)"}}},
	{pkg: admission, name: "other resources count as PVs", in: "mutatePVs", at: []place{
		{node: `"persistentvolumes"`, instead: "request.Resource.Resource"}}},
	{pkg: admission, name: "a read may take for ever", at: []place{{node: "readTimeout", instead: "100 * readTimeout"}}},
	{pkg: admission, name: "a claim that cannot be read saves the pod", at: []place{
		{node: "failed = err", before: `if ON { return "", err }`}}},
	{pkg: admission, name: "a request of any length is read", at: []place{
		{node: "http.MaxBytesReader(w, r.Body, maxBody)", instead: "r.Body"}}},
	{pkg: admission, name: "a write of a PV waits long for the webhook", in: "PVWebhooks", at: []place{
		{node: "ptr.To[int32](timeoutSeconds)", instead: "ptr.To[int32](30)"}}},
	{pkg: admission, name: "a pod waits long for the webhook", in: "PodWebhooks", at: []place{
		{node: "ptr.To[int32](timeoutSeconds)", instead: "ptr.To[int32](30)"}}},
	{pkg: admission, name: "the policy has a parameter", in: "Binding", at: []place{
		{node: "admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policyName(role)}",
			instead: "admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policyName(role), " +
				`ParamRef: &admissionv1.ParamRef{Name: "drivers"}}`}}},
	{pkg: admission, name: "the name of a driver ends its literal", in: "listOf", at: []place{
		{node: "list, err := ", before: `if ON { return "[\"" + strings.Join(drivers, "\", \"") + "\"]" }`}}},
	{pkg: admission, name: "a release waits for ever for a list", in: "driverLists.withTimeout", at: []place{
		{node: "c.timeout", instead: "100 * callTimeout"}}},
	{pkg: admission, name: "a release waits for ever for the API server", in: "releaser.withTimeout", at: []place{
		{node: "r.timeout", instead: "100 * callTimeout"}}},
	{pkg: certs, name: "a next certificate of no use is presented", in: "decideOwn", at: []place{
		{node: "return issueNext", before: "if ON { return promote }"}}},
	{pkg: certs, name: "trust in the certificate before ends at once", at: []place{
		{node: "s.old()", nth: 1, instead: "s.Old"}}},
	{pkg: certs, name: "what is presented is thrown away where the Secret is", in: "*.issuePair", at: []place{
		{node: "a == issueFirst", instead: "a == wait"}}},
	{pkg: certs, name: "one webhook that trusts is enough", at: []place{
		{node: "len(outdated(seen.configs, s.State.bundle())) == 0",
			instead: "len(outdated(seen.configs, s.State.bundle())) < 2"}}},

	{pkg: "pkg/csidriver", name: "a driver may take for ever to delete a volume", in: "send", at: []place{
		{node: "d.cfg.Timeout", instead: "100 * d.cfg.Timeout"}}},
}
