package main

// intreeMutants are the guards of a deletion by way of a twin: arming one is a deletion.
func intree() []mutant {
	return []mutant{
		{
			name: "in-tree: the policy is not looked at", in: "pkg/intree", file: "decide.go",
			before: "case pv.Policy != reclaim.PolicyDelete:\n\t\treturn keep(s), false", after: "case false:\n\t\treturn keep(s), false",
			world: "twin, policy",
		},
		{
			name: "in-tree: another program that manages the finalizer is not looked at", in: "pkg/intree", file: "decide.go",
			before: "case pv.Guard == WriterOther, s.Manages == ManagesOther && !s.idle(now):", after: "case false:",
			because: "what two of them do at once is what one does",
		},
		{
			name: "in-tree: another program is given no time", in: "pkg/intree", file: "decide.go",
			before: "s.Manages == ManagesOther && !s.idle(now):", after: "false:",
			because: "what two of them do at once is what one does",
		},
		{
			name: "in-tree: another program's finalizer is taken for ours once it does nothing", in: "pkg/intree", file: "decide.go",
			before: "case pv.Guard == WriterOther, s.Manages == ManagesOther &&", after: "case (pv.Guard == WriterOther || s.Manages == ManagesOther) &&",
			because: "it then deletes a volume that may go; the finalizer stays",
		},
		{
			name: "in-tree: a migrated PV is taken for the plugin's", in: "pkg/intree", file: "decide.go",
			before: "case pv.MigratedTo != \"\":\n\t\treturn migrated(s), false", after: "case false:\n\t\treturn migrated(s), false",
			world: "twin, migration",
		},
		{
			name: "in-tree: a PV that nobody deleted is reclaimed", in: "pkg/intree", file: "decide.go",
			before: "case !pv.Terminating:\n\t\treturn protect(s), false", after: "case false:\n\t\treturn protect(s), false",
			world: "twin",
		},
		{
			name: "in-tree: a finalizer that nobody knows of counts as ours", in: "pkg/intree", file: "decide.go",
			before: "case pv.Guard == WriterUnknown:\n\t\treturn wait(ReasonWriterUnknown), false", after: "case false:\n\t\treturn wait(ReasonWriterUnknown), false",
			because: "the model always tells who wrote",
		},
		{
			name: "in-tree: a PV that nothing holds is reclaimed", in: "pkg/intree", file: "decide.go",
			before: "case len(s.ours()) == 0:\n\t\treturn wait(ReasonDeletionUnprotected), false", after: "case false:\n\t\treturn wait(ReasonDeletionUnprotected), false",
			world: "twin",
		},
		{
			name: "in-tree: a PV without claim is taken for one whose claim is gone", in: "pkg/intree", file: "decide.go",
			before: "case !pv.claimed():", after: "case false:",
			world: "twin, taken back",
		},
		{
			name: "in-tree: a PV that is Bound or not released is taken for released", in: "pkg/intree", file: "decide.go",
			before: "case pv.Phase == reclaim.PhaseBound:\n\t\treturn wait(ReasonTerminatingBound), false\n\tcase !pv.released():", after: "case false:\n\t\treturn wait(ReasonTerminatingBound), false\n\tcase false:",
			world: "twin",
		},
		{
			name: "in-tree: a hold is not respected", in: "pkg/intree", file: "decide.go",
			before: "case pv.Held:", after: "case false:",
			world: "twin, held",
		},
		{
			name: "in-tree: a claim that is there is taken for gone", in: "pkg/intree", file: "snapshot.go",
			before: "\t}\n\treturn claimExists", after: "\t}\n\treturn claimGone",
			because: "in the model the PV controller releases no PV whose claim lives",
		},
		{
			name: "in-tree: another claim that names the PV is not looked at", in: "pkg/intree", file: "snapshot.go",
			before: "case c.Found && c.UID != s.PV.Claim.UID && c.VolumeName == s.PV.Name:", after: "case false:",
			world: "twin, restored",
		},
		{
			name: "in-tree: a claim that was not read is taken for gone", in: "pkg/intree", file: "decide.go",
			before: "case claimUnknown:\n\t\treturn step(ReadClaim, ReasonReclaim)\n", after: "case claimUnknown:\n",
			world: "twin, calls fail",
		},
		{
			name: "in-tree: what was read of another claim counts", in: "pkg/intree", file: "snapshot.go",
			before: " || c.Of != s.PV.Claim:", after: ":",
			because: "in the model the claim that such a PV has then is gone as well",
		},
		{
			name: "in-tree: attachments are not listed", in: "pkg/intree", file: "decide.go",
			before: "case !s.Attachments.Read.fresh(now):", after: "case false:",
			world: "twin, attached",
		},
		{
			name: "in-tree: attachments are not looked at", in: "pkg/intree", file: "decide.go",
			before: "case s.Attachments.Count > 0:", after: "case false:",
			world: "twin, attached",
		},
		{
			name: "in-tree: other PVs of the volume are not looked at", in: "pkg/intree", file: "decide.go",
			before: "\tif s.shared() {\n\t\treturn wait(ReasonSharedSource)\n\t}\n\tswitch s.claimState", after: "\tswitch s.claimState",
			world: "twin, static PV",
		},
		{
			name: "in-tree: other PVs of the volume are not read", in: "pkg/intree", file: "decide.go",
			before: "case len(s.Siblings) > 0 && !s.SiblingsRead.fresh(now):", after: "case false:",
			because: "in its worlds nobody comes to need a volume anew",
		},
		{
			name: "in-tree: the PV is not read", in: "pkg/intree", file: "decide.go",
			before: "case !s.pvReadLast(now):", after: "case s.PVRead.Order < 0:",
			because: "no twin can be made of a PV that was not read: the program ends",
		},
		{
			name: "in-tree: the PV is not read last", in: "pkg/intree", file: "snapshot.go",
			before: " && s.PVRead.Order > s.Claim.Read.Order &&\n\t\ts.PVRead.Order > s.Attachments.Read.Order && s.PVRead.Order > s.SiblingsRead.Order", after: "",
			world: "twin, slow",
		},
		{
			name: "in-tree: reads count for ever", in: "pkg/intree", file: "snapshot.go",
			before: "return r.Order > 0 && now.Sub(r.Sent) <= liveFor", after: "return r.Order > 0",
			world: "twin, slow",
		},
		{
			name: "in-tree: a twin is born armed", in: "pkg/intree", file: "twin.go",
			before: "twin.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain", after: "twin.Spec.PersistentVolumeReclaimPolicy = o.Spec.PersistentVolumeReclaimPolicy",
			world: "twin, calls fail",
		},
		{
			name: "in-tree: a twin is armed before the PV controller has looked", in: "pkg/intree", file: "decide.go",
			before: "case twinMade:\n\t\treturn wait(ReasonTwinMade)", after: "case twinMade:\n\t\treturn check(s, ArmTwin, now)",
			world: "twin, calls fail",
		},
		{
			name: "in-tree: a twin is armed without a second look", in: "pkg/intree", file: "decide.go",
			before: "case twinReleased:\n\t\treturn check(s, ArmTwin, now)", after: "case twinReleased:\n\t\treturn step(ArmTwin, ReasonReclaim)",
			world: "twin, calls fail",
		},
		{
			name: "in-tree: a twin that was there already is armed by the look before", in: "pkg/intree", file: "execute.go",
			before: "\t\tw.facts.Claim, w.facts.Attachments, w.facts.SiblingsRead, w.facts.PVRead = ClaimFacts{}, AttachmentFacts{}, Read{}, Read{}\n", after: "",
			world: "twin",
		},
		{
			name: "in-tree: a twin of another claim is armed", in: "pkg/intree", file: "twin.go",
			before: "case t.Claim != s.PV.Claim, t.MigratedTo", after: "case t.MigratedTo",
			world: "twin, taken back",
		},
		{
			name: "in-tree: a PV without a twin's label is taken for one", in: "pkg/intree", file: "twin.go",
			before: "twin.TwinOf == pv.UID && twin.Original == pv.Name &&", after: "twin.Original == pv.Name &&",
			because: "in the model nobody else has a twin's name",
		},
		{
			name: "in-tree: a PV of another volume is taken for a twin", in: "pkg/intree", file: "twin.go",
			before: " && twin.Source == pv.Source && twin.ProvisionedBy", after: " && twin.ProvisionedBy",
			because: "in the model nobody else has a twin's name",
		},
		{
			name: "in-tree: a twin stays armed when its original is to keep the volume", in: "pkg/intree", file: "decide.go",
			before: "\tif s.twin() {\n\t\tif first, atRest", after: "\tif false {\n\t\tif first, atRest",
			world: "twin, policy",
		},
		{
			name: "in-tree: a twin is deleted before it is disarmed", in: "pkg/intree", file: "twin.go",
			before: "case twin.armed():\n", after: "case false:\n",
			world: "twin, policy",
		},
		{
			name: "in-tree: what was seen on a twin is forgotten with it", in: "pkg/intree", file: "notes.go",
			before: "\tif seen {\n", after: "\tif false && seen {\n",
			because: "the model takes it that the PV controller has its turn at some time",
		},
		{
			name: "in-tree: a twin that another program holds stays for ever", in: "pkg/intree", file: "twin.go",
			before: "case twin.Terminating && twin.Guard != WriterNone:\n", after: "case false:\n",
			world: "deep: twin, upgrade",
		},
		{
			name: "in-tree: a twin in use is deleted", in: "pkg/intree", file: "twin.go",
			before: "case twin.Terminating, twin.Phase == reclaim.PhaseBound:", after: "case twin.Terminating:",
			world: "twin, taken",
		},
		{
			name: "in-tree: a twin that failed stays armed", in: "pkg/intree", file: "decide.go",
			before: "\t\td, _ := retire(s, ReasonVolumeFailedDelete)\n\t\treturn d", after: "\t\treturn wait(ReasonTwinArmed)",
			world: "twin, plugin fails",
		},
		{
			name: "in-tree: a twin whose original is there is taken for an orphan", in: "pkg/intree", file: "twin.go",
			before: "case !s.Original.Gone:", after: "case false:",
			because: "in the model a watch that has begun has told of every PV",
		},
		{
			name: "in-tree: a twin is taken for an orphan without a look", in: "pkg/intree", file: "twin.go",
			before: "case !s.Original.Read.fresh(now):", after: "case s.Original.Read.Order < 0:",
			because: "in the model a watch that has begun has told of every PV",
		},
		{
			name: "in-tree: a twin that was not armed is taken for done", in: "pkg/intree", file: "observe.go",
			before: "\t\tlast.Policy == reclaim.PolicyDelete && last.Phase", after: "\t\tlast.Phase",
			world: "twin, by hand",
		},
		{
			name: "in-tree: a twin that failed is taken for done", in: "pkg/intree", file: "observe.go",
			before: " && last.Phase == reclaim.PhaseReleased {", after: " {",
			world: "twin, failed by hand",
		},
		{
			name: "in-tree: an end that was not seen is taken for done", in: "pkg/intree", file: "observe.go",
			before: "found && final && twinOf", after: "found && twinOf",
			because: "the model's watches tell of every end",
		},
		{
			name: "in-tree: a PV is let go while its policy is Delete and it is migrated without protection", in: "pkg/intree", file: "decide.go",
			before: "case pv.Terminating && pv.Policy != reclaim.PolicyRetain && pv.Policy != reclaim.PolicyRecycle && len(pv.csiFinalizers()) == 0:", after: "case false:",
			world: "twin, migration",
		},
		{
			name: "in-tree: a finalizer that we did not put on is taken off", in: "pkg/intree", file: "decide.go",
			before: "\tif s.PV.Guard != WriterUs || s.Manages", after: "\tif s.Manages",
			because: "the model does not play the way out",
		},
	}
}
