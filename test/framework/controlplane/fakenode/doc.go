// Package fakenode writes to the Kubernetes API what a kubelet would write, and runs nothing.
//
// A test control plane has no nodes, but the controllers that a storage controller works against
// wait for what nodes say: that a pod runs or is gone, which volumes are in use, that a node is alive, which
// drivers it has and in which of their places it is, where the scheduler looks. A [Node] says these things as the
// node's own user, within the rights of a node (node authorizer and NodeRestriction). When its context ends it falls
// silent as a dead machine does: its Node object stays, and the controllers find out by themselves.
//
// It mounts nothing and does not wait for a volume to be attached. The attach-detach controller does attach volumes for
// it, unless their driver's CSIDriver object says that it needs none: see [Node.SetVolumesInUse]. Package
// test/framework/nodes runs nodes that mount.
package fakenode
