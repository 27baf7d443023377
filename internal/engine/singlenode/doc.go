// Package singlenode decides which pod may use a claim. It serves volumes without an attach step, which any number of
// nodes can mount at a time despite their access mode.
//
// A pod with such a claim is created with a scheduling gate, and is scheduled only after each of its claims has a lock
// in its name: an annotation with the UID of the pod, written by compare-and-swap. [Decide] returns the next step for
// one gated pod, [DecideLock] the next step for the lock of one claim. All decisions rest on objects in the API server,
// so they hold with two replicas, after a restart, and with a lagging cache.
//
// The package is pure: it imports no client, context, logger or clock, and makes no calls.
package singlenode
