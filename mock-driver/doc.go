// Mock-driver is a CSI driver for tests: real gRPC, real state on disk, faults on demand, and a ledger that records
// afterwards what it was asked and what it did. See README.md, or --help.
package main
