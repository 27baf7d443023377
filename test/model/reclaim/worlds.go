package reclaim

import (
	"slices"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// World names bounds: what there is, and how often what can happen does.
type World struct {
	search.Purpose
	Role volume.Role
	// PVs are one or two. Two of one Handle share a volume.
	PVs      []PV
	Replicas int
	// Lag is by how many changes a watch may be behind; 0: caches are always up to date.
	Lag int
	// Peer: a provisioner without KEP-2644 works beside.
	Peer bool
	// WatchClaims: the sidecar watches claims, as one that provisions does.
	WatchClaims bool
	Budget      Budget
}

// PV is a PV of a world, Bound to its claim in the beginning.
type PV struct {
	Name, Handle string
	Dynamic      bool
	Policy       volume.Policy
	// Unprotected: our finalizer is not on it in the beginning.
	Unprotected bool
	// Late: it is not there in the beginning.
	Late bool
}

func (p PV) claimName() string { return "claim-of-" + p.Name }

// Budget is how often each thing may happen in one history.
type Budget struct {
	// What users do.
	DeletePV, DeleteClaim, RecreateClaim, Flip, Strip, TakeBack, CreatePV, Attach, Hold uint8
	// RestoreClaim: a claim comes back from a backup, with another UID, and names the PV. BindAgain: its UID is
	// written into the PV's claimRef.
	RestoreClaim, BindAgain uint8
	// Misjudge: the PV controller takes a claim that lives for gone. It asks the API server
	// today; older ones believed their cache.
	Misjudge uint8
	// What breaks: processes that end, and those that go on for a while although another
	// leads, without a clock that says so (Overlap) or with one (Pause); calls to the API server and the driver that
	// fail, done or not; watches that start anew; processes that are slow.
	Crash, Overlap, Pause, API, RPC, Relist, Slow uint8
}

// provisioned and static return PVs with a volume of their own.
func provisioned(name string) PV {
	return PV{Name: name, Handle: "vol-" + name, Dynamic: true, Policy: volume.PolicyDelete}
}

func static(name string) PV {
	p := provisioned(name)
	p.Dynamic = false
	return p
}

func (p PV) with(edit func(*PV)) PV {
	edit(&p)
	return p
}

func unprotectedPV(p *PV) { p.Unprotected = true }
func retained(p *PV)      { p.Policy, p.Unprotected = volume.PolicyRetain, true }
func comesLate(p *PV)     { p.Late = true }
func sharesVolume(p *PV)  { p.Handle = "vol-a" }

// Worlds are the bounds that are explored.
func Worlds() []World {
	worlds := slices.Clone(table)
	for i := range worlds {
		w := &worlds[i]
		w.Replicas = max(w.Replicas, 1)
		if w.Role == volume.RoleUnknown {
			w.Role = volume.RoleOwner
		}
	}
	return worlds
}

func one(p PV) []PV { return []PV{p} }

// table has the explored worlds.
var table = []World{
	// One PV, and the actions of users on it and its claim.
	{Purpose: search.About("orders",
		"both orders of deletion, the policy turned and turned back, calls that fail or lose their answer"),
		PVs: one(provisioned("a")), Lag: 3,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 2, Misjudge: 1, API: 1, RPC: 1}},
	{Purpose: search.About("static", "a static PV, the claim made anew, the volume taken back"), PVs: one(static("a")),
		Lag: 3, Budget: Budget{DeletePV: 1, DeleteClaim: 2, RecreateClaim: 1, Flip: 1, TakeBack: 1, API: 1}},
	{Purpose: search.About("restored",
		"a claim that is restored with another UID, names the PV, and may be bound to it again"), PVs: one(provisioned("a")),
		Lag: 3, Budget: Budget{DeletePV: 1, DeleteClaim: 2, RestoreClaim: 1, BindAgain: 1, API: 1, RPC: 1}},
	{Purpose: search.About("restored, policy turned",
		"a claim that is restored with another UID, the policy turned, the claim deleted again"),
		PVs: one(provisioned("a")), Lag: 2, Budget: Budget{DeletePV: 1, DeleteClaim: 2, RestoreClaim: 1, Flip: 1}},
	{Purpose: search.About("unprotected, restored",
		"the same, of a PV that is deleted before it can be protected (rule 6)"),
		PVs: one(provisioned("a").with(unprotectedPV)), Lag: 2,
		Budget: Budget{DeletePV: 1, DeleteClaim: 2, RestoreClaim: 1, Slow: 1}},
	{Purpose: search.About("unprotected", "a PV that is deleted before it can be protected (rule 6)"),
		PVs: one(provisioned("a").with(unprotectedPV)), Lag: 3,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 2, API: 1, RPC: 1, Slow: 1}},
	{Purpose: search.About("unprotected, brought in again", "a PV that vanished, and another for the same volume"),
		PVs: []PV{static("a").with(unprotectedPV), static("b").with(sharesVolume).with(comesLate)}, Lag: 2,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, CreatePV: 1, RecreateClaim: 1, RPC: 1}},
	{Purpose: search.About("flipped and deleted", "a PV with policy Retain that is turned to Delete and deleted"),
		PVs: one(provisioned("a").with(retained)), Lag: 3, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 3, API: 2}},
	{Purpose: search.About("attached", "a pod has the volume attached, perhaps twice, while watches lag"),
		PVs: one(provisioned("a")), Lag: 3, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Attach: 2, Flip: 1, API: 1}},

	// A sidecar that watches claims, and reads none whose end it has seen.
	{Purpose: search.About("claims watched", "both orders of deletion, the policy turned, a watch that starts anew"),
		PVs: one(provisioned("a")), Lag: 2, WatchClaims: true,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 1, Misjudge: 1, API: 1, Relist: 1}},
	{Purpose: search.About("claims watched, restored",
		"a claim that is restored with another UID, names the PV, and may be bound to it again"), PVs: one(provisioned("a")),
		Lag: 2, WatchClaims: true,
		Budget: Budget{DeletePV: 1, DeleteClaim: 2, RestoreClaim: 1, BindAgain: 1, Relist: 1, Slow: 1}},
	{Purpose: search.About("claims watched, static", "a static PV, the claim made anew, the volume taken back"),
		PVs: one(static("a")), Lag: 2, WatchClaims: true,
		Budget: Budget{DeletePV: 1, DeleteClaim: 2, RecreateClaim: 1, TakeBack: 1, Relist: 1}},
	{Purpose: search.About("claims watched, restarts", "two replicas, of which the leading one ends, or is paused"),
		PVs: one(provisioned("a")), Replicas: 2, Lag: 1, WatchClaims: true,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Crash: 1, Pause: 1}},

	// Two PVs of one volume.
	{Purpose: search.About("shared", "two static PVs of one volume"),
		PVs: []PV{static("a"), static("b").with(sharesVolume)}, Lag: 1, Budget: Budget{DeletePV: 1, DeleteClaim: 2, Flip: 1}},
	{Purpose: search.About("shared, restored",
		"two static PVs of one volume, and a claim that is restored with another UID"),
		PVs: []PV{static("a"), static("b").with(sharesVolume)}, Budget: Budget{DeletePV: 1, DeleteClaim: 3, RestoreClaim: 1}},
	{Purpose: search.About("shared with Retain", "two static PVs of one volume, one with policy Retain"),
		PVs: []PV{static("a"), static("b").with(sharesVolume).with(retained)}, Lag: 1,
		Budget: Budget{DeletePV: 1, DeleteClaim: 2, Flip: 1}},
	{Purpose: search.About("shared, held", "two static PVs of one volume, which a person holds by one of them"),
		PVs: []PV{static("a"), static("b").with(sharesVolume)}, Budget: Budget{DeletePV: 1, DeleteClaim: 2, Hold: 2}},
	{Purpose: search.About("shared and attached",
		"two static PVs of one volume, which a pod has attached under one of them"),
		PVs: []PV{static("a"), static("b").with(sharesVolume)}, Budget: Budget{DeletePV: 1, DeleteClaim: 2, Attach: 1}},

	// Processes that begin, lead and end.
	{Purpose: search.About("replicas", "two replicas, of which the leading one ends at any moment"),
		PVs: one(provisioned("a")), Replicas: 2, Lag: 2, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Crash: 2, Flip: 1}},
	{Purpose: search.About("two leaders", "a leader that does not notice that another leads"), PVs: one(provisioned("a")),
		Replicas: 2, Lag: 2, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Overlap: 1, Flip: 1, RPC: 1}},
	{Purpose: search.About("former leader",
		"a leader that is paused for longer than its lease, and continues with what it knows while another leads"),
		PVs: one(provisioned("a")), Replicas: 2, Lag: 1,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Pause: 1, Strip: 1, RPC: 1}},
	{Purpose: search.About("former leader, unprotected",
		"the same, and a PV that vanishes before it can be protected (rule 6)"),
		PVs: one(provisioned("a").with(unprotectedPV)), Replicas: 2, Lag: 1,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Pause: 1}},
	{Purpose: search.About("restarts", "one process that ends twice, calls that fail, a watch that starts anew"),
		PVs: one(provisioned("a")), Lag: 3,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Crash: 2, Flip: 1, API: 1, RPC: 1, Relist: 1}},

	// Other programs that remove finalizers, or add their own.
	{Purpose: search.About("stripped", "another program removes the finalizer"), PVs: one(provisioned("a")), Lag: 3,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Strip: 3, Flip: 1, RPC: 1, Relist: 1}},
	{Purpose: search.About("contested",
		"another program removes the finalizer of one PV again and again; the other stays protected"),
		PVs: []PV{provisioned("a"), provisioned("b")}, Lag: 1, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Strip: 4}},
	{Purpose: search.About("held", "a PV that is put on hold"),
		PVs: one(provisioned("a")), Lag: 3, Budget: Budget{DeletePV: 1, DeleteClaim: 1, Hold: 2, Flip: 1, Slow: 1}},
	{Purpose: search.About("companion", "a provisioner without KEP-2644 works beside"), PVs: one(provisioned("a")), Lag: 3,
		Role: volume.RoleCompanion, Peer: true,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 2, API: 1, RPC: 1, Attach: 1}},

	// Worlds for a night, not for each change.
	{Purpose: search.Deep("deep: orders", "one PV, everything that users do and that breaks, a little of each"),
		PVs: []PV{provisioned("a")}, Lag: 4,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 2, TakeBack: 1, Attach: 1, Crash: 1, API: 1, RPC: 1, Relist: 1,
			Slow: 1}},
	{Purpose: search.Deep("deep: replicas", "two replicas that end, overlap and see changes late"),
		PVs: []PV{provisioned("a")}, Replicas: 2, Lag: 3,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 1, Crash: 2, Overlap: 1, Pause: 1, API: 1, RPC: 1}},
	{Purpose: search.Deep("deep: shared", "two PVs of one volume, one with policy Retain, attached while watches lag"),
		PVs: []PV{static("a"), static("b").with(sharesVolume).with(retained)}, Lag: 1,
		Budget: Budget{DeletePV: 1, DeleteClaim: 2, Flip: 1, Attach: 1}},
	{Purpose: search.Deep("deep: unprotected", "a PV that is deleted before it can be protected, while everything breaks"),
		PVs: []PV{provisioned("a").with(unprotectedPV)}, Lag: 4,
		Budget: Budget{DeletePV: 1, DeleteClaim: 1, Flip: 2, Attach: 1, API: 2, RPC: 1, Crash: 1, Relist: 1, Slow: 1}},
}

// String says what the PV is like.
func (p PV) String() string {
	words := []string{"PV", p.Name, "static"}
	if p.Dynamic {
		words[2] = "dynamic"
	}
	if p.Policy == volume.PolicyRetain {
		words = append(words, "Retain")
	}
	if p.Unprotected && p.Policy == volume.PolicyDelete {
		words = append(words, "unprotected")
	}
	if p.Late {
		words = append(words, "late")
	}
	return strings.Join(words, " ")
}
