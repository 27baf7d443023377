package leaks

import "time"

// Presence is the result of a search for an object. Its zero value is unknown, which never counts as absent.
type Presence uint8

const (
	// PresenceUnknown: the reads did not show whether the object exists.
	PresenceUnknown Presence = iota
	// Present: the object exists, or at least may exist.
	Present
	// Absent: complete reads after the volume was listed showed that the object does not exist.
	Absent
)

// presence returns the result of a read that is known to be complete.
func presence(there bool) Presence {
	if there {
		return Present
	}
	return Absent
}

// Rules set how long a volume must remain unaccounted for.
type Rules struct {
	// Sightings is the required number of consecutive complete leak checks, at least 2.
	Sightings int
	// Grace is the minimum time since the first of them.
	Grace time.Duration
}

// leastSightings is the lower bound for all rules, because a single sighting can be a volume that is deleted,
// together with its PV, between two reads of one leak check; the next one no longer lists it.
const leastSightings = 2

// Facts holds everything known about one listed volume at the end of one leak check. The zero value of every field
// means that the fact is unknown, or prevents a suspicion. InUse and Ephemeral are the exceptions: few drivers report
// them, and they can only prevent a suspicion.
type Facts struct {
	Rules Rules

	// PV: a PV names the volume, or has named it since the leak check began.
	PV Presence
	// Snapshot: a snapshot of the cluster has the volume's handle.
	Snapshot Presence
	// InFlight: the in-flight log has an entry that may be for the volume.
	InFlight Presence
	// Unclear: for some PV, or attached inline volume, of the driver it is unknown which listed volume it names.
	Unclear Presence
	// Maker: a claim or snapshot has been in creation in every leak check since the volume was first listed, or earlier.
	Maker Presence
	// NamesMatch: the driver lists the volume of at least one PV, or has no PVs.
	NamesMatch bool
	// InUse: the driver reports the volume as attached to a node, or a VolumeAttachment without a PV does.
	InUse bool
	// Ephemeral: the handle has the form of the kubelet's names for ephemeral inline volumes.
	Ephemeral bool

	// Sightings is the number of consecutive complete leak checks, including this one, in which nothing prevented a
	// suspicion. FirstSeen is the time at which the first of them had listed the volumes.
	Sightings int
	FirstSeen time.Time
}
