// Package podadmission runs the manifests of pod safety on real API servers: which requests the policies refuse, warn
// of and admit, who gets the finalizer, and that workloads, drains and namespaces end with them in force.
//
// The controller that removes the finalizer is not here. Where a test needs one, it removes it itself.
package podadmission
