// The module of what the modules of the versions beside it compile. It requires nothing: each of them has a
// Kubernetes of its own.
module github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/components

go 1.22.0
