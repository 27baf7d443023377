package reclaim

import "time"

// Lease says how long this replica may still act on behalf of all. It is what is known locally of the
// Lease by which replicas elect their leader. A paused process, or one whose machine was suspended,
// finds out by it that another replica may act now, before client-go's election does.
//
// Its methods are safe for concurrent use, return at once, and ask nobody.
type Lease interface {
	// Left returns how long this replica may act without another renewal: the lease's duration, less
	// the time since the last renewal that succeeded was requested. Time counts in which the process
	// or the machine stood still. At zero or less this replica must not act: it does not lead yet,
	// does not lead any more, or did not renew in time. Left turns positive again only if no other
	// replica can have acted meanwhile.
	Left() time.Duration
}
