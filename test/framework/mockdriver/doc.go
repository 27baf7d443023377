//go:build unix

// Package mockdriver runs the mock CSI driver as a separate process, for tests, the demo and benchmarks. It starts the
// driver, kills and restarts it on the same state, sets its faults, and reads its ledger and its volumes on disk. The
// driver itself is in mock-driver.
package mockdriver
