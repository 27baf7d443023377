//go:build unix

// Package mockdriver runs the mock CSI driver as a process of its own, for tests, the demo and benchmarks: starts it,
// kills and restarts it on the same state, sets its faults, and reads what it left behind, the ledger and the volumes
// on disk. What a driver is and does is left to mock-driver.
package mockdriver
