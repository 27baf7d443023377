// Package clock has the time of a model, which stands still. Of the time that passes, a model keeps ages.
package clock

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Now is the time of every model.
var Now = time.Unix(1e9, 0)

// Age is the time since an event. The zero value means that it has not happened.
type Age uint8

// The ages that matter: the event has just happened, or as long ago as matters.
const (
	Never Age = iota
	Young
	Old
)

// Time returns a time of this age, and AgeOf the age of a time.
func (a Age) Time() time.Time {
	switch a {
	case Young:
		return Now
	case Old:
		return Now.Add(-time.Hour)
	case Never:
	}
	return time.Time{}
}

// AgeOf returns the age of a time.
func AgeOf(t time.Time) Age {
	switch {
	case t.IsZero():
		return Never
	case t.Equal(Now):
		return Young
	}
	return Old
}

// ReadAt returns a live read that was just made, by its order in its session, and no read for order 0.
func ReadAt(order uint8) session.Read {
	if order == 0 {
		return session.Read{}
	}
	return session.Read{Sent: Now, Order: int(order)}
}
