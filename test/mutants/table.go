package main

import "slices"

// mutant is one edit that must not go unnoticed.
type mutant struct {
	// name says which guard is gone.
	name string
	// file is in the folder in; before occurs in it exactly once, and becomes after.
	file, before, after string
	// in is the folder of the package. Default pkg/reclaim.
	in string
	// live, if set, chooses the package's tests against a real API server that alone are to notice it.
	live string
	// world is the one of test/model that shows it. Empty: the model has nothing to show it
	// with, because says why.
	world, because string
}

// oneProcess is why the model shows nothing about nodes.
const oneProcess = "the model has one process for the whole cluster"

// folder returns the package's, as the go command takes it.
func (m mutant) folder() string {
	if m.in == "" {
		return "./pkg/reclaim"
	}
	return "./" + m.in
}

// mutants are all guards that are taken out.
func mutants() []mutant {
	return slices.Concat(reclaiming(), leading(), provisioning(), logging(), capacity(), intree(), protecting(), admitting(), auditing())
}

// reclaiming are the guards of a deletion: facts that Decide asks for, the order of its steps,
// what is noted, what wakes.
func reclaiming() []mutant {
	return []mutant{
		{
			name: "the policy is not looked at", file: "decide.go",
			before: "case s.PV.Policy != PolicyDelete:\n\t\treturn keep(s)", after: "case false:\n\t\treturn keep(s)",
			world: "orders",
		},
		{
			name: "a PV without claim is taken for one whose claim is gone", file: "decide.go",
			before: "case !s.PV.claimed():\n\t\treturn unclaimed(s)", after: "case false:\n\t\treturn unclaimed(s)",
			world: "static",
		},
		{
			name: "a PV that is Bound is taken for released", file: "decide.go",
			before: "case pv.Phase == PhaseBound:\n\t\treturn wait(ReasonBound)", after: "case false:\n\t\treturn wait(ReasonBound)",
			world: "orders",
		},
		{
			name: "a claim that is there is taken for gone", file: "snapshot.go",
			before: "\t}\n\treturn claimExists", after: "\t}\n\treturn claimGone",
			world: "orders",
		},
		{
			name: "another claim that names the PV is not looked at", file: "snapshot.go",
			before: "case c.Found && c.UID != s.PV.Claim.UID && c.VolumeName == s.PV.Name:", after: "case false:",
			world: "restored",
		},
		{
			name: "a PV that is gone: another claim that names it is taken for gone", file: "decide.go",
			before: "case state == claimNamesPV:", after: "case false:",
			world: "unprotected, restored",
		},
		{
			name: "a claim that names the PV is not looked at again", file: "decide.go",
			before: "case claimNamesPV:\n\t\treturn Decision{Action: Wait, Reason: ReasonClaimNamesPV, Timed: true}", after: "case claimNamesPV:\n\t\treturn wait(ReasonClaimNamesPV)",
			world: "restored",
		},
		{
			name: "a claim that was not read is taken for gone", file: "decide.go",
			before: "case claimUnknown:\n\t\treturn step(ReadClaim, ReasonReclaim)\n", after: "case claimUnknown:\n",
			world: "orders",
		},
		{
			name: "the PV is not read", file: "decide.go",
			before: "case !s.pvReadLast(now):", after: "case false:",
			world: "orders",
		},
		{
			name: "an in-tree class is read for its Secret without translation", file: "secret.go",
			before: "Parameters: class.Parameters}, pv.Driver)", after: "Parameters: class.Parameters}, \"\")",
			because: "the model has no Secrets",
		},
		{
			name: "the list of attachments comes after the last read of the PV", file: "call.go",
			before: "\t\tw.facts.PVRead = Read{}\n", after: "",
			world: "attached",
		},
		{
			name: "the PV is not read last", file: "snapshot.go",
			before: " && s.PVRead.Order > s.Claim.Read.Order && s.PVRead.Order > s.SiblingsRead.Order", after: "",
			world: "shared",
		},
		{
			name: "reads count for ever", file: "snapshot.go",
			before: "return r.Order > 0 && now.Sub(r.Sent) <= liveFor", after: "return r.Order > 0",
			world: "held",
		},
		{
			name: "a hold is not respected", file: "decide.go",
			before: "case pv.Held:\n\t\treturn wait(ReasonHeld), false", after: "case false:\n\t\treturn wait(ReasonHeld), false",
			world: "held",
		},
		{
			name: "attachments are not looked at", file: "decide.go",
			before: "case s.Attachments > 0:", after: "case false:",
			world: "attached",
		},
		{
			name: "a watch of attachments that lags is believed", file: "decide.go",
			before: "case (pv.WasAttached || s.End.Gone) && !s.AttachmentsCurrent", after: "case s.End.Gone && !s.AttachmentsCurrent",
			world: "attached",
		},
		{
			name: "other PVs of the volume are not looked at", file: "decide.go",
			before: "case s.shared():", after: "case false:",
			world: "shared",
		},
		{
			name: "other PVs of the volume are not read", file: "decide.go",
			before: "case len(s.Siblings) > 0 && !s.SiblingsRead.fresh(now):", after: "case false:",
			world: "shared",
		},
		{
			name: "a claim that keeps the volume by another PV is not looked at", file: "decide.go",
			before: "case len(s.Siblings) > 0 && s.SiblingNeeded != \"\":", after: "case false:",
			world: "shared, restored",
		},
		{
			name: "a PV that is gone: whether others name the volume is not read", file: "decide.go",
			before: "case !s.FamilyRead.fresh(now):", after: "case false:",
			world: "unprotected",
		},
		{
			name: "a PV that is gone: a finalizer that was taken off by hand does not count", file: "decide.go",
			before: "|| s.History.SeenProtected || pv.Held:", after: "|| pv.Held:",
			world: "stripped",
		},
		{
			name: "a loop on one PV ends the protection of all", file: "notes.go",
			before: "n.contested = n.contestedSince(now.Add(-contestWithin)) >= contestedPVs", after: "n.contested = true",
			world: "contested",
		},
		{
			name: "a loop on one PV is answered for ever", file: "notes.go",
			before: "\tm.acts.contestedAt = now\n", after: "",
			world: "contested",
		},
		{
			name: "somebody else's finalizer on one PV ends the contest of another", file: "notes.go",
			before: "case !n.contested:\n\t\tm.endContest()\n\t\treturn false\n\t}", after: "}",
			because: "in the model nobody else adds the finalizer",
		},
		{
			name: "a companion takes the end of a PV that was released for the peer's deletion", file: "decide.go",
			before: "case s.Done.VolumeDeleted:\n\t\treturn letGo(s)", after: "case s.Done.VolumeDeleted || s.Rules.Role == RoleCompanion && s.History.SeenReleased && s.PV.Terminating:\n\t\treturn letGo(s)",
			world: "companion",
		},
		{
			name: "that the volume is deleted is not noted", file: "call.go",
			before: "func(d *Done) { d.VolumeDeleted, d.Claim = true, pv.Claim }", after: "func(d *Done) { d.Claim = pv.Claim }",
			world: "orders",
		},
		{
			name: "an error of the driver is taken for success", file: "call.go",
			before: "\tif a.err != nil {\n\t\treturn because(ReasonVolumeFailedDelete, a.err)\n\t}\n", after: "",
			world: "orders",
		},
		{
			name: "the PV is deleted before its volume", file: "decide.go",
			before: "\treturn step(DeleteVolume, ReasonReclaim)\n}", after: "\tif !s.PV.Terminating && !s.Done.PVDeleted {\n\t\treturn step(DeletePV, ReasonReclaim)\n\t}\n\treturn step(DeleteVolume, ReasonReclaim)\n}",
			world: "orders",
		},
		{
			name: "the finalizer goes although the PV has changed since", file: "call.go",
			before: "c.drop, c.bound = w.facts.Rules.finalizers(c.pv), true", after: "c.drop = w.facts.Rules.finalizers(c.pv)",
			world: "orders",
		},
		{
			name: "a PV that is terminating is let go of", file: "decide.go",
			before: "case s.Done.VolumeDeleted:\n\t\treturn letGo(s)", after: "case s.Done.VolumeDeleted || s.PV.deletable() && s.PV.Terminating:\n\t\treturn letGo(s)",
			world: "orders",
		},
		{
			name: "a run goes on after the PV's end", file: "execute.go",
			before: "\treturn known\n}\n\n// lookAtEnd", after: "\treturn true\n}\n\n// lookAtEnd",
			world: "stripped",
		},
		{
			name: "what is noted of a PV is forgotten with its end", file: "endings.go",
			before: "\tm.present().over = &ending{*pv, end}\n\tn.known[pv.UID] = m\n", after: "\tn.known[pv.UID] = &memory{history: m.history, acts: &acts{over: &ending{*pv, end}}}\n",
			world: "orders",
		},
		{
			name: "the finalizer is taken off again while the cache lags", file: "notes.go",
			before: "done.Dropped = past.took.later(pv.ResourceVersion)", after: "done.Dropped = false",
			world: "orders",
		},
		{
			name: "a write that is answered late passes for the last one", file: "notes.go",
			before: "\tcase c.protects() && put == nil: // its event was seen\n", after: "\tcase c.protects() && put == nil && took != nil && a.err == nil:\n\t\ttook.version = a.version\n\tcase c.protects() && put == nil:\n",
			world: "unprotected",
		},
		{
			name: "the end of a PV wakes nobody", file: "observe.go",
			before: "\t\to.brake.count(last.UID)\n\t}\n\to.wakeFamily(last)", after: "\t\to.brake.count(last.UID)\n\t}",
			world: "unprotected",
		},
		{
			name: "the end of an attachment wakes nobody", file: "observe.go",
			before: "\tif by > 0 {\n\t\treturn\n\t}", after: "\tif by != 0 {\n\t\treturn\n\t}",
			world: "attached",
		},
		{
			name: "a call that failed is not tried again", file: "execute.go",
			before: "\t\tr.reports.failure(ctx, pv, reason, err, false)\n\t\treturn r.usual()", after: "\t\tr.reports.failure(ctx, pv, reason, err, false)\n\t\treturn loop.Next{}",
			world: "orders",
		},
		{
			name: "a write that came too late is not tried again", file: "execute.go",
			before: "\t\t// case that it came before the answer.\n\t\treturn r.soon()", after: "\t\t// case that it came before the answer.\n\t\treturn loop.Next{}",
			because: "the change that made it too late wakes the PV as well",
		},
		{
			name: "a node deletes what another one, or several, may reach", file: "decide.go",
			before: "case s.Rules.Local && s.PV.Reach != ReachHere && !s.Done.VolumeDeleted:", after: "case s.Rules.Local && s.PV.Reach == ReachElsewhere && !s.Done.VolumeDeleted:",
			because: oneProcess,
		},
		{
			name: "the nodes are not looked at", file: "decide.go",
			before: "case s.Rules.Local && !s.NodesRead.fresh(now):", after: "case false:",
			because: oneProcess,
		},
		{
			name: "another node in the same place does not count", file: "decide.go",
			before: "case s.Rules.Local && !s.Alone:", after: "case false:",
			because: oneProcess,
		},
		{
			name: "the nodes are looked at after the last read of the PV", file: "snapshot.go",
			before: " &&\n\t\ts.PVRead.Order > s.NodesRead.Order", after: "",
			because: oneProcess,
		},
		{
			name: "a place that is named in part is this node's", file: "node.go",
			before: "if exact && len(named) == len(n.Segments) {", after: "if exact {",
			because: oneProcess,
		},
		{
			name: "a PV of several nodes is this node's", file: "node.go",
			before: " && len(e.Values) == 1", after: "",
			because: oneProcess,
		},
	}
}
