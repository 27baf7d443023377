package volume

// InFlight is what the in-flight log of a driver's provisioner has for a volume. The zero value: that is not known.
type InFlight uint8

const (
	// InFlightUnknown: the log has not been read.
	InFlightUnknown InFlight = iota
	// InFlightOpen: it has an entry.
	InFlightOpen
	// InFlightSettled: it has none.
	InFlightSettled
	// InFlightUnreadable: it may have an entry, which cannot be read, or its part for the volume cannot.
	InFlightUnreadable
)
