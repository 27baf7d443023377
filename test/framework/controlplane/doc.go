// Package controlplane runs a real Kubernetes control plane for tests and demos: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler. Each is a separate process on loopback, without a container engine and
// without root.
//
// A controller depends on the API server's admission and on the concurrent work of the stock controllers, so nothing
// here is a fake. The components are compiled from their Go modules. Each Kubernetes version is a nested module
// ([Build]), because one module can hold only one Kubernetes. [Start] runs a control plane in its own folder, and any
// number can run at once. Each component can be killed, paused and restarted alone ([Component]). Clients exist for any
// user, group or service account, with the RBAC of a cluster, and the audit log records the requests.
//
// A control plane has no kubelet. Package fakenode writes a kubelet's objects and statuses, and package
// test/framework/nodes runs real kubelets, where this machine allows it.
package controlplane
