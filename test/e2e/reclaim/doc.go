// Package reclaim deletes and keeps volumes with csi-reclaimer: orders of deletion, policies, drivers that fail, holds,
// restarts. Each test uses the programs, a real control plane and a real CSI driver; see test/framework/fixture.
package reclaim
