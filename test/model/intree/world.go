package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxPVs      = 2
	maxSlots    = 2 * maxPVs
	maxClaims   = 3
	maxReplicas = memory.Replicas
)

// pv is a PV as the API server holds it. The zero value: there is none. The slot after that of a PV is
// for its twin.
type pv struct {
	view
	// inUse: Kubernetes' own finalizer is on it, until it is not Bound any more.
	inUse bool
}

func (p pv) exists() bool { return p.Version != 0 }

func (p pv) deletes() bool { return p.Policy == volume.PolicyDelete }

// released reports whether the PV controller has seen that its claim is gone.
func (p pv) released() bool {
	return p.Phase == volume.PhaseReleased || p.Phase == volume.PhaseFailed
}

// held reports whether something keeps the PV that is to hold it until its volume is deleted.
func (p pv) held() bool { return p.Writer != intree.WriterNone || p.External }

// unheld reports whether a PV goes and leaves its volume behind: nothing can be added any more.
func (p pv) unheld() bool { return p.exists() && p.Terminating && p.deletes() && !p.held() }

// claim is a claim at the API server.
type claim struct {
	there, born bool
	// volume is the slot of its PV, from 1; 0 for none.
	volume uint8
}

// operation is how far a deletion is that the PV controller has begun. It has decided by then, and reads
// nothing again but whether the PV is being deleted, and the claim.
type operation uint8

const (
	noOperation operation = iota
	// begun: the plugin is to be called.
	begun
	// deleted: the PV is to be deleted.
	deleted
)

// change is what a watch has not reported yet; of a PV that is gone it is the last state.
type change struct {
	slot uint8
	gone bool
	now  view
}

// sent is what became of a call that was sent.
type sent struct {
	done  bool
	reply reply
}

// proof is what the live reads of the current run have shown, as far as they still count.
type proof struct {
	// claim: it was gone. pv: the PV, read after all else, said that its volume is to go. others: the other
	// PVs of the volume were read. sibling: the claim of one that is to be deleted too was gone.
	claim, detached, pv, others, sibling bool
}

// line is what belongs to one replica besides what it knows.
type line struct {
	up bool
	// changes are what its watch has not reported yet.
	changes memory.Queue[change]
	// calls are the calls under way, and proofs what was read, by slot.
	calls  [maxSlots]sent
	proofs [maxSlots]proof
	// deposed: another replica leads by now; it has not noticed.
	deposed bool
}

// late is a call of a process that ended, on its way.
type late struct {
	ask ask
	on  bool
}

// world is everything but what the replicas know. All of it is plain, so that it can be compared
// and copied.
type world struct {
	pvs            [maxSlots]pv
	versions, uids [maxSlots]uint8
	operations     [maxSlots]operation
	claims         [maxClaims]claim
	// seen are the claims as the PV controller's cache shows them.
	seen  [maxClaims]claim
	disks [maxPVs]bool
	// modern: the PV controller is that of 1.31 and newer.
	modern, attached bool
	lines            [maxReplicas]line
	late             late
	left             Budget
	faulted          bool
	// excused: by what a user or the PV controller did, nothing holds the PV or its twin any more, so
	// that its volume may be left behind.
	excused [maxPVs]bool
	// tooLate: what was to keep the volume came after its deletion had begun.
	tooLate [maxPVs]bool
}

// state is a world and what its replicas know.
type state struct {
	world
	knows memory.Knows
}

func encode(b []byte, s *state) []byte { return memory.Encode(b, &s.world, &s.knows) }

func decode(b []byte) (s state) {
	s.knows = memory.Decode(b, &s.world)
	return s
}

// twin returns the slot of a PV's twin, and original that of a twin's PV.
func twin(of int) int     { return of | 1 }
func original(of int) int { return of &^ 1 }

func isTwin(slot int) bool { return slot&1 != 0 }

// disk is the volume that the PV of a slot names.
func (w *World) disk(slot int) int { return w.PVs[slot/2].Disk }

// provisioned reports whether a plugin made the PV of a slot, or of the one whose twin it is.
func (w *World) provisioned(slot int) bool { return !w.PVs[slot/2].Static }

// named returns the UID of the claim that there is of a name, 0 for none, among these.
func (w *World) named(claims *[maxClaims]claim, name string) uint8 {
	for i := range w.Claims {
		if w.Claims[i] == name && claims[i].there {
			return uint8(i + 1)
		}
	}
	return 0
}

// claimName is that in the claimRef of a PV.
func (w *World) claimName(slot int, p pv) string {
	if p.Claim > 0 {
		return w.Claims[p.Claim-1]
	}
	return w.PVs[slot/2].Claim
}

// restored reports whether another claim than the PV's has the name of that one, and names the PV.
func (w *World) restored(s *state, slot int) bool {
	p := s.pvs[slot]
	uid := w.named(&s.claims, w.claimName(slot, p))
	return uid != 0 && uid != p.Claim && int(s.claims[uid-1].volume) == slot+1
}

// lives reports whether a claim that exists has this PV.
func (s *state) lives(slot int) bool {
	p := s.pvs[slot]
	return p.exists() && p.Claim > 0 && s.claims[p.Claim-1].there && int(s.claims[p.Claim-1].volume) == slot+1
}
