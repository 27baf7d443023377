package main

// scope is where guards are taken out.
type scope struct {
	// folder is the package's.
	folder string
	// files, except and funcs are patterns of path.Match, separated by spaces: the files, the omitted files, and their
	// functions, with methods as Type.name. Empty files or funcs stand for all.
	files, except, funcs string
	// statements are dropped, too: a missing note, request or wake-up. For code that acts.
	statements bool
	// elements of lists and maps are dropped, too.
	elements bool
	// also are the folders of other packages whose tests may notice, too: packages that drive an engine.
	also string
	// live, if set, chooses the tests against a real API server that alone are to notice.
	live string
}

// fields are removed from struct literals: they bind a write to the read state, or end a wait.
const fields = "UID ResourceVersion Preconditions Timed Over Gone DryRun FailurePolicy Logged"

// words are the files of an engine that say things to people, and decide nothing.
const words = "doc.go reason.go action.go explain.go"

// scopes are all code that decides about, deletes, releases or takes over a user's objects. If two scopes have a
// function, the first counts. Engines have all files in scope, so that a new file is covered.
var scopes = []scope{
	{folder: "internal/engine/provision", except: words, statements: true, also: "pkg/provision"},
	{folder: "pkg/provision", files: "observe.go", funcs: "run.* logOf inherited *.stored *.mayAct"},
	{folder: "pkg/provision", files: "execute.go",
		funcs: "run.confirmEntry run.openEntry run.closeEntry run.deleteVolume run.storePV"},
	{folder: "pkg/provision", files: "source.go",
		funcs: "*.freeSource *.freeClaim *.otherDriver *.freeSnapshot *.inUse *.IfUnused *.holdSource"},
	{folder: "pkg/provision/internal/caches", files: "claims.go", funcs: "IsTerminatingSource"},
	{folder: "pkg/provision/sources", files: "sweep.go"},
	{folder: "pkg/provision/request", files: "source.go", funcs: "SourceOf typedSourceOf groupOf namespaceOf " +
		"kindOf nameOf withUID Facts.sourceRef Facts.contentSource Facts.checkGrant Grant.*"},
	{folder: "internal/engine/inflight", except: words, statements: true, also: "pkg/provision/inflight"},
	{folder: "pkg/provision/inflight", files: "plan.go state.go shard.go topology.go old.go"},
	{folder: "pkg/provision/inflight", files: "writer.go locate.go entry.go", funcs: "ownerOf *.setOwner *.findOwner " +
		"*.disown Config.belonging Config.strays *.FindStrays *.SourceInFlight *.isFrom"},

	{folder: "internal/engine/reclaim", except: words, statements: true, also: "pkg/reclaim"},
	{folder: "pkg/volume", files: "pv.go node.go", also: "pkg/reclaim"},
	{folder: "pkg/reclaim", files: "call.go", statements: true},
	{folder: "pkg/reclaim", files: "cluster.go",
		funcs: "*.patchFinalizers *.readClaim *.readPV *.readSecret *.listNodes attachedPV"},
	{folder: "pkg/reclaim", files: "work.go", statements: true,
		funcs: "*.work *.run *.moment *.begin *.answer *.abandon *.protect *.*Protect"},
	{folder: "pkg/reclaim", files: "watch.go", funcs: "*.recordPV *.Added *.Updated *.Deleted",
		statements: true},
	{folder: "pkg/reclaim", files: "brake.go", funcs: "*.syncBrake"},
	{folder: "pkg/reclaim", files: "admission.go", funcs: "*.noteMissed *.missed"},
	{folder: "pkg/leadership", files: "clock.go guard.go", statements: true},
	{folder: "cmd/internal/leader", files: "leader.go"},

	{folder: "internal/engine/intree", except: words, statements: true, also: "pkg/intree"},
	{folder: "pkg/intree", files: "execute.go", funcs: "*.carryOut *.make policyOf", statements: true},
	{folder: "pkg/intree", files: "cluster.go", funcs: "*.countAttachments *.patchFinalizers *.setPolicy"},

	{folder: "internal/engine/pvclaim", statements: true},
	{folder: "internal/engine/session", statements: true},
	{folder: "internal/controller", files: "session.go release.go", statements: true},
	{folder: "internal/events", files: "recorder.go", funcs: "*.ReportEnd", statements: true},

	{folder: "internal/objects", except: words, also: "internal/engine/podsafety", statements: true},
	{folder: "internal/engine/podsafety", except: words, statements: true},
	{folder: "pkg/podsafety", statements: true, files: "claims.go forcepolicy.go nodes.go pods.go " +
		"release.go volumelocks.go"},
	{folder: "pkg/podsafety", files: "volumereads.go", funcs: "Controller.* fenceReads.*", statements: true},
	{folder: "pkg/podsafety", files: "observer.go", funcs: "observer.[^f]* observer.first namespaceOf", statements: true},
	{folder: "pkg/podsafety", files: "cluster.go controller.go", funcs: "Controller.call Controller.failed",
		statements: true},
	{folder: "pkg/podsafety", files: "cluster.go",
		funcs: "*.read* *.patch* *.force* *.each* patch volumeOf lockOf volumeLock.* holder.* lockServer.*"},
	{folder: "pkg/admission/podsafety", files: "podsafety.go", statements: true},
	{folder: "internal/engine/singlenode", except: words, statements: true},
	{folder: "pkg/singlenode", files: "asking.go locks.go pods.go turns.go", statements: true},
	{folder: "pkg/singlenode", files: "users.go", funcs: "newUsers users.* Controller.*", statements: true},
	{folder: "pkg/singlenode", files: "cluster.go", funcs: "Controller.* answered.sent", statements: true},
	{folder: "pkg/singlenode", files: "observer.go", funcs: "after.* observer.[^f]* observer.first", statements: true},
	{folder: "pkg/singlenode", files: "release.go", funcs: "*.releaseAll *.pass *.pod *.unproven *.claims *.removing",
		statements: true},
	{folder: "pkg/singlenode", files: "cluster.go", funcs: "*.read* *.patch* *.each*"},

	{folder: "internal/engine/statefulset", except: words, statements: true},
	{folder: "pkg/statefulset", files: "claims.go execute.go index.go sets.go", statements: true},
	{folder: "pkg/statefulset", files: "observer.go", funcs: "observer.[^f]* observer.first observer.forget* " +
		"matters", statements: true},
	{folder: "pkg/statefulset", files: "release.go", funcs: "*.releaseAll *.pass *.claim *.set", statements: true},
	{folder: "pkg/statefulset", files: "cluster.go", funcs: "*.read* *.patch* *.delete*"},

	{folder: "internal/engine/fencing", except: words, statements: true},
	{folder: "pkg/fencing/agents", statements: true},
	{folder: "internal/nodefence", funcs: "Changes.*", statements: true},
	{folder: "pkg/fencing", files: "cluster.go fence.go policy.go policyfacts.go release.go", statements: true},
	{folder: "pkg/fencing", files: "policycounts.go", statements: true,
		funcs: "Selects viewOf countFences candidates countPods worth.* WaitingOf tolerationOf budgetOf isBudgeted"},
	{folder: "pkg/fencing", files: "observer.go",
		funcs: "observer.[^f]* observer.fenceChanged observer.first observer.forget*", statements: true},

	{folder: "pkg/inuse", also: "pkg/inuse/pvc", files: "decide*.go held.go"},
	{folder: "pkg/inuse", also: "pkg/inuse/pvc", files: "tracker.go", statements: true},
	{folder: "pkg/inuse", also: "pkg/inuse/pvc", files: "execute.go",
		funcs: "session.* Guard.send Guard.patch outcomeOf", statements: true},
	{folder: "pkg/inuse", also: "pkg/inuse/pvc", files: "release.go",
		funcs: "*.releaseAll *.findOut *.hear *.stands *.releasePass *.bare"},
	{folder: "pkg/inuse/pvc", files: "decide*.go record.go"},
	{folder: "pkg/inuse/pvc", files: "batches.go users.go watch.go release.go", statements: true},
	{folder: "pkg/inuse/pv", files: "decide*.go record.go"},
	{folder: "internal/kube", files: "finalizers.go metadata.go read.go", elements: true, also: "pkg/reclaim pkg/intree"},

	{folder: "pkg/leaks", files: "decide.go"},
	{folder: "pkg/leaks", files: "remediation.go",
		funcs: "decideRemediation situation.goOn isRemediation step.*"},
	{folder: "pkg/leaks", files: "tracker.go", funcs: "*.begin *.seen *.fail *.remember *.judge", statements: true},
	{folder: "pkg/leaks", files: "tracker.go", funcs: "*.complete keyOf"},
	{folder: "pkg/leaks", files: "survey.go", funcs: "readAll survey.* isEphemeral", statements: true},
	{folder: "pkg/leaks", files: "list.go"},

	{folder: "pkg/capacity", files: "decide*.go facts.go", funcs: "Decide drop Facts.*"},
	{folder: "pkg/capacity", files: "observe.go",
		funcs: "*.objectsAt *.classAt *.observe *.answered *.asking *.wrote *.deleting", statements: true},
	{folder: "pkg/capacity", files: "execute.go", funcs: "*.remove *.wrote", statements: true},

	{folder: "pkg/admission", files: "rule.go"},
	{folder: "pkg/admission", files: "handler.go review.go probe.go"},
	{folder: "pkg/admission", files: "release.go", statements: true},
	{folder: "pkg/admission", files: "lists.go",
		funcs: "driverLists.remove driverLists.forget driversToRemove driverLists.write removalPatch driverList.lists " +
			"listPart.lists", elements: true},
	{folder: "pkg/admission", files: "policy.go", funcs: "conditions", elements: true, live: "TestThePolicy"},
	{folder: "pkg/admission", files: "webhooks.go", funcs: "PodWebhooks", elements: true, live: "TestTheWebhooks"},
	{folder: "pkg/admission", files: "webhooks.go", funcs: "PVWebhooks"},
	{folder: "pkg/admission", files: "policy.go", funcs: "driversIn Policy listOf"},
	{folder: "pkg/admission/certs", files: "decide*.go state.go external.go"},
	{folder: "pkg/admission/certs", files: "rotator.go", funcs: "*.observe *.issuePair *.step outdated",
		statements: true},
	{folder: "pkg/admission/certs", files: "cluster.go", funcs: "secretPatch bundlePatch", elements: true},

	{folder: "pkg/csidriver", files: "driver.go calls.go", funcs: "*.CreateVolume *.DeleteVolume *.mayAct send CheckName"},
	{folder: "pkg/csidriver", files: "errors.go"},
	{folder: "pkg/csidriver/errclass", files: "outcome.go"},

	{folder: "internal/explain/volumes", files: "decide.go release.go"},
	{folder: "cmd/kubectl-reclaim/internal/cli", files: "change.go",
		funcs: "*.Dry *.Tries *.MustAsk *.MustType *.Confirm"},
	{folder: "cmd/kubectl-reclaim/internal/confirm", files: "deletepod.go", funcs: "*.delete *.forceDelete " +
		"*.again *.confirmPod *.patchConfirmation *.deleteNow *.tryForceDelete isGone isRefused"},
}

// worlds are the worlds of the model to try, in this order, with a mutant that the tests of its package do not notice.
var worlds = map[string][]string{
	"internal/engine/provision": {
		"claim", "not as requested", "late calls", "PV kept", "one name, late watches", "nodes", "refused",
		"node", "name taken", "lost answers", "PV deleted", "claim, two leaders", "log full", "node gone", "Secret",
		"driver replaced, unsure",
	},
	"internal/engine/reclaim": {
		"orders", "static", "attached", "shared", "restored", "unprotected", "held", "stripped", "contested", "companion",
		"former leader", "unprotected, restored", "shared, restored", "restored, policy turned",
	},
	"internal/engine/intree": {
		"twin", "twin, policy", "twin, calls fail", "twin, slow", "twin, static PV", "twin, restored", "twin, taken back",
		"twin, attached", "twin, held", "twin, migration", "twin, taken", "twin, plugin fails", "twin, by hand",
		"twin, failed by hand",
	},
	"internal/objects": {"joint, no locks", "joint, Node deleted", "joint, completed"},
	"pkg/inuse/pvc":    {"joint, no locks", "joint, ephemeral, foreground"},
	"internal/engine/podsafety": {
		"hold, empty statuses", "hold, out of service", "hold, stale watch", "hold, older kubelet", "hold, attach, container",
		"hold, reboot", "hold, attach", "hold, confirmed", "hold, never bound", "hold, calls fail", "hold", "hold, claim",
		"hold, ephemeral", "hold, withdrawn", "hold, refused",
		"hold, refused again",
		"hold, fenced", "hold, Node deleted, no pod GC", "hold, rebooted by a fence", "hold, added",
		"hold, attach, out of service", "hold, two leaders", "hold, unmount", "hold, Node deleted",
		"joint, volumes, completed", "joint, collected before unmount", "joint, ephemeral, built in",
		"joint, attached, another machine fenced",
	},
	"internal/engine/statefulset": {
		"set, calls fail", "set, deleted, turned", "set, calls fail, field", "set, other owner, field",
		"set, other controller", "set, two ordinals, field", "set, turned, lag", "set, other owner", "set, deleted, kept",
		"set, hold, field", "set, field turned", "set, claim deleted", "set, stripped", "set, hold", "set, never used",
		"set, late calls, field", "set, contested", "set, annotation turned", "set, gate", "set, two leaders, field",
		"set, annotation, parallel", "set, names collide", "set, start, annotation", "set, late calls", "set, deleted, field",
		"set, pod deleted, lag", "set, deleted, lag", "set, annotation", "set, uninstalled",
	},
	"internal/engine/fencing": {
		"fence, calls fail", "fence policy, zones", "fence policy, limit", "fence policy, a zone is gone",
		"fence policy, storm", "fence policy, flapping", "fence policy, by hand", "fence, control plane", "fence, chain",
		"fence, lists", "fence, lists, reboot, then power",
		"fence, remediation", "fence, agents fail", "fence, late requests", "fence, lying agent", "fence, ended",
		"fence, power", "fence", "fence, reboot", "fence, for a policy", "fence, when released", "fence, lag",
	},
	"internal/engine/singlenode": {
		"lock, not held", "lock, two claims", "lock, two claims, created again", "lock", "lock, node preset",
		"lock, fenced, opted in", "lock, Job", "lock, uninstalled", "lock, bound late", "lock, annotation removed",
		"lock, calls fail", "lock, claim created again", "lock, opted in", "lock, two leaders", "lock, queued",
		"joint, volumes, completed", "joint, ephemeral, foreground",
	},
}
