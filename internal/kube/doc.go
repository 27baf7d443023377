// Package kube is how the controllers speak to the API server: clients without a limiter of
// their own, watch caches that hold only what is read, and the finalizer patches.
//
// It knows Kubernetes' objects and errors, and nothing of when a volume may be deleted.
package kube
