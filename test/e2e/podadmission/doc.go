// Package podadmission tests the manifests of pod safety on real API servers: the requests that the policies refuse,
// warn of and admit, the pods that get the finalizer, and the ends of workloads, drains and namespaces with them in
// force.
//
// The controller that removes the finalizer does not run. A test that needs it removes the finalizer itself.
package podadmission
