// Package volumeguard runs volume-guard: claims and PVs in use, admission, in-tree volumes.
// Each test uses the programs, a real control plane and a real CSI driver; see test/framework/fixture.
package volumeguard
