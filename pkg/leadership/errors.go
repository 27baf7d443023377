package leadership

import "errors"

// ErrExpired reports that this replica must not act, because it does not hold its Lease or did not renew it in time.
// The requested action was not begun.
var ErrExpired = errors.New("the leader election lease is not held")
