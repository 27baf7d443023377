// Package faults makes a healthy driver misbehave on demand: it sits between the gRPC edge and the work, and applies
// a [Plan] of rules. A rule selects calls by method, volume, name or count. Its action is an error with or without
// the work, a delay, no answer, the death of the process, or a defect of a list's pages.
//
// Plans come from a file, or over HTTP on a loopback address while the driver runs ([Engine.Handler], [Client]).
package faults
