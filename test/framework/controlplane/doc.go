// Package controlplane runs a real Kubernetes control plane for tests and demos:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, each as a process of its
// own on loopback, without a container engine and without root.
//
// What a controller does depends on what the API server admits and on what the
// stock controllers do at the same time, so nothing here is a fake. The components are compiled from their Go modules:
// each Kubernetes version is a nested module ([Build]), because one module can hold
// only one Kubernetes. [Start] runs one, any number at once, each in a folder of its own. Each component can be
// killed, paused and restarted alone ([Component]); clients come for any user, group
// or service account with the RBAC that a cluster would enforce; the audit log says what
// was asked of the API.
//
// No kubelet is part of it. Package fakenode writes what one would write, and package test/framework/nodes runs real
// ones, where this machine allows that.
package controlplane
