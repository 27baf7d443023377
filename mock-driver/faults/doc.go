// Package faults makes a healthy driver misbehave on demand: it stands between the gRPC edge and the work, and
// carries out a [Plan] of rules. A rule picks calls (by method, volume, name, count) and says what happens to them:
// an error, with the work done or not, a delay, no answer, the death of the process, or a list that pages badly.
//
// Plans come from a file, or over HTTP on a loopback address while the driver runs ([Engine.Handler], [Client]).
package faults
