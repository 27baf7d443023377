// Package provision creates volumes with csi-reclaimer: claims, sources, topology, storage capacity, the in-flight log.
// Each test uses the programs, a real control plane and a real CSI driver; see test/framework/fixture.
package provision
