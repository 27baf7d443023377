// Package fakenode writes to the Kubernetes API as a kubelet would, and runs nothing.
//
// A test control plane has no nodes, but the controllers around a storage controller wait for reports of nodes: that a
// pod runs or is gone, that a node is alive, its volumes in use, its drivers, and its topology for the scheduler. A
// [Node] reports these facts as the node's own user, within the rights of a node (node authorizer and NodeRestriction).
// When its context ends, it falls silent as a dead machine does: its Node object stays, and the controllers find out by
// themselves.
//
// It mounts nothing and does not wait for a volume to be attached. The attach-detach controller does attach volumes for
// it, unless their driver's CSIDriver object says that it needs none: see [Node.SetVolumesInUse]. Package
// test/framework/nodes runs nodes that mount.
package fakenode
