package main

// provisioning are the guards of what is written to the in-flight log and removed from it, of what is deleted, and of
// what an answer of the driver settles, while volumes are provisioned.
func provisioning() []mutant {
	return append(append(engineOfProvisioning(), sourcesOfProvisioning()...), mutant{
		name: "the library deletes volumes' PVs", in: "pkg/provision", file: "library.go",
		before: "return &controller.IgnoredError{Reason: \"volumes are deleted elsewhere\"}", after: "return nil",
		because: "the library sees no PV in the model",
	})
}

// engineOfProvisioning are those of the decisions, and of what is learned.
func engineOfProvisioning() []mutant {
	const in = "pkg/internal/engine/provisioning"
	return []mutant{
		{
			name: "a replica that does not lead acts", in: in, file: "decide.go",
			before: "case !f.MayAct:", after: "case false:",
			world: "claim, two leaders",
		},
		{
			name: "a log that was not read is taken for empty", in: in, file: "decide.go",
			before: "case f.Log == LogUnknown:", after: "case false:",
			world: "claim, replicas",
		},
		{
			name: "a write of the log that is not confirmed is not waited for", in: in, file: "decide.go",
			before: "case f.Log == LogChanging:", after: "case false:",
			because: "one call of a name is under way at a time in the model",
		},
		{
			name: "another driver's claim is provisioned", in: in, file: "decide.go",
			before: "case !c.Ours:", after: "case false:",
			because: "all claims of the model are ours",
		},
		{
			name: "the finalizer of an earlier version goes before there is an entry", in: in, file: "decide.go",
			before: "case c.Finalizer && (f.PV.stored() || c.Node == NodeAny && c.VolumeName == c.PVName):", after: "case c.Finalizer:",
			world: "legacy",
		},
		{
			name: "a claim that is over gets an entry", in: in, file: "decide.go",
			before: "case c.over():", after: "case false:",
			world: "PV kept",
		},
		{
			name: "another node's claim is provisioned", in: in, file: "decide.go",
			before: "case c.Node == NodeElsewhere:", after: "case false:",
			because: "a claim is not wanted there in the model",
		},
		{
			name: "a claim whose PV is stored gets an entry", in: in, file: "decide.go",
			before: "case f.PV.stored():\n\t\treturn done(ReasonStored)\n\tcase f.PV.Exists:\n\t\treturn timed(ReasonNameTaken)\n", after: "",
			world: "PV deleted",
		},
		{
			name: "another claim's entry of the name does not count", in: in, file: "decide.go",
			before: "case f.Log == LogOthers:", after: "case false:",
			world: "one name",
		},
		{
			name: "an entry that cannot be read does not count", in: in, file: "decide.go",
			before: "case f.Log == LogUnreadable:", after: "case false:",
			because: "every log of the model can be read",
		},
		{
			name: "a full log does not count", in: in, file: "decide.go",
			before: "case f.Log == LogFull:", after: "case false:",
			because: "no log of the model is full",
		},
		{
			name: "a claim without class or node gets an entry", in: in, file: "decide.go",
			before: "case !f.Wanted && !c.Finalizer:", after: "case false:",
			because: "the model composes no request without a class",
		},
		{
			name: "an entry is written without a request", in: in, file: "decide.go",
			before: "\tcase !f.Composed:\n\t\treturn step(Compose, ReasonProvision)\n", after: "",
			because: "every request of the model is composed at once",
		},
		{
			name: "the PV is not read before a second entry", in: in, file: "decide.go",
			before: "case (!f.First || c.Node != NodeAny) && !f.PV.Known:", after: "case c.Node != NodeAny && !f.PV.Known:",
			world: "PV kept, unique",
		},
		{
			name: "a node does not look whether another has stored the PV", in: in, file: "decide.go",
			before: "case (!f.First || c.Node != NodeAny) && !f.PV.Known:", after: "case !f.First && !f.PV.Known:",
			because: "the volume is stored apart and reclaimed in the model: a detour",
		},
		{
			name: "the claim is not read before a second entry", in: in, file: "decide.go",
			before: "case !f.First && !c.Fresh(now):", after: "case false:",
			world: "PV kept",
		},
		{
			name: "live reads count for ever", in: in, file: "facts.go",
			before: "return !read.IsZero() && now.Sub(read) <= liveFor", after: "return !read.IsZero()",
			world: "not as requested",
		},
		{
			name: "a cache is taken for a live read", in: in, file: "facts.go",
			before: "return p.Known && fresh(p.Read, now)", after: "return p.Known",
			world: "one name, late watches",
		},
		{
			name: "the finalizer of an earlier version stays while the entry is open", in: in, file: "decide.go",
			before: "case f.Claim.Finalizer:\n\t\t// Earlier", after: "case false:\n\t\t// Earlier",
			world: "legacy",
		},
		{
			name: "a volume that is not as requested gets a PV", in: in, file: "decide.go",
			before: "case r.Volume == VolumeMade && r.Unfit:", after: "case false:",
			world: "not as requested",
		},
		{
			name: "an entry of which nothing was made stays open", in: in, file: "decide.go",
			before: "case r.nothingMade():", after: "case false:",
			because: "it is asked with until there is a volume, which is reclaimed: a detour",
		},
		{
			name: "an entry that was never sent is sent although its claim is gone", in: in, file: "decide.go",
			before: "case !r.Begun() && !f.Claim.needsVolume():", after: "case false:",
			because: "the volume gets a PV and is reclaimed: a detour",
		},
		{
			name: "an entry is closed with its claim", in: in, file: "decide.go",
			before: "case !r.Begun() && !f.Claim.needsVolume():", after: "case !f.Claim.needsVolume():",
			world: "claim",
		},
		{
			name: "a volume is made while its deletion may arrive", in: in, file: "decide.go",
			before: "case r.Discarding && !r.Quiet(now, quiet):", after: "case false:",
			world: "not as requested",
		},
		{
			name: "a request for another node is not added", in: in, file: "decide.go",
			before: "case f.Wanted && r.takesNode(f.Claim.SelectedNode):\n\t\treturn step(OpenEntry, ReasonFinish)\n", after: "",
			because: "no driver of the model refuses for ever",
		},
		{
			name: "an entry is closed while calls may arrive", in: in, file: "decide.go",
			before: "case f.named() && !r.Quiet(now, quiet):", after: "case false:",
			world: "late calls",
		},
		{
			name: "an entry is closed by what a cache shows", in: in, file: "decide.go",
			before: "case f.named() && f.namedLive(now):", after: "case f.named():",
			world: "one name, late watches",
		},
		{
			name: "a cached PV that has the volume is not read", in: in, file: "decide.go",
			before: "\tcase f.PV.Names(r.Handle):\n\t\treturn step(ReadPV, ReasonFinish)\n", after: "",
			world: "claim",
		},
		{
			name: "a volume whose name another node's PV has gets none", in: in, file: "decide.go",
			before: "\tcase f.apart():\n\t\treturn step(StoreApart, ReasonFinish)\n", after: "",
			world: "nodes",
		},
		{
			name: "a PV is stored over and over while its name is taken", in: in, file: "decide.go",
			before: "\tcase f.PV.Exists:\n\t\treturn timed(ReasonNameTaken)\n\t}\n\treturn step(StorePV", after: "\t}\n\treturn step(StorePV",
			world: "name taken",
		},
		{
			name: "a PV of another name with the volume does not count", in: in, file: "decide.go",
			before: "case f.Shared || f.PV.Names(f.Record.Handle)", after: "case f.PV.Names(f.Record.Handle)",
			because: "two names never have one volume in the model",
		},
		{
			name: "a PV with an unfit volume does not count", in: in, file: "decide.go",
			before: "case f.Shared || f.PV.Names(f.Record.Handle)", after: "case f.Shared",
			because: "nobody in the model stores a PV for an unfit volume",
		},
		{
			name: "a volume that another claim may have is deleted", in: in, file: "decide.go",
			before: " || !f.Claim.namedAlone():", after: ":",
			world: "one name, not as requested",
		},
		{
			name: "a deletion is not marked in the log", in: in, file: "decide.go",
			before: "case !f.Record.Discarding:", after: "case false:",
			world: "not as requested",
		},
		{
			name: "a volume is deleted without a live read of its PV", in: in, file: "decide.go",
			before: "case !f.PV.Fresh(now):", after: "case false:",
			world: "not as requested",
		},
		{
			name: "a PV that is terminating is taken for stored", in: in, file: "facts.go",
			before: "p.OfDriver && !p.Terminating && !p.Elsewhere", after: "p.OfDriver && !p.Elsewhere",
			because: "its claim waits for it in either case",
		},
		{
			name: "another node's PV is taken for this one's", in: in, file: "facts.go",
			before: "p.OfDriver && !p.Terminating && !p.Elsewhere", after: "p.OfDriver && !p.Terminating",
			because: "its claim waits for it in either case",
		},
		{
			name: "any PV of the name names the volume", in: in, file: "facts.go",
			before: "return p.Exists && p.OfDriver && handle != \"\" && p.Handle == handle", after: "return p.Exists",
			world: "name taken",
		},
		{
			name: "a PV of another volume names this one", in: in, file: "facts.go",
			before: " && handle != \"\" && p.Handle == handle", after: "",
			world: "nodes",
		},
		{
			name: "a volume is stored apart while its claim may bind to it", in: in, file: "facts.go",
			before: "return f.PV.Exists && f.PV.Elsewhere && f.Claim.over()", after: "return f.PV.Exists && f.PV.Elsewhere",
			because: "the claim binds to the PV that has its name in any case",
		},
		{
			name: "a short name is taken for a whole UID", in: in, file: "facts.go",
			before: "return strings.HasSuffix(bare(c.PVName), bare(string(c.UID)))", after: "return strings.HasPrefix(bare(c.PVName), \"pvc\")",
			world: "one name, not as requested",
		},
		{
			name: "InvalidArgument settles while an earlier call may arrive", in: in, file: "record.go",
			before: "q.Settled = first || r.Quiet(began, quiet) && !r.Adopted", after: "q.Settled = first || !r.Adopted",
			world: "late calls",
		},
		{
			name: "InvalidArgument settles a call that was begun too early", in: in, file: "record.go",
			before: "q.Settled = first || r.Quiet(began, quiet)", after: "q.Settled = first || r.Quiet(now, quiet)",
			world: "late calls",
		},
		{
			name: "InvalidArgument settles what an earlier version has begun", in: in, file: "record.go",
			before: "r.Quiet(began, quiet) && !r.Adopted", after: "r.Quiet(began, quiet)",
			world: "legacy, zone",
		},
		{
			name: "a refusal in doubt settles", in: in, file: "record.go",
			before: "case outcome.Refused, outcome.Exhausted, outcome.NotFound:\n\t\tq.Settled = first", after: "case outcome.Refused, outcome.Exhausted, outcome.NotFound:\n\t\tq.Settled = true",
			world: "refused",
		},
		{
			name: "a refusal of the first call does not settle", in: in, file: "record.go",
			before: "case outcome.Refused, outcome.Exhausted, outcome.NotFound:\n\t\tq.Settled = first", after: "case outcome.Refused, outcome.Exhausted, outcome.NotFound:\n\t\tq.Settled = false",
			because: "an entry whose request is refused for ever may stay open",
		},
		{
			name: "a call that was not answered does not count", in: in, file: "record.go",
			before: "case outcome.Uncertain, outcome.InProgress:\n\t\tr.Unanswered = now", after: "case outcome.Uncertain, outcome.InProgress:",
			world: "late calls",
		},
		{
			name: "every call is the first", in: in, file: "record.go",
			before: "\tq.Sent = true\n", after: "",
			world: "refused",
		},
		{
			name: "an earlier process's calls do not count", in: in, file: "record.go",
			before: "r := Record{Claim: claim, Unanswered: now}", after: "r := Record{Claim: claim}",
			world: "late calls",
		},
		{
			name: "an earlier process's requests are new", in: in, file: "record.go",
			before: "MayReschedule: q.MayReschedule, Sent: true}", after: "MayReschedule: q.MayReschedule}",
			world: "refused",
		},
		{
			name: "only the request that was sent last is asked with", in: in, file: "record.go",
			before: "if next := (r.Next + i) % r.Count; !r.Requests[next].Settled {", after: "if next := r.Next; i > 0 {",
			world: "node",
		},
		{
			name: "a request that was just refused is added again", in: in, file: "record.go",
			before: "if q.Settled && (q.Node != node || r.By != i) {", after: "if q.Settled {",
			world: "node",
		},
		{
			name: "an open request is replaced", in: in, file: "record.go",
			before: "if r.Requests[i].Settled || !r.Requests[i].Sent {", after: "if true {",
			world: "node",
		},
		{
			name: "a PV or deletion that was not answered does not count", in: in, file: "record.go",
			before: "func (r *Record) Unheard(now time.Time) { r.Unanswered = now }", after: "func (r *Record) Unheard(time.Time) {}",
			world: "lost answers",
		},
		{
			name: "a deletion settles although a call may arrive", in: in, file: "record.go",
			before: "\tif r.Quiet(began, quiet) {\n\t\tfor", after: "\tif true {\n\t\tfor",
			world: "not as requested",
		},
		{
			name: "a deletion is judged by when it was answered", in: in, file: "learn.go",
			before: "f.Record.Deleted(began, quiet)", after: "f.Record.Deleted(now, quiet)",
			world: "not as requested, unique",
		},
		{
			name: "no call is ever late", in: in, file: "record.go",
			before: "return r.Unanswered.IsZero() || at.Sub(r.Unanswered) >= quiet", after: "return true",
			world: "late calls",
		},
		{
			name: "a half-settled entry is closed", in: in, file: "record.go",
			before: "if !r.Requests[i].Settled {\n\t\t\treturn false\n\t\t}\n\t}\n\treturn r.Count > 0 &&", after: "if r.Requests[i].Settled {\n\t\t\treturn true\n\t\t}\n\t}\n\treturn false && r.Count > 0 &&",
			world: "node",
		},
		{
			name: "an earlier version's claim gets a new entry", in: in, file: "learn.go",
			before: "case f.Claim.Finalizer:", after: "case false:",
			world: "legacy, zone",
		},
		{
			name: "an earlier version's entry is like any other", in: in, file: "learn.go",
			before: "\t\tf.Record.Adopted = true\n", after: "",
			world: "legacy, zone",
		},
		{
			name: "a request that is added makes the entry new", in: in, file: "learn.go",
			before: "case f.Log == LogOpen:\n\t\tf.Record.Add(reply.Request)\n\t", after: "",
			world: "node",
		},
		{
			name: "a PV that may be stored does not count", in: in, file: "learn.go",
			before: "case outcome.Uncertain:\n\t\tf.Record.Unheard(now)\n\tdefault:", after: "default:",
			world: "lost answers",
		},
		{
			name: "a deletion that may arrive does not count", in: in, file: "learn.go",
			before: "\t\t} else {\n\t\t\tf.Record.Unheard(now)\n\t\t}", after: "\t\t}",
			world: "not as requested",
		},
		{
			name: "a mark that may not be written counts", in: in, file: "learn.go",
			before: "f.Record.Discarding = f.Record.Discarding || ok", after: "f.Record.Discarding = true",
			because: "the log of the model is written until it is known to be",
		},
	}
}

// sourcesOfProvisioning are those of what volumes are made from.
func sourcesOfProvisioning() []mutant {
	const in = "pkg/provision"
	const noSources = "the model has no sources of data"
	return []mutant{
		{
			name: "a source that is read is let go", in: in, file: "source.go",
			before: "if !p.awake.Load() || p.inUse(of) {", after: "if !p.awake.Load() {",
			because: noSources,
		},
		{
			name: "a source is let go while another worker begins to protect it", in: in, file: "source.go",
			before: "\tdefer p.protected.turn(of)()\n", after: "",
			because: noSources,
		},
		{
			name: "a source of another provisioner's claim is let go", in: in, file: "source.go",
			before: "others := !p.ours(claim) || p.cfg.Local != nil", after: "others := p.cfg.Local != nil",
			because: noSources,
		},
		{
			name: "a source that cannot be protected is read for the first time", in: in, file: "source.go",
			before: "case err != nil && begun:", after: "case err != nil:",
			because: noSources,
		},
		{
			name: "a source of another namespace needs no grant", in: "pkg/provision/request", file: "source.go",
			before: "if err := f.checkGrant(source); err != nil {", after: "if err := f.checkGrant(source); err != nil && f.CleanUp {",
			because: noSources,
		},
		{
			name: "a grant for another namespace's claims counts", in: "pkg/provision/request", file: "grant.go",
			before: "return slices.Contains(g.From, from) && slices", after: "return (slices.Contains(g.From, from) || true) && slices",
			because: noSources,
		},
		{
			name: "a grant for another object counts", in: "pkg/provision/request", file: "grant.go",
			before: "(to.Name == \"\" || to.Name == ref.Name)", after: "true",
			because: noSources,
		},
		{
			name: "a grant of another namespace counts", in: "pkg/provision/request", file: "grant.go",
			before: "return g.Namespace == source.Namespace && g.allows", after: "return g.allows",
			because: noSources,
		},
		{
			name: "a sweep frees the snapshot of another driver", in: in, file: "sweep.go",
			before: "case s.Content.Driver != f.Driver:", after: "case false:",
			because: noSources,
		},
		{
			name: "a sweep frees a snapshot that is restored", in: in, file: "sweep.go",
			before: "case f.InUse:", after: "case false:",
			because: noSources,
		},
		{
			name: "a sweep without a provisioner does not look at claims", in: in, file: "sweep.go",
			before: "if u[of] {", after: "if false {",
			because: noSources,
		},
	}
}
