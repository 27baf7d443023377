package leadership

import "errors"

// ErrExpired: this replica must not act, because it does not hold its Lease, or did not renew it in time.
// What was asked was not begun.
var ErrExpired = errors.New("the leader election lease is not held")
