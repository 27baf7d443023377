package main

// logging are the guards of the in-flight log, and of those who rely on it.
func logging() []mutant {
	const in, because = "pkg/provision/inflight", "the model has one entry for each name, and no Leases"
	return []mutant{
		{
			name: "log: a process that was superseded goes on", in: in, file: "plan.go",
			before: "case v.meta.Epoch >= own.Epoch:", after: "case false:", because: because,
		},
		{
			name: "log: a copy of a Lease is acted on", in: in, file: "shard.go",
			before: "v.meta.UID != \"\" && v.meta.UID != lease.UID", after: "false", because: because,
		},
		{
			name: "log: a write that may still land counts as lost", in: in, file: "state.go",
			before: "if !s.stored(key) && !s.mayLand(key) {", after: "if !s.stored(key) {", because: because,
		},
		{
			name: "log: a Lease made anew is written before the others are looked at", in: in, file: "plan.go",
			before: "case s.fresh && !s.fenced:", after: "case false:", because: because,
		},
		{
			name: "log: it is written past the lease", in: in, file: "writer.go",
			before: "if left <= 0 {", after: "if false {", because: because,
		},
		{
			name: "log: fields that are not known are dropped", in: in, file: "codec.go",
			before: "\tdecoder.DisallowUnknownFields()\n", after: "", because: because,
		},
		{
			name: "a PV is reclaimed while its volume is in flight", in: "pkg/reclaim", file: "decide.go",
			before: "if !s.Rules.Logged || !d.Action.gives() {", after: "if true {",
			because: "reclaiming in the claims' model waits by itself",
		},
		{
			name: "a PV is reclaimed before the log is read", in: "pkg/reclaim", file: "decide.go",
			before: "	case LogUnknown:\n	}\n	return wait(ReasonLogNotRead)", after: "	case LogUnknown:\n	}\n	return d",
			because: "reclaiming in the claims' model waits by itself",
		},
		{
			name: "an entry that was removed by hand is asked for again", in: "pkg/provision", file: "execute.go",
			before: "if f.Record.Begun() {\n\t\tif err := w.confirm(ctx); err != nil {", after: "if f.Record.Begun() {\n\t\tif err := w.confirm(ctx); err != nil && false {",
			because: "in the model an entry that is gone is seen at once",
		},
		{
			name: "a claim that was there before counts as new", in: "pkg/provision", file: "observe.go",
			before: "&& !w.tracker.wasClosed(w.claim.UID)", after: "",
			because: "the model sets the fact",
		},
		{
			name: "a release of drivers takes the finalizer of a PV in flight", in: "pkg/admission", file: "release.go",
			before: "if !kept && len(releasable(pv, drivers)) > 0 {", after: "if _ = kept; len(releasable(pv, drivers)) > 0 {",
			because: "the model has no release",
		},
		{
			name: "a release of drivers goes on without the log", in: "pkg/admission", file: "release.go",
			before: "if err := r.readLog(ctx, out.Drivers); err != nil {", after: "if err := r.readLog(ctx, out.Drivers); err != nil && false {",
			because: "the model has no release",
		},
		{
			name: "the plugin releases a PV in flight", in: "pkg/explain", file: "release.go",
			before: "Mode: reclaim.ModeRelease, Logged: true}", after: "Mode: reclaim.ModeRelease}",
			because: "the model has no release",
		},
		{
			name: "the plugin takes a log that it cannot read for empty", in: "pkg/explain", file: "decide.go",
			before: "\tif !w.InFlight.OK() {\n\t\treturn reclaim.LogUnknown\n", after: "\tif !w.InFlight.OK() {\n\t\treturn reclaim.LogSettled\n",
			because: "the model has no plugin",
		},
	}
}
