package reclaim

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	driver    = "driver"
	namespace = "ns"

	maxPVs      = 2
	maxReplicas = memory.Replicas
	// maxVersion bounds the resourceVersions of one PV.
	maxVersion = 200
)

// pv is a PV as the API server holds it. The zero value: there is none.
type pv struct {
	// gen numbers the PVs of one name from 1; it is the UID.
	gen     uint8
	version uint8
	policy  volume.Policy
	phase   volume.Phase
	// claim is the claimRef: none, one without UID, or the gen of the claim.
	claim claimRef
	// flags are a set of the following.
	flags flags
}

type claimRef uint8

const (
	noClaim    claimRef = 0
	withoutUID claimRef = 255
)

type flags uint8

const (
	terminating flags = 1 << iota
	ours              // the finalizer of the owner
	companions        // the finalizer of the companion
	protected         // kubernetes.io/pv-protection
	attached          // the finalizer of external-attacher
	held
)

const finalizers = ours | companions | protected | attached

func (p pv) exists() bool    { return p.gen != 0 }
func (p pv) is(f flags) bool { return p.flags&f != 0 }
func (p pv) claimed() bool   { return p.claim != noClaim && p.claim != withoutUID }
func (p pv) released() bool {
	return p.phase == volume.PhaseReleased || p.phase == volume.PhaseFailed
}
func (p pv) deletable() bool { return p.policy == volume.PolicyDelete && p.released() && p.claimed() }

// keeps: the PV keeps the volume from being deleted under another PV.
func (p pv) keeps() bool  { return !p.deletable() || p.is(held) }
func (p *pv) set(f flags) { p.flags |= f }
func (p *pv) setIf(f flags, on bool) {
	if on {
		p.set(f)
	}
}
func (p *pv) clear(f flags)     { p.flags &^= f }
func (p pv) finalized() bool    { return p.flags&finalizers != 0 }
func (p pv) guarded() bool      { return p.is(ours | companions) }
func (p pv) bound() bool        { return p.phase == volume.PhaseBound }
func (p pv) belongs(g gen) bool { return p.claimed() && uint8(p.claim) == uint8(g) }

// gen numbers the claims of one name from 1. Zero: there is none.
type gen uint8

// claim is a claim. Each PV has one name of a claim that it can belong to.
type claim struct {
	gen gen
	// bound: spec.volumeName is the PV's name.
	bound bool
}

// names reports whether this is another claim than the PV's that names the PV, such as one that was restored.
func (c claim) names(p pv) bool { return c.gen != 0 && c.bound && !p.belongs(c.gen) }

// change is what a watch of PVs has not delivered yet. Of a PV that is gone it is the last state.
type change struct {
	pv   pv
	slot uint8
	gone bool
}

// attachmentChange is what a watch of VolumeAttachments has not delivered yet.
type attachmentChange struct {
	slot uint8
	came bool
}

// claimChange is what a watch of claims has not delivered yet: a claim that was created or changed, or the end of one.
type claimChange struct {
	claim claim
	slot  uint8
	gone  bool
}

// sent is what became of a call that was sent and is not answered yet.
type sent struct {
	done    bool
	outcome reclaim.Outcome
	version uint8
}

// late is a call of a process that ended, on its way.
type late struct {
	action  reclaim.Action
	slot    uint8
	pv      pv
	pending bool
}

// line is what belongs to one replica besides what it knows.
type line struct {
	up bool
	// changes and attachments are what its watches have not delivered yet.
	changes     memory.Queue[change]
	attachments memory.Queue[attachmentChange]
	claims      memory.Queue[claimChange]
	// calls and protects are the calls under way, by PV.
	calls, protects [maxPVs]sent
	proof           [maxPVs]proof
	// ends: the watch of claims has just shown the end of a claim of the PV, and none that names it since.
	ends [maxPVs]bool
	// succeeded are the gens of the PVs, as bits, for which this process was answered that
	// the volume is deleted.
	succeeded [maxPVs]uint8
	// deposed: another replica leads by now; it has not noticed.
	deposed bool
}

// world is everything but what the replicas know. All of it is plain, so that it can be
// compared and copied.
type world struct {
	pvs      [maxPVs]pv
	versions [maxPVs]uint8
	gens     [maxPVs]uint8
	claims   [maxPVs]claim
	// cached are the claims as kube-controller-manager knows them.
	cached      [maxPVs]claim
	attachments [maxPVs]bool
	volumes     [maxPVs]bool
	owed        [maxPVs]owed
	// stripped: a user removed a finalizer from the PV that is there now. strips is how often it was one that counts:
	// nobody had deleted the PV, and it was to be protected.
	stripped [maxPVs]bool
	strips   [maxPVs]uint8
	lines    [maxReplicas]line
	late     late
	left     Budget
	faulted  bool
}

// state is a world and what its replicas know.
type state struct {
	world
	knows memory.Knows
}

// toAPI returns the PV as a program reads it.
func (w *World) toAPI(slot int, p pv) volume.PV {
	def := w.PVs[slot]
	api := volume.PV{
		Name: def.Name, UID: w.uid(slot, p), ResourceVersion: number(p.version), Driver: driver, Handle: def.Handle,
		Policy: p.policy, Phase: p.phase, Terminating: p.is(terminating),
		HasFinalizer: p.is(ours), HasCompanionFinalizer: p.is(companions), WasAttached: p.is(attached), Held: p.is(held),
	}
	if def.Dynamic && p.gen == 1 {
		api.ProvisionedBy = driver
	}
	if p.claim != noClaim {
		api.Claim = volume.ClaimRef{Namespace: namespace, Name: def.claimName()}
	}
	if p.claimed() {
		api.Claim.UID = claimUID(def, gen(p.claim))
	}
	return api
}

// fromAPI is its inverse, but for what a program does not read.
func fromAPI(api volume.PV) pv {
	p := pv{gen: api.UID[len(api.UID)-1] - '0', policy: api.Policy, phase: api.Phase}
	version, err := strconv.Atoi(api.ResourceVersion)
	if err != nil {
		panic(err)
	}
	p.version = uint8(version)
	p.setIf(terminating, api.Terminating)
	p.setIf(ours, api.HasFinalizer)
	p.setIf(companions, api.HasCompanionFinalizer)
	p.setIf(attached, api.WasAttached)
	p.setIf(held, api.Held)
	switch {
	case api.Claim.Name == "":
	case api.Claim.UID == "":
		p.claim = withoutUID
	default:
		p.claim = claimRef(api.Claim.UID[len(api.Claim.UID)-1] - '0')
	}
	return p
}

func (w *World) uid(slot int, p pv) types.UID { return types.UID(w.PVs[slot].Name + number(p.gen)) }

func claimUID(def PV, g gen) types.UID { return types.UID(def.claimName() + number(uint8(g))) }

func number(n uint8) string { return strconv.Itoa(int(n)) }

// vocabulary is every string that can occur besides the names of the PVs.
func (w *World) vocabulary() []string {
	list := []string{driver, namespace, volume.Finalizer, volume.CompanionFinalizer}
	for _, def := range w.PVs {
		list = append(list, def.claimName())
		for g := range uint8(4) {
			list = append(list, def.Name+number(g), def.claimName()+number(g))
		}
	}
	handles := map[string]bool{}
	for _, def := range w.PVs {
		if !handles[def.Handle] {
			handles[def.Handle] = true
			list = append(list, def.Handle)
		}
	}
	for n := range uint8(maxVersion) {
		list = append(list, number(n))
	}
	return list
}

// volume returns the index of a PV's volume: that of the first PV with its handle.
func (w *World) volume(slot int) int {
	for i, def := range w.PVs {
		if def.Handle == w.PVs[slot].Handle {
			return i
		}
	}
	return slot
}

// slotOf returns the index of the PV of that name.
func (w *World) slotOf(name string) int {
	for i, def := range w.PVs {
		if def.Name == name {
			return i
		}
	}
	panic("no PV of this world: " + name)
}
