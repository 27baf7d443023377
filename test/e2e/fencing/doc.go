// Package fencing tests that a node is fenced, and that pods and volumes are released only after a proof. Nodes are
// played (test/framework/controlplane/fakenode), and the real controller manager finds a silent node unreachable. The
// tests play the agents: they end the pods of Jobs, and report for the kinds of remediators and of csi-addons.
package fencing
