package leaks

import "time"

// Presence says whether something is there. The zero value is not known, which is never taken for absent.
type Presence uint8

const (
	// PresenceUnknown: it could not be found out.
	PresenceUnknown Presence = iota
	// Present: it is there, or may be.
	Present
	// Absent: complete reads, made after the volume was listed, showed that it is not there.
	Absent
)

// presence returns what a complete look says.
func presence(there bool) Presence {
	if there {
		return Present
	}
	return Absent
}

// Rules are how long a volume must go unaccounted for.
type Rules struct {
	// Sightings is in how many complete leak checks in a row, at least 2.
	Sightings int
	// Grace is how long since the first of them.
	Grace time.Duration
}

// leastSightings is what no rules go below: one sighting may be of a volume that is deleted, with its PV,
// between the two reads of one leak check. In the next it is not listed any more.
const leastSightings = 2

// Facts is all that is known about one listed volume at the end of one leak check. The zero value of every
// field means that the fact is not known, or speaks against a suspicion; but InUse and Ephemeral, which
// few drivers report, only ever speak against one.
type Facts struct {
	Rules Rules

	// PV: a PV names the volume, or did since the leak check began.
	PV Presence
	// Snapshot: a snapshot of the cluster has the volume's name.
	Snapshot Presence
	// InFlight: the in-flight log has an entry whose volume it may be.
	InFlight Presence
	// Unclear: of some PV of the driver it is unknown which listed volume it is about.
	Unclear Presence
	// Maker: a claim or a snapshot is being made, without a break since before the volume was first listed.
	Maker Presence
	// NamesMatch: the driver listed the volume of at least one PV, or there is no PV of the driver.
	NamesMatch bool
	// InUse: the driver says that the volume is attached to some node.
	InUse bool
	// Ephemeral: its name is that of a volume which the kubelet makes for one pod.
	Ephemeral bool

	// Sightings is in how many complete leak checks in a row, this one among them, nothing spoke against a
	// suspicion, and FirstSeen when the volume was listed in the first of them.
	Sightings int
	FirstSeen time.Time
}
