// Package singlenode decides which pod may use a claim, for volumes that nothing attaches: any number of nodes can
// mount them at a time, whatever their access mode says.
//
// A pod with such a claim is created with a scheduling gate. It is not scheduled before each of its claims has a lock
// that names it: an annotation with the UID of the pod, which is written by compare-and-swap. [Decide] says what to do
// about one gated pod, [DecideLock] about the lock of one claim. What counts is what the API server holds: two
// replicas, a restart and a cache that lags change nothing.
//
// The package is pure: it imports no client, context, logger or clock, and makes no calls.
package singlenode
