// Package oracle judges a sidecar's actions from outside. Its sources are the API server's audit log, which has the
// versions of every PV and claim with the time of their commit, a watch, which also has versions whose request was
// given up before its answer, the mock driver's ledger, and the driver's disk. It shares no code with pkg/reclaim and
// pkg/provision, and asks them nothing. It knows the promises of the reclaim contract (P1 to P5) and of provisioning:
// no volume exists at any moment without a PV or a claim that is held for it, and none is deleted but with its claim.
// All holds for role owner with its default settings.
//
// Times on other processes' clocks are not exact: a version was committed somewhere between its request and its answer,
// and a read shows any version that may have been current in that time. So a reported action is wrong in every possible
// order, and each [Finding] comes with the history that shows it.
package oracle
