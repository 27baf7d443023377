package main

// protecting are the guards under which a claim or a PV in use is let go, and under which anything is
// written where others may do the work.
func protecting() []mutant {
	const (
		in, pvc, pv = "pkg/inuse", "pkg/inuse/pvc", "pkg/inuse/pv"
		use         = "the model knows no pods, and the PV controller's finalizer only as its own"
	)
	all := []mutant{
		{
			name: "protect: a cluster that is not to be served is", in: in, file: "decide.go",
			before: "case d.Mode != ModeFull:\n\t\treturn Rest(ReasonOff), true", after: "case false:\n\t\treturn Rest(ReasonOff), true",
		},
		{
			name: "protect: an object of which nothing is known is written to", in: in, file: "decide.go",
			before: "case o.UID == \"\":", after: "case false:",
		},
		{
			name: "protect: an object that is to go and is not held is let go", in: in, file: "decide.go",
			before: "case o.Terminating && !o.Protected:", after: "case false:",
		},
		{
			name: "protect: what was let go is let go again while the watch lags", in: in, file: "decide.go",
			before: "case o.Terminating && d.Dropped:", after: "case false:",
		},
		{
			name: "protect: what was put on is put on again while the watch lags", in: in, file: "decide.go",
			before: "case d.Added:", after: "case false:",
		},
		{
			name: "protect: the finalizer is put on for ever", in: in, file: "decide.go",
			before: "case d.Adds >= maxAdds:", after: "case false:",
		},
		{
			name: "protect: the finalizer is put on where others may do it", in: in, file: "decide.go",
			before: "case !d.Acts():\n\t\treturn Later(ReasonLeftToBuiltIn), true", after: "case false:\n\t\treturn Later(ReasonLeftToBuiltIn), true",
		},
		{
			name: "protect: it is on us whoever else does the work", in: in, file: "decide.go",
			before: "return d.Mode == ModeFull && (d.Alone || d.Unanswered)", after: "return d.Mode == ModeFull",
		},
		{
			name: "protect: it is on us where it is proven that nobody else does the work, and off", in: in, file: "decide.go",
			before: "return d.Mode == ModeFull && (d.Alone || d.Unanswered)", after: "return d.Alone || d.Unanswered",
		},
		{
			name: "protect: a dry run writes", in: in, file: "execute.go",
			before: "if g.cfg.DryRun {", after: "if false {",
		},
		{
			name: "protect: a dry run makes Events", in: in, file: "config.go",
			before: "if c.Events == nil || c.DryRun {", after: "if c.Events == nil {",
		},
		{
			name: "protect: a write holds whatever became of the object", in: in, file: "execute.go",
			before: "UID: o.UID, ResourceVersion: o.ResourceVersion}", after: "UID: o.UID}",
		},
		{
			name: "protect: a write that was undone counts as taken", in: in, file: "execute.go",
			before: "if err == nil && after.Protected != (a == AddFinalizer) {", after: "if err == nil && after.UID == \"\" {",
		},
		{
			name: "protect: use that ended meanwhile counts as a need that nobody answered", in: in, file: "execute.go",
			before: "\tif !d.due() {\n\t\tg.notes.notDue(o.UID)\n\t}\n", after: "",
		},
		{
			name: "protect: nobody is told that nobody else does the work", in: in, file: "execute.go",
			before: "\t\t\tg.Wake(key)\n", after: "\t\t\t_ = key\n",
		},
		{
			name: "protect: a need does not wait for its time", in: in, file: "notes.go",
			before: "Unanswered: !it.since.IsZero() && !at.Before(n.peer.patientUntil(it.since, n.patience)),", after: "Unanswered: !it.since.IsZero(),",
		},
		{
			name: "protect: a need of which nobody has heard is unanswered", in: in, file: "notes.go",
			before: "Unanswered: !it.since.IsZero() && !at", after: "Unanswered: !at",
		},
		{
			name: "protect: that others are at work elsewhere buys no time", in: in, file: "peer.go",
			before: "if p.seen.After(since) {", after: "if false {",
		},
		{
			name: "protect: others who put the finalizer on are not noticed", in: in, file: "notes.go",
			before: "\treturn !before.Protected && now.Protected\n", after: "\treturn false\n",
		},
		{
			name: "protect: others who take it off are not noticed", in: in, file: "notes.go",
			before: "return before.Protected && !now.Protected", after: "return false",
		},
		{
			name: "protect: others who let an object go are not noticed", in: in, file: "notes.go",
			before: "return final && last.Terminating && last.Protected && !it.sent && n.sawOthers(at)", after: "return n.sawOthers(at) && it.sent && false",
		},
		{
			name: "protect: an end that was not seen is taken for others' work", in: in, file: "notes.go",
			before: "return final && last.Terminating", after: "return last.Terminating",
		},
		{
			name: "protect: an object that was deleted without the finalizer is taken for others' work", in: in, file: "notes.go",
			before: "last.Terminating && last.Protected && !it.sent", after: "last.Terminating && !it.sent",
		},
		{
			name: "protect: our own end of an object is taken for others' work", in: in, file: "notes.go",
			before: "last.Protected && !it.sent && n.sawOthers(at)", after: "last.Protected && (it.sent || !it.sent) && n.sawOthers(at)",
		},
		{
			name: "protect: our own change is taken for others' work", in: in, file: "notes.go",
			before: "return answered(before, now) && !it.sent &&", after: "return answered(before, now) &&",
		},
		{
			name: "protect: a write is noted only when it was answered", in: in, file: "notes.go",
			before: "\tit.sent = true\n", after: "",
		},
		{
			name: "protect: a write whose answer was lost counts as others'", in: in, file: "notes.go",
			before: "it.sent, it.taken = came != refused, came == taken", after: "it.sent, it.taken = came == taken, came == taken",
		},
		{
			name: "protect: a write that was refused counts as ours", in: in, file: "notes.go",
			before: "it.sent, it.taken = came != refused, came == taken", after: "it.sent, it.taken = true, came == taken",
		},
		{
			name: "protect: a write whose answer was lost is not repeated", in: in, file: "notes.go",
			before: "it.sent, it.taken = came != refused, came == taken", after: "it.sent, it.taken = came != refused, came != refused",
		},
		{
			name: "protect: what an earlier lead knew counts for this one", in: in, file: "guard.go",
			before: "\t\tg.notes.leads()\n", after: "",
		},
		{
			name: "protect: what was known of an object counts for the next one of its name", in: in, file: "guard.go",
			before: "\tif before.UID != now.UID {\n\t\tg.Ended(before, false)\n\t\tg.Appeared(now)\n\t\treturn\n\t}\n", after: "",
		},
		{
			name: "protect: a release takes nothing for in use", in: in, file: "held.go",
			before: "case h.Terminating && !h.unused():", after: "case false:",
		},
		{
			name: "protect: a release lets nothing in use go before it is to be deleted", in: in, file: "held.go",
			before: "case h.Terminating && !h.unused():", after: "case !h.unused():",
		},
		{
			name: "protect: a release does not ask who else manages the finalizer", in: in, file: "held.go",
			before: "case !alone:", after: "case false:",
		},
		{
			name: "protect: a release lays bare what is in use to find out", in: in, file: "held.go",
			before: "case h.Protected && (h.unused() || h.ByOthers):", after: "case h.Protected:",
		},
		{
			name: "protect: a release takes what is in use for what others have not let go", in: in, file: "held.go",
			before: "if !h.Terminating || h.unused() {", after: "if h.UID != \"\" {",
		},
		{
			name: "protect: a release makes a need where there is one", in: in, file: "held.go",
			before: "\t\t\t\treturn h, true\n", after: "\t\t\t\tw, found = h, true\n",
		},
		{
			name: "protect: a release gives others no time", in: in, file: "release.go",
			before: "if left == 0 {", after: "if left >= 0 {",
		},
		{
			name: "protect: a release counts a need that ended as unanswered", in: in, file: "release.go",
			before: "if g.stands(o) {", after: "if o.UID != \"\" {",
		},
		{
			name: "protect: a release takes another object of the name for the one that it looked at", in: in, file: "release.go",
			before: "return found && now.UID == o.UID &&", after: "return found &&",
		},
		{
			name: "protect: a release goes on beside others", in: in, file: "release.go",
			before: "\t\tcase g.notes.othersSeen():\n\t\t\tout.Others = true\n\t\t\treturn out, nil\n", after: "",
		},
		{
			name: "protect: a release is over where nothing could be found out", in: in, file: "release.go",
			before: "case !g.notes.isAlone():", after: "case false:",
		},
		{
			name: "protect: a release does not look whether the finalizer comes back", in: in, file: "release.go",
			before: "case len(out.Left) == 0 && (dropped == 0 || again):", after: "case len(out.Left) == 0:",
		},
		{
			name: "protect: a release waits for ever for use to end", in: in, file: "release.go",
			before: "case now.Sub(since) >= 2*g.cfg.Patience:", after: "case now.Sub(since) >= 200*g.cfg.Patience:",
		},
		{
			name: "protect: a release takes its own end of an object for others' work", in: in, file: "release.go",
			before: "\t\terr = g.send(ctx, o, DropFinalizer)\n", after: "\t\terr = g.patch(ctx, o, DropFinalizer)\n",
		},
		{
			name: "protect: a release does not see that others put the finalizer back", in: in, file: "release.go",
			before: "\t\terr = g.patch(ctx, o, DropFinalizer)\n", after: "\t\terr = g.send(ctx, o, DropFinalizer)\n",
		},
		{
			name: "protect: a release begins where nothing is to be protected", in: in, file: "release.go",
			before: "if g.cfg.Mode != ModeFull {", after: "if false {",
		},
		{
			name: "protect: what others did before is taken for what they do", in: in, file: "release.go",
			before: "\t\tg.notes.leads()\n", after: "",
		},
		{
			name: "pvc: a release reads the pods before the claims", in: pvc, file: "release.go",
			before: "\tclaims, err := k.cluster.listClaims(ctx)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\tpods, err := k.cluster.listPods(ctx, metav1.NamespaceAll)\n",
			after:  "\tpods, err := k.cluster.listPods(ctx, metav1.NamespaceAll)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\tclaims, err := k.cluster.listClaims(ctx)\n",
		},
		{
			name: "pvc: a release takes pods that have ended for none", in: pvc, file: "release.go",
			before: "Ended: ended,", after: "Ended: ReleaseTerminated,",
		},
		{
			name: "pvc: a release takes claims for unused", in: pvc, file: "release.go",
			before: "Reading{Made: true, Usage: used}", after: "Reading{Made: true}",
		},
		{
			name: "pv: a release takes PVs for unused", in: pv, file: "protector.go",
			before: "\tpv.Object = pv.AsDeleted()\n", after: "\tpv.Object, pv.Phase = pv.AsDeleted(), PhaseFree\n",
		},

		{
			name: "pvc: a pod that the watch shows does not hold", in: pvc, file: "decide.go",
			before: "if d, used := s.held(s.Seen); used {", after: "if d, used := s.held(Usage{}); used {",
		},
		{
			name: "pvc: a claim is let go where others may do it", in: pvc, file: "decide.go",
			before: "case !s.Duty.Acts():", after: "case false:",
		},
		{
			name: "pvc: the pods are not listed", in: pvc, file: "decide.go",
			before: "case !s.Read.Made:", after: "case false:",
		},
		{
			name: "pvc: a list that failed shows no user", in: pvc, file: "decide.go",
			before: "case s.Read.Err != nil:", after: "case false:",
		},
		{
			name: "pvc: a pod that only the list shows does not hold", in: pvc, file: "decide.go",
			before: "if d, used := s.held(s.Read.Usage); used {", after: "if d, used := s.held(Usage{}); used {",
		},
		{
			name: "pvc: a pod that only the list shows holds for ever", in: pvc, file: "decide.go",
			before: "\t\td.Timed = true\n", after: "",
		},
		{
			name: "pvc: a pod that runs does not hold", in: pvc, file: "decide.go",
			before: "case by.By != \"\":", after: "case false:",
		},
		{
			name: "pvc: a pod that has ended never holds", in: pvc, file: "decide.go",
			before: "case by.ByEnded != \"\" && s.Ended != ReleaseTerminated:", after: "case false:",
		},
		{
			name: "pvc: what a pod that has ended means counts as said", in: pvc, file: "decide.go",
			before: "s.Ended != ReleaseTerminated:", after: "s.Ended == HoldTerminated:",
		},
		{
			name: "pvc: a pod that has ended proves that nobody else is at work", in: pvc, file: "decide.go",
			before: "case by.ByEnded != \"\" && !s.Duty.Alone:", after: "case false:",
		},
		{
			name: "pvc: a list that was sent before counts", in: pvc, file: "batches.go",
			before: "\tdelete(b.waiting, namespace)\n", after: "",
		},
		{
			name: "pvc: an earlier answer counts for a new question", in: pvc, file: "batches.go",
			before: "\tb.answers[a.uid] = answer{}\n", after: "\tif _, known := b.answers[a.uid]; !known {\n\t\tb.answers[a.uid] = answer{}\n\t}\n",
		},
		{
			name: "pvc: a list counts for ever", in: pvc, file: "batches.go",
			before: "case now.Sub(a.at) > goodFor:", after: "case false:",
		},
		{
			name: "pvc: an error of a list is forgotten", in: pvc, file: "protector.go",
			before: "pods: indexed(pods), err: err})", after: "pods: indexed(pods)})",
		},
		{
			name: "pvc: claims do not wait for each other", in: pvc, file: "batches.go",
			before: "\tif wait = b.pace[namespace].not.Sub(now); wait > 0 {\n\t\treturn nil, wait\n\t}\n", after: "",
		},
		{
			name: "pvc: what was read of a claim outlives it", in: pvc, file: "batches.go",
			before: "\tdefer b.mu.Unlock()\n\tdelete(b.answers, uid)\n", after: "\tdefer b.mu.Unlock()\n",
		},
		{
			name: "pvc: what was read of a claim outlives it, where the next one of its name is there", in: pvc, file: "watch.go",
			before: "\tif before.UID != now.UID {\n\t\tc.batches.forget(before.UID)\n\t}\n", after: "",
		},
		{
			name: "kube: only the first page of a list is read", in: "pkg/internal/kube", file: "pages.go",
			before: "if err != nil || next == \"\" {", after: "if err != nil || next != \"-\" {",
		},
		{
			name: "pvc: the list may be an old one", in: pvc, file: "cluster.go",
			before: "metav1.ListOptions{Limit: listPage, Field", after: "metav1.ListOptions{ResourceVersion: \"0\", Limit: listPage, Field",
		},
		{
			name: "pvc: pods with a node are not listed", in: pvc, file: "cluster.go",
			before: "FieldSelector: \"spec.nodeName!=\"", after: "FieldSelector: \"spec.nodeName=\"",
		},
		{
			name: "pvc: a page that failed ends the list", in: pvc, file: "cluster.go",
			before: "\t\treturn nil, fmt.Errorf(\"list the pods of namespace %q: %w\", namespace, err)\n", after: "\t\treturn pods, nil\n",
		},
		{
			name: "pvc: a pod without a node holds", in: pvc, file: "record.go",
			before: "if !p.Scheduled || p.Namespace != c.Namespace {", after: "if p.Namespace != c.Namespace {",
		},
		{
			name: "pvc: claims that a pod names do not count", in: pvc, file: "record.go",
			before: "return slices.Contains(p.Claims, c.Name) ||\n\t\t", after: "return ",
		},
		{
			name: "pvc: generic ephemeral volumes do not count", in: pvc, file: "record.go",
			before: "return slices.Contains(p.Claims, c.Name) ||", after: "return slices.Contains(p.Claims, c.Name) || false &&",
		},
		{
			name: "pvc: an earlier pod of the name holds an ephemeral volume", in: pvc, file: "record.go",
			before: "c.Owner != \"\" && p.UID == c.Owner &&", after: "c.Owner != \"\" &&",
		},
		{
			name: "pvc: a pod that is shut down holds its ephemeral volume", in: pvc, file: "record.go",
			before: "!p.ShutDown && c.Owner != \"\"", after: "c.Owner != \"\"",
		},
		{
			name: "pvc: a pod that is being deleted is taken for shut down", in: pvc, file: "record.go",
			before: " && *o.DeletionGracePeriodSeconds == 0", after: "",
		},
		{
			name: "pvc: a pod that runs is taken for ended", in: pvc, file: "record.go",
			before: "o.Status.Phase == v1.PodSucceeded || o.Status.Phase == v1.PodFailed", after: "o.Status.Phase != v1.PodPending",
		},
		{
			name: "pvc: pods with ephemeral volumes alone are not kept", in: pvc, file: "record.go",
			before: "p.Scheduled && len(p.Claims)+len(p.Ephemeral) > 0", after: "p.Scheduled && len(p.Claims) > 0",
		},
		{
			name: "pvc: a pod that is gone takes its namesake along", in: pvc, file: "users.go",
			before: "return other.UID == p.UID })", after: "return other.Name == p.Name })",
		},
		{
			name: "pvc: the end of a pod wakes nobody", in: pvc, file: "watch.go",
			before: "\tc.users.remove(last)\n\tc.wakeClaims(last)\n", after: "\tc.users.remove(last)\n",
		},
		{
			name: "pvc: another pod of the name wakes nobody", in: pvc, file: "watch.go",
			before: "\tc.wakeClaims(before)\n", after: "",
		},
		{
			name: "pvc: a pod that ends wakes nobody", in: pvc, file: "watch.go",
			before: "p.Ended == as.Ended && ", after: "",
		},
		{
			name: "pvc: a pod that is shut down wakes nobody", in: pvc, file: "watch.go",
			before: " && p.ShutDown == as.ShutDown &&", after: " &&",
		},

		{
			name: "pv: a PV that is bound is let go", in: pv, file: "decide.go",
			before: "case s.PV.Phase == PhaseBound, s.PV.Phase == PhaseUnknown:", after: "case s.PV.Phase == PhaseUnknown:",
		},
		{
			name: "pv: a PV of an unknown phase is let go", in: pv, file: "decide.go",
			before: "case s.PV.Phase == PhaseBound, s.PV.Phase == PhaseUnknown:", after: "case s.PV.Phase == PhaseBound:",
		},
		{
			name: "pv: a phase that nobody knows is taken for free", in: pv, file: "record.go",
			before: "\t}\n\treturn PhaseUnknown\n", after: "\t}\n\treturn PhaseFree\n",
		},
		{
			name: "pv: a PV is let go where others may do it", in: pv, file: "decide.go",
			before: "case !s.Duty.Acts():", after: "case false:",
		},
		{
			name: "pv: a twin is protected", in: pv, file: "decide.go",
			before: "if s.PV.Twin && !s.PV.Terminating {", after: "if false {",
		},
		{
			name: "pv: a twin is not let go", in: pv, file: "decide.go",
			before: "if s.PV.Twin && !s.PV.Terminating {", after: "if s.PV.Twin {",
		},
	}
	for i := range all {
		all[i].because = use
	}
	return all
}
