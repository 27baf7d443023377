package volume

// InFlight is the state of a volume in the in-flight log of a driver's provisioner, unknown in its zero value.
type InFlight uint8

const (
	// InFlightUnknown means that the log has not been read.
	InFlightUnknown InFlight = iota
	// InFlightOpen means that the log has an entry.
	InFlightOpen
	// InFlightSettled means that the log has no entry.
	InFlightSettled
	// InFlightUnreadable means that the log may have an entry, because the entry or the volume's part of the log cannot
	// be read.
	InFlightUnreadable
)
