// Package kube connects the controllers to the API server: clients without their own limiter, watch caches that hold
// only the needed fields, and finalizer patches.
//
// The package knows Kubernetes' objects and errors, but not when a volume may be deleted.
package kube
