// Package oracle judges what a sidecar did, from outside: from the API server's audit log, which has the versions of
// every PV and claim with the time in which each was committed, from a watch, which also has those whose request was
// given up before its answer, from the mock driver's ledger, and from the driver's disk. It shares no code with
// pkg/reclaim and pkg/provision and asks them nothing. What is right is what the reclaim contract promises (P1 to P5),
// and what provisioning does: no volume is there, at any moment, without a PV or a claim that is held for it; none is
// deleted but with its claim. All for role owner with its default settings.
//
// A time on another process's clock is never taken for exact: a version was committed somewhere between its request and
// its answer, and a read shows any version that may have been current meanwhile. So what is reported is wrong whatever
// happened in between, and each [Finding] comes with the history that shows it.
package oracle
