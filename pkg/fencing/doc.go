// Package fencing is volume-guard's controller node-fencing: it carries out NodeFences, and creates them for nodes that
// are unreachable where a FencePolicy asks for it (pkg/apis/fencing/v1alpha1).
//
// It decides nothing: internal/engine/fencing does. What it reads, writes and remembers, and why, is in DESIGN.md.
package fencing
