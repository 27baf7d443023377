package provision

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

const (
	maxClaims   = 2
	maxNames    = 2
	maxReplicas = 2
	// maxPlaces is how many storage systems there are: one, or one a node.
	maxPlaces = 2
	maxLate   = 6
	// maxPVs: those of a volume's name come first, then those that a node has stored apart.
	maxPVs = maxNames + maxPlaces
)

// Bindings of a claim.
const (
	unbound uint8 = iota
	// boundOwn: spec.volumeName is the name that its own PersistentVolume has.
	boundOwn
	boundElsewhere
)

// claim is a claim as the API server has it. The zero value: there is none.
type claim struct {
	exists, terminating bool
	// guarded: Kubernetes' own finalizer is on it.
	guarded bool
	bound   uint8
	// node is the selected node, 0 for none.
	node uint8
}

// needy reports whether a claim is to get a volume.
func (c claim) needy() bool { return c.exists && !c.terminating && c.bound == unbound }

// request is what distinguishes one CreateVolume request from another of the same volume name. content stands
// for what the class and the nodes of the moment put into it. version is the driver's at that time, and noted what
// the log has of those that it was sent to. Neither is sent.
type request struct{ node, content, version, noted uint8 }

// several: more than one version of the driver may have been called with a request.
const several = 9

// isSentAs reports whether a driver cannot tell two requests apart.
func (r request) isSentAs(o request) bool { return r.node == o.node && r.content == o.content }

// othersContent is the request that made a volume that is none of ours.
const othersContent = 99

// Ways in which an administrator keeps a volume.
const (
	notKept uint8 = iota
	keptStrictly
	// keptForClaim: its claim still waits for a volume. It asks for one of that name, and gets this one again.
	keptForClaim
)

// volume is what a storage system has under a name. generation is kept when it is deleted.
type volume struct {
	there, unfit bool
	// kept: an administrator turned its PersistentVolume to Retain and deleted it.
	kept       uint8
	generation uint8
	by         request
	// maker is the version of the driver that made it.
	maker uint8
}

// foreign is the claim of a PersistentVolume that names neither a claim nor a volume of this world.
const foreign = 9

// pv is a PersistentVolume. The zero value: there is none.
type pv struct {
	// claim is its claim's index from 1, or foreign.
	claim               uint8
	terminating, retain bool
	// stripped: its finalizer was removed by hand.
	stripped bool
	// going: its reclaiming has begun. See World.Gap.
	going bool
	// generation is the volume's that it names, and place where that is.
	generation, place uint8
}

func (p pv) exists() bool           { return p.claim != 0 }
func (p pv) belongs(claim int) bool { return int(p.claim) == claim+1 }

// entry is an entry of the in-flight log.
type entry struct {
	// claim is its claim's index from 1, 0 if there is no entry.
	claim, count uint8
	// discarding: a DeleteVolume may have been sent.
	discarding bool
	requests   [2]request
}

// shard is what the API server has of the in-flight log for one volume name.
type shard struct {
	entry entry
	// owner is the replica that wrote its epoch last, from 1.
	owner uint8
	// deleted: the Lease was deleted, and not written anew since. settled: an operator settled the entry, and the Lease
	// was not written since.
	deleted, settled bool
}

// When something was read, or a call ended last that may still arrive.
const never, recently, longAgo = clock.Never, clock.Young, clock.Old

// record is a provision.Record in which every field takes few bytes. Requests are in the entry.
type record struct {
	next, generation, by uint8
	unanswered           clock.Age
	made, unfit, failed  bool
	sent, settled        [2]bool
}

// view is what a replica knows of a PersistentVolume from a live read, or from the answer to its creation.
type view struct {
	known, exists, ofClaim, ofDriver, terminating, elsewhere bool
	generation                                               uint8
	// read is when it was read: never for an answer, recently, or too long ago to count.
	read clock.Age
	// claim is whom it was looked at for, from 1.
	claim uint8
}

// memory is what a replica remembers for one volume name.
type memory struct {
	log    uint8
	entry  entry
	record record
	// current: it is based on the version of the log that the API server has.
	current bool
	pv      view
	apart   view
	// claim is what a live read of a claim showed, of the one with this index from 1 in of, and when.
	claim claim
	of    uint8
	read  clock.Age
	// again: an entry of the name may have been closed before.
	again    bool
	backsOff bool
	// settled: a read for another name has shown that an operator settled the entry. ConfirmEntry is to find that.
	settled bool
	// confirmed: in this run, the open entry was written, or found not settled. A failure or a wait ends the run.
	confirmed bool
	// secondFailed: the open entry got no second request in this run. leaves: another node is to be selected.
	secondFailed, leaves bool
}

// Stages of a call.
const (
	idle uint8 = iota
	// onItsWay: it was sent, and may arrive.
	onItsWay
	// answered: it has arrived, and its answer is on the way.
	answered
	// unsure: a write of the log was not answered, and has to be looked for.
	unsure
)

// call is a call under way.
type call struct {
	action, stage uint8
	claim         uint8
	request       request
	// generation is the volume's, of StorePV and DeleteVolume.
	generation uint8
	// first is what Record.Sending returned, and quiet what Record.Quiet did when it was sent.
	first, quiet bool
	// current: a write of the log is based on the version that the API server has.
	current bool
	entry   entry
	// The answer.
	class, got uint8
	unfit      bool
	found      view
	claimFound claim
	// bare: CreateVolume was sent without its Secret. changed: a refusal does not judge what was sent before.
	bare, changed bool
	// version is the driver's that it was sent to.
	version uint8
}

// late is a call that nobody waits for any more, on its way.
type late struct {
	call
	replica, name uint8
	// overdue: it is later than the engine counts on.
	overdue bool
}

// line is a replica.
type line struct {
	up, mayAct bool
	// What its watches have shown last.
	claims [maxClaims]claim
	pvs    [maxPVs]pv
	// What they have received and not shown, while more changes: see World.Lag.
	comingClaims [maxClaims]claim
	comingPVs    [maxPVs]pv
	claimComes   [maxClaims]bool
	pvComes      [maxPVs]bool
	names        [maxNames]memory
	calls        [maxNames]call
}

// state is everything. All of it is plain and without padding, so that it can be compared and copied.
type state struct {
	claims [maxClaims]claim
	born   [maxClaims]bool
	pvs    [maxPVs]pv
	// By place and volume name.
	volumes [maxPlaces][maxNames]volume
	shards  [maxPlaces][maxNames]shard
	// excused: what design and documentation name as an excuse has happened to it.
	excused [maxPlaces][maxNames]bool
	// class is 0 if the StorageClass does not exist, else which parameters it has.
	class uint8
	// zone: the second zone has a node. gone: node a is. full: the log has no room. noSecret: the Secret is gone.
	zone, gone, full, noSecret bool
	// version is the driver's.
	version uint8
	lines   [maxReplicas]line
	late    [maxLate]late
	left    Budget
}

// name returns the index of the name that a claim's volume has.
func (w *World) name(claim int) int {
	if w.Short {
		return 0
	}
	return claim
}

// place returns where a replica makes volumes, which also has its part of the log.
func (w *World) place(replica int) int {
	if w.Local {
		return replica
	}
	return 0
}

// nameOf returns the volume name of a PersistentVolume.
func nameOf(slot int) int {
	if slot >= maxNames {
		return 0
	}
	return slot
}

// first is the state in which a world begins: with a class, two zones and the first claim.
func (w *World) first() state {
	s := state{left: w.Budget, class: 1, zone: true}
	s.born[0] = true
	s.claims[0] = claim{exists: true, guarded: w.Guarded}
	if w.Late || w.Local {
		s.claims[0].node = 1
	}
	if w.Occupied {
		s.volumes[0][0] = volume{there: true, generation: 1, by: request{content: othersContent}}
	}
	for i := range w.Replicas {
		w.start(&s, i)
		if i == 0 || w.Local {
			s.lines[i].mayAct = true
			for n := range w.names() {
				s.shards[w.place(i)][n].owner = uint8(i + 1)
				s.lines[i].names[n] = memory{log: uint8(provision.LogAbsent), current: true}
			}
		}
	}
	return s
}

// start has a replica begin with lists of what the API server has.
func (w *World) start(s *state, i int) {
	s.lines[i] = line{up: true, claims: s.claims, pvs: s.pvs}
}

// compose returns the request that is composed now for a claim with this selected node.
func (w *World) compose(s *state, node uint8) request {
	r := request{content: s.class, version: s.version, noted: s.version}
	if s.zone {
		r.content |= 4
	}
	if w.Late || w.Local {
		r.node = node
	}
	return r
}
