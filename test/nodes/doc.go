// Package nodes tests with real nodes what csi-reclaimer promises about volumes in use: whether a pod's process runs
// on, what is mounted, and who writes to a volume, are asked of the machine and read in the data. See
// test/framework/nodes.
package nodes
