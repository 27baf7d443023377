// Mock-driver is a CSI driver for tests, which serves real gRPC, keeps its state on disk, injects faults on demand,
// and records every call and its effect in a ledger. See README.md, or --help.
package main
