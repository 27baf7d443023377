package intree

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// World names bounds: what there is, and how often what can happen does.
type World struct {
	search.Purpose
	// PVs are one or two PVs, each bound to the claim of its number.
	PVs []PV
	// Claims are the names of the claims. One that no PV has in the beginning can be made later; of two
	// with one name, the second can come when the first is gone.
	Claims []string
	// Unprotected: no finalizer at the beginning.
	Unprotected bool
	// Modern: the PV controller is that of 1.31 and newer.
	Modern bool
	// Attached: the volumes are attached in the beginning.
	Attached bool
	Replicas int
	// Lag is by how many changes each watch may be behind; 0: caches are always up to date.
	Lag    int
	Budget Budget
}

// Budget is how often each thing may happen in one history.
type Budget struct {
	// What users do. TakeBack: an administrator takes the claim's UID out of a PV, TakeTwin: out of a
	// twin. Hold: a hold is added or removed. Strip: the finalizer is removed by hand. DeleteTwin:
	// a twin is deleted by hand. RestoreClaim: a claim comes back from a backup, with another UID, and names the PV.
	DeletePV, DeleteClaim, CreateClaim, RestoreClaim, Retain, Delete, TakeBack, TakeTwin, Hold, Strip, DeleteTwin uint8
	// Foreign: another program adds the finalizer to a static PV. Migrate: migration is switched on or off. Upgrade: the
	// controller manager is replaced by one of the other kind.
	Foreign, Migrate, Upgrade uint8
	// What breaks: processes of ours that end, and those that go on for a while although another leads;
	// calls to the API server of which nothing is heard, done or not; processes that are slow; plugins
	// that fail; the controller manager, which ends, or acts on a cache of claims that is behind.
	Crash, Overlap, API, Slow, Plugin, Controller, Stale uint8
}

// Worlds are the bounds that are explored.
func Worlds() []World {
	worlds := slices.Clone(table)
	for i := range worlds {
		w := &worlds[i]
		w.Replicas, w.Lag = max(w.Replicas, 1), max(w.Lag, 1)
		if w.PVs == nil {
			w.PVs = []PV{{Name: "a", Claim: "data"}}
		}
		if w.Claims == nil {
			w.Claims = []string{"data"}
		}
	}
	return worlds
}

// Names of claims: one that is created again under its name, and two.
var anew, two = []string{"data", "data"}, []string{"data", "logs"}

// table has the explored worlds.
var table = []World{
	// One PV, and the actions of users on it and its claim.
	{Purpose: search.About("twin",
		"a PV is deleted before or after its claim; calls fail or lose their answer, and the process ends"),
		Unprotected: true, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Crash: 1, API: 1}},
	{Purpose: search.About("twin, calls fail", "calls of the API server that fail or lose their answer, twice"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, API: 2}},
	{Purpose: search.About("twin, plugin fails", "a plugin that fails twice"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Plugin: 2}},
	{Purpose: search.About("twin, policy", "a policy that is turned to Retain and back, and calls that fail"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Retain: 1, Delete: 1, API: 1}},
	{Purpose: search.About("twin, held", "a PV that is held, and released again"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Hold: 2}},
	{Purpose: search.About("twin, taken back", "an administrator gives the PV to the claim that was made anew"),
		Claims: anew, Budget: Budget{DeletePV: 1, DeleteClaim: 2, CreateClaim: 1, TakeBack: 1}},
	{Purpose: search.About("twin, taken",
		"an administrator gives the twin, in place of the PV, to the claim that was made anew"),
		Claims: anew, Budget: Budget{DeletePV: 1, DeleteClaim: 1, CreateClaim: 1, TakeTwin: 1}},
	{Purpose: search.About("twin, claim anew", "a claim that is made again under its name, and a process that ends"),
		Claims: anew, Budget: Budget{DeletePV: 1, DeleteClaim: 1, CreateClaim: 1, Crash: 1}},
	{Purpose: search.About("twin, restored",
		"a claim that is restored with another UID and names the PV, while the process ends"),
		Claims: anew, Budget: Budget{DeletePV: 1, DeleteClaim: 2, RestoreClaim: 1, Crash: 1}},

	// One PV, and faults or other programs.
	{Purpose: search.About("twin, slow", "a process that stalls between its looks and its write, while the PV is kept"),
		Claims: anew, Budget: Budget{DeletePV: 1, DeleteClaim: 1, CreateClaim: 1, Retain: 1, Slow: 1}},
	{Purpose: search.About("twin, controller ends",
		"a controller manager that ends in the middle of a deletion, whose plugin fails too"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Controller: 1, Plugin: 1}},
	{Purpose: search.About("twin, stale controller", "a controller manager that does not know yet that a claim is gone"),
		Claims: anew, Budget: Budget{DeletePV: 1, DeleteClaim: 1, CreateClaim: 1, Stale: 2}},
	{Purpose: search.About("twin, by hand", "a user removes the finalizer, or deletes the twin"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Strip: 1, DeleteTwin: 1}},
	{Purpose: search.About("twin, failed by hand", "a plugin that fails, and a user who deletes the twin"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Plugin: 1, DeleteTwin: 1}},
	{Purpose: search.About("twin, attached", "a volume that is attached for a while"),
		Attached: true, Budget: Budget{DeletePV: 1, DeleteClaim: 1, API: 1}},
	{Purpose: search.About("twin, migration", "migration is switched on, off and on again"),
		Unprotected: true, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Migrate: 3}},
	{Purpose: search.About("twin, replicas", "two replicas, of which the leading one ends"),
		Replicas: 2, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Crash: 1}},

	// Other PVs, and other controller managers.
	{Purpose: search.About("twin, static PV", "a PV of the same volume that a user created and keeps"), Claims: two,
		PVs:    []PV{{Name: "a", Claim: "data"}, {Name: "b", Claim: "logs", Static: true}},
		Budget: Budget{DeletePV: 1, DeleteClaim: 2}},
	{Purpose: search.About("twin, static PV, restored",
		"the same, and the claim of that PV is restored with another UID and names it"),
		Claims: []string{"data", "logs", "logs"},
		PVs:    []PV{{Name: "a", Claim: "data"}, {Name: "b", Claim: "logs", Static: true}},
		Budget: Budget{DeletePV: 1, DeleteClaim: 2, RestoreClaim: 1}},
	{Purpose: search.About("twin, modern controller",
		"the controller manager of 1.31 and newer, and a policy that is turned"),
		Modern: true, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Retain: 1, Delete: 1}},
	{Purpose: search.About("twin, modern migration", "the same, and migration that is switched on"),
		Modern: true, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Migrate: 1}},
	{Purpose: search.About("twin, upgrade", "a controller manager that is upgraded across 1.31"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Upgrade: 1}},
	{Purpose: search.About("twin, stranger", "another program adds the finalizer to one PV, and does nothing else"),
		Claims: two, PVs: []PV{{Name: "a", Claim: "data"}, {Name: "b", Claim: "logs", Disk: 1, Static: true}},
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Foreign: 1, Plugin: 1}},
	{Purpose: search.About("twin, stranger, kept", "the same, and a policy that is turned"), Claims: two,
		PVs:    []PV{{Name: "a", Claim: "data"}, {Name: "b", Claim: "logs", Disk: 1, Static: true}},
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Foreign: 1, Retain: 1}},

	// Worlds for a night, not for each change.
	{Purpose: search.Deep("deep: twin", "caches that lag by more, while everything breaks"),
		Lag: 2, Unprotected: true, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Crash: 1, API: 1, Plugin: 1, Controller: 1}},
	{Purpose: search.Deep("deep: twin, policy",
		"a policy that is turned, a claim that is made again, and a process that ends"), Claims: anew,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, CreateClaim: 1, Retain: 2, Delete: 1, TakeBack: 1, Crash: 1, Slow: 1}},
	{Purpose: search.Deep("deep: twin, taken",
		"an administrator gives the twin to the claim that was made anew, and that goes too"),
		Claims: anew, Budget: Budget{DeletePV: 1, DeleteClaim: 2, CreateClaim: 1, TakeTwin: 1}},
	{Purpose: search.Deep("deep: twin, plugin fails, crash", "a plugin that fails, and a process that ends"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Plugin: 1, Crash: 1}},
	{Purpose: search.Deep("deep: twin, one disk", "two PVs of one volume"), Claims: []string{"data", "logs"},
		PVs: []PV{{Name: "a", Claim: "data"}, {Name: "b", Claim: "logs"}}, Budget: Budget{DeletePV: 1, DeleteClaim: 2}},
	{Purpose: search.Deep("deep: twin, one disk, restored",
		"two PVs of one volume, both deleted, and the claim of one is restored with another UID and names it"),
		Claims: []string{"data", "logs", "logs"}, PVs: []PV{{Name: "a", Claim: "data"}, {Name: "b", Claim: "logs"}},
		Budget: Budget{DeletePV: 2, DeleteClaim: 2, RestoreClaim: 1}},
	{Purpose: search.Deep("deep: twin, upgrade",
		"a controller manager that is upgraded across 1.31, and downgraded again"),
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Upgrade: 2, Crash: 1}},
	{Purpose: search.Deep("deep: twin, modern controller",
		"the controller manager of 1.31 and newer, before it has protected the PV"),
		Modern: true, Unprotected: true, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Retain: 1, Delete: 1}},
	{Purpose: search.Deep("deep: twin, two leaders",
		"a leader that does not notice that another leads, and calls that fail"),
		Replicas: 2, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Overlap: 1, API: 1, Plugin: 1, Retain: 1}},
}
