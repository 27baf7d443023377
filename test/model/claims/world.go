//go:build model

package claims

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxClaims   = 2
	maxReplicas = memory.Replicas
	maxLag      = 3
)

// pv is a PV as the API server holds it. The zero value: there is none.
type pv struct {
	// claim is the index of its claim, from 1, or provision.Foreign.
	claim       uint8
	terminating bool
}

func (p pv) exists() bool { return p.claim != 0 }

// foreign tells whether somebody else made it. It names none of the world's volumes.
func (p pv) foreign() bool { return p.claim == provision.Foreign }

// belongs tells whether it is the PV of a claim.
func (p pv) belongs(claim int) bool { return int(p.claim) == claim+1 }

func (p pv) view() provision.PVView {
	return provision.PVView{Claim: p.claim, Terminating: p.terminating}
}

// volume is what the storage system has under a name.
type volume struct{ there, spoiled bool }

// claimChange and pvChange are what a watch has not told yet; of a claim that is gone it is the last
// state.
type claimChange struct {
	claim uint8
	gone  bool
	now   provision.ClaimView
}

type pvChange struct {
	name uint8
	now  pv
}

// sent is what became of a call that was sent.
type sent struct {
	done bool
	// cut: it was decided on when another replica led already, by a process whose calls of the
	// driver end with its lease.
	cut   bool
	reply provision.Reply
}

// late is a call of a process that ended, on its way.
type late struct {
	action         provision.Action
	version, claim uint8
	on             bool
}

func (l late) ask() provision.Ask { return provision.Ask{Action: l.action, Version: l.version} }

// line is what belongs to one replica besides what it knows.
type line struct {
	up bool
	// claims, pvs and classes are what its watches have not told yet.
	claims   [maxLag]claimChange
	pvs      [maxLag]pvChange
	classes  [maxLag]bool
	nClaims  uint8
	nPVs     uint8
	nClasses uint8
	// calls are the calls under way, by claim.
	calls [maxClaims]sent
	// absent: a live read of the run in hand that still counts has shown that the claim's volume
	// has no PV.
	absent [maxClaims]bool
	// deposed: another replica leads by now; it has not noticed.
	deposed bool
}

// world is everything but what the replicas know. All of it is plain, so that it can be compared
// and copied.
type world struct {
	claims [maxClaims]provision.ClaimView
	// born: the claim was created. guarded: Kubernetes' own finalizer is on it.
	born, guarded [maxClaims]bool
	// stripped: somebody took our finalizer off by hand.
	stripped [maxClaims]bool
	// told: people were told that it is not known whether the volume of that name is left.
	told [maxClaims]bool
	// PVs and volumes have the same names.
	pvs     [maxClaims]pv
	volumes [maxClaims]volume
	class   bool
	lines   [maxReplicas]line
	late    late
	left    Budget
	faulted bool
}

// state is a world and what its replicas know.
type state struct {
	world
	knows memory.Knows
}

func (s *state) encode(b []byte) []byte { return memory.Encode(b, &s.world, &s.knows) }

func decode(b []byte) (s state) {
	s.knows = memory.Decode(b, &s.world)
	return s
}

// there tells whether a claim exists.
func (s *state) there(claim int) bool { return s.claims[claim].Version != 0 }

// lives tells whether a claim exists, is not being deleted, and is to get a volume or has it.
func (s *state) lives(claim int) bool {
	c := s.claims[claim]
	return s.there(claim) && !c.Terminating && c.Bound != provision.BoundElsewhere
}

// name returns the index of the name that a claim's PV and volume have.
func (w *World) name(claim int) int {
	if w.Short {
		return 0
	}
	return claim
}

// free tells whether no claim has the name of this one.
func (w *World) free(s *state, claim int) bool {
	for other, name := range w.Claims {
		if name == w.Claims[claim] && s.there(other) {
			return false
		}
	}
	return true
}
