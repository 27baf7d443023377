// Package nodes tests csi-reclaimer's promises about volumes in use with real nodes. The machine shows running
// processes and mounts, and the data shows the writers of a volume. See test/framework/nodes.
package nodes
