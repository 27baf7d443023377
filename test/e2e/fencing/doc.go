// Package fencing tests that a node is fenced, and what is released because of it: nothing before a proof. Nodes are
// played (test/framework/controlplane/fakenode); a node that falls silent is found unreachable by the real controller
// manager. The tests play the agents: they end the pods of Jobs, and report for the kinds of remediators and of
// csi-addons.
package fencing
