// Package e2e runs the shipped programs as a cluster would, with the RBAC that deploy/
// ships, and judges them by what the driver received and what its disk holds, never by the
// sidecar's own word.
package e2e
