package main

// auditing are the guards of a suspicion: what accounts for a volume, in which order that is read, what is a
// sighting; and of what a person has done about a suspect.
func auditing() []mutant {
	const in, because = "pkg/leaks", "the model has no audit"
	return []mutant{
		{
			name: "audit: a PV does not account for its volume", in: in, file: "decide.go",
			before: "\tcase s.PV == Present:\n\t\treturn ReasonPV, true\n", after: "\tcase s.PV == Present:\n\t\treturn \"\", false\n", because: because,
		},
		{
			name: "audit: a snapshot does not account for its storage", in: in, file: "decide.go",
			before: "\tcase s.Snapshot == Present:\n\t\treturn ReasonSnapshot, true\n", after: "\tcase s.Snapshot == Present:\n\t\treturn \"\", false\n", because: because,
		},
		{
			name: "audit: what is not known is absent", in: in, file: "decide.go",
			before: "case s.PV != Absent || s.Snapshot != Absent || s.InFlight != Absent || s.Unclear == PresenceUnknown || s.Maker == PresenceUnknown:", after: "case false:", because: because,
		},
		{
			name: "audit: an entry of the in-flight log does not account for its volume", in: in, file: "decide.go",
			before: "\tcase s.InFlight == Present:\n\t\treturn ReasonInFlight, true\n", after: "\tcase s.InFlight == Present:\n\t\treturn \"\", false\n", because: because,
		},
		{
			name: "audit: what the in-flight log has is not being made", in: in, file: "survey.go",
			before: "s.makers = append(s.makers, maker{e.Claim.UID, ", after: "_ = append(s.makers, maker{e.Claim.UID, ", because: because,
		},
		{
			name: "audit: an entry that cannot be read is none", in: in, file: "survey.go",
			before: "found || s.unreadable == \"\"", after: "true", because: because,
		},
		{
			name: "audit: what is being made does not count", in: in, file: "decide.go",
			before: "case s.Maker != Absent:", after: "case false:", because: because,
		},
		{
			name: "audit: a PV of which nobody knows the volume does not count", in: in, file: "decide.go",
			before: "case s.Unclear != Absent:", after: "case false:", because: because,
		},
		{
			name: "audit: a list in which no PV's volume is counts", in: in, file: "decide.go",
			before: "case !s.NamesMatch:", after: "case false:", because: because,
		},
		{
			name: "audit: what is attached is suspected", in: in, file: "decide.go",
			before: "case s.InUse:", after: "case false:", because: because,
		},
		{
			name: "audit: a pod's own volume is suspected", in: in, file: "decide.go",
			before: "case s.Ephemeral:", after: "case false:", because: because,
		},
		{
			name: "audit: one sighting is enough", in: in, file: "decide.go",
			before: "max(s.Rules.Sightings, leastSightings)", after: "s.Rules.Sightings", because: because,
		},
		{
			name: "audit: there is no grace", in: in, file: "decide.go",
			before: "s.FirstSeen.IsZero() || now.Sub(s.FirstSeen) < s.Rules.Grace", after: "s.FirstSeen.IsZero()", because: because,
		},
		{
			name: "audit: PVs are read before the in-flight log", in: in, file: "survey.go",
			before:  "\ts.takeLog(entries, problems, driver)\n\tif err = at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(reclaim.PVOf(pv), driver) }); err != nil {\n\t\treturn survey{}, err\n\t}\n",
			after:   "\tif err = at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(reclaim.PVOf(pv), driver) }); err != nil {\n\t\treturn survey{}, err\n\t}\n\tif entries, problems, err = at.inFlight(ctx); err != nil {\n\t\treturn survey{}, err\n\t}\n\ts.takeLog(entries, problems, driver)\n",
			because: because,
		},
		{
			name: "audit: an in-tree PV is known by the name that it translates to", in: in, file: "survey.go",
			before: `case handle == "" || pv.InTree:`, after: `case handle == "":`, because: because,
		},
		{
			name: "audit: a sighting while something speaks for the volume counts", in: in, file: "memory.go",
			before: "\t\tu.sightings, u.firstSeen = 0, time.Time{}\n", after: "\t\tu.sightings++\n", because: because,
		},
		{
			name: "audit: a PV that passes by does not end a suspicion", in: in, file: "memory.go",
			before: "\tdelete(m.volumes, key)\n", after: "", because: because,
		},
		{
			name: "audit: a PV that comes and goes during an audit does not count", in: in, file: "memory.go",
			before: "found.named[key] || m.passing[key]", after: "found.named[key]", because: because,
		},
		{
			name: "audit: a claim counts as one that came last", in: in, file: "memory.go",
			before: "\t\t\tsince = before.since\n", after: "\t\t\t_ = before\n", because: because,
		},
		{
			name: "audit: a held claim is done with its volume", in: in, file: "cluster.go",
			before: `claim.Spec.VolumeName == "" || (ours || !named) && held(claim)`, after: `claim.Spec.VolumeName == "" && (held(claim) || named || !named)`, because: because,
		},
		{
			name: "audit: letters matter", in: in, file: "memory.go",
			before: "return strings.ToLower(handle)", after: "return strings.Clone(handle)", because: because,
		},
		{
			name: "audit: a list whose token has expired is a list", in: in, file: "list.go",
			before: "\t\t\treturn listing{}, fmt.Errorf(\"%w: %w\", errExpired, err)\n", after: "\t\t\treturn l, nil\n", because: because,
		},
		{
			name: "audit: a driver may page in a circle", in: in, file: "list.go",
			before: "case given[token]:", after: "case false:", because: because,
		},
		{
			name: "remedy: another PV of the volume does not matter", in: in, file: "remedy_decide.go",
			before: "case c.Others == Present:", after: "case false:", because: because,
		},
		{
			name: "remedy: whether another PV names the volume need not be known", in: in, file: "remedy_decide.go",
			before: "case c.Others != Absent || !c.Own.Read:", after: "case false:", because: because,
		},
		{
			name: "remedy: any PV of that name is turned", in: in, file: "remedy_decide.go",
			before: "case c.Own.Found && !c.Own.Made:", after: "case false:", because: because,
		},
		{
			name: "remedy: what is no suspect is deleted", in: in, file: "remedy_decide.go",
			before: "case !c.Suspected:", after: "case false:", because: because,
		},
		{
			name: "remedy: what was taken back is made again", in: in, file: "remedy_decide.go",
			before: "case !c.Fresh:", after: "case false:", because: because,
		},
		{
			name: "remedy: a report counts for ever", in: in, file: "remedy_decide.go",
			before: "case c.Completed.IsZero() || now.Sub(c.Completed) > maxReportAge:", after: "case false:", because: because,
		},
		{
			name: "remedy: a PV is turned before it is Released", in: in, file: "remedy_decide.go",
			before: "case pv.Phase == reclaim.PhaseReleased:", after: "case pv.Phase != reclaim.PhaseUnknown:", because: because,
		},
		{
			name: "remedy: a PV is born to be deleted", in: in, file: "remedy.go",
			before: "PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,", after: "PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,", because: because,
		},
		{
			name: "remedy: the PV of another claim is taken for its own", in: in, file: "remedy.go",
			before: "pv.Claim == is.Claim && ", after: "", because: because,
		},
	}
}
