package main

// scope is where guards are taken out.
type scope struct {
	// folder is the package's.
	folder string
	// files and funcs are patterns of path.Match, separated by spaces; a method is Type.name. No funcs are all.
	files, funcs string
	// statements are dropped, too: what is not noted, not sent, not woken. For code that acts.
	statements bool
	// elements of lists and maps are dropped, too.
	elements bool
	// live, if set, chooses the tests against a real API server that alone are to notice.
	live string
}

// fields are those of struct literals that are taken out: what binds a write to what was read, what ends a wait.
const fields = "UID ResourceVersion Preconditions Timed Over DryRun FailurePolicy Logged"

// scopes are all code that decides about, deletes, releases or takes over what belongs to a user. Of two that have
// a function, the first counts.
var scopes = []scope{
	{folder: "pkg/internal/engine/provisioning", files: "decide*.go facts.go record.go learn.go", statements: true},
	{folder: "pkg/provision", files: "observe.go", funcs: "run.* logOf inherited *.stored *.mayAct"},
	{folder: "pkg/provision", files: "execute.go",
		funcs: "run.confirm run.openEntry run.closeEntry run.deleteVolume run.storePV"},
	{folder: "pkg/provision", files: "source.go",
		funcs: "*.freeSource *.freeClaim *.freeSnapshot *.inUse *.IfUnused *.holdSource"},
	{folder: "pkg/provision/internal/caches", files: "claims.go", funcs: "IsTerminatingSource"},
	{folder: "pkg/provision/sources", files: "sweep.go release.go"},
	{folder: "pkg/provision/request", files: "grant.go source.go"},
	{folder: "pkg/provision/inflight", files: "plan.go state.go shard.go"},

	{folder: "pkg/reclaim", files: "decide*.go snapshot.go rules.go node.go"},
	{folder: "pkg/reclaim", files: "call.go", funcs: "*.ask run.* answer.* call.*", statements: true},
	{folder: "pkg/reclaim", files: "notes.go endings.go", statements: true},
	{folder: "pkg/reclaim", files: "execute.go", funcs: "run.look* run.next *.afterTrouble", statements: true},
	{folder: "pkg/reclaim", files: "observe.go", statements: true},
	{folder: "pkg/reclaim", files: "events.go", funcs: "reports.mayTell"},
	{folder: "pkg/lease", files: "clock.go guard.go", statements: true},
	{folder: "cmd/internal/leader", files: "leader.go"},

	{folder: "pkg/intree", files: "decide*.go snapshot.go twin.go"},
	{folder: "pkg/intree", files: "notes.go observe.go", statements: true},
	{folder: "pkg/intree", files: "execute.go", funcs: "run.look* run.read* run.makeTwin run.patch", statements: true},

	{folder: "pkg/inuse", files: "decide*.go held.go peer.go"},
	{folder: "pkg/inuse", files: "notes.go", statements: true},
	{folder: "pkg/inuse", files: "execute.go", funcs: "*.proveAlone *.patch *.send outcomeOf", statements: true},
	{folder: "pkg/inuse", files: "execute.go", funcs: "*.work"},
	{folder: "pkg/inuse", files: "release.go", funcs: "*.releaseAll *.findOut *.hear *.stands *.releasePass *.bare"},
	{folder: "pkg/inuse/pvc", files: "decide*.go record.go"},
	{folder: "pkg/inuse/pvc", files: "batches.go users.go watch.go release.go", statements: true},
	{folder: "pkg/inuse/pv", files: "decide*.go record.go"},

	{folder: "pkg/leaks", files: "decide*.go remedy_decide.go"},
	{folder: "pkg/leaks", files: "memory.go", funcs: "*.begin *.seen *.fail *.remember *.judge", statements: true},
	{folder: "pkg/leaks", files: "memory.go", funcs: "*.complete keyOf"},
	{folder: "pkg/leaks", files: "survey.go", funcs: "look survey.* isEphemeral", statements: true},
	{folder: "pkg/leaks", files: "list.go"},

	{folder: "pkg/capacity", files: "decide*.go snapshot.go"},
	{folder: "pkg/capacity", files: "observe.go",
		funcs: "*.objectsAt *.classAt *.observe *.answered *.asking *.wrote *.ends", statements: true},
	{folder: "pkg/capacity", files: "cluster.go", funcs: "*.remove"},

	{folder: "pkg/admission", files: "rule.go"},
	{folder: "pkg/admission", files: "handler.go review.go await.go"},
	{folder: "pkg/admission", files: "release.go", statements: true},
	{folder: "pkg/admission", files: "unlist.go",
		funcs: "lists.unlist unlisted lists.write unlistPatch list.lists", elements: true},
	{folder: "pkg/admission", files: "policy.go", funcs: "conditions", elements: true, live: "TestThePolicy"},
	{folder: "pkg/admission", files: "webhooks.go", funcs: "PodWebhooks", elements: true, live: "TestTheWebhooks"},
	{folder: "pkg/admission", files: "policy.go", funcs: "driversIn Policy"},
	{folder: "pkg/admission/certs", files: "decide*.go state.go"},
	{folder: "pkg/admission/certs", files: "keeper.go", funcs: "*.observe *.make *.step untrusting", statements: true},
	{folder: "pkg/admission/certs", files: "cluster.go", funcs: "storePatch trustPatch", elements: true},

	{folder: "pkg/explain", files: "decide.go release.go"},
}

// worlds are those of the model that are tried, in this order, with a mutant that the tests of its package do not
// notice.
var worlds = map[string][]string{
	"pkg/internal/engine/provisioning": {
		"claim", "not as requested", "late calls", "PV kept", "one name, late watches", "nodes", "legacy, zone", "refused",
		"node", "name taken", "lost answers", "PV deleted", "claim, two leaders",
	},
	"pkg/reclaim": {
		"orders", "static", "attached", "shared", "restored", "unprotected", "held", "stripped", "contested", "companion",
		"former leader", "unprotected, restored", "shared, restored",
	},
	"pkg/intree": {
		"twin", "twin, policy", "twin, calls fail", "twin, slow", "twin, static PV", "twin, restored", "twin, taken back",
		"twin, attached", "twin, held", "twin, migration", "twin, taken", "twin, plugin fails", "twin, by hand",
		"twin, failed by hand",
	},
}
