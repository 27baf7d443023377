// Package nodes runs real nodes for a test control plane, on this machine.
package nodes
