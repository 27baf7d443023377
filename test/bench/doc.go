// Package bench measures csi-reclaimer beside a reference, on one control plane and one mock driver: what it costs the
// driver and the API server, how fast it is, and how large.
//
// The reference is the ProvisionController of sig-storage-lib-external-provisioner, as package peer runs it: once
// at its defaults (a client of 5 calls a second, burst 10) and once without a limit and with 100 threads. Both run with
// v10 of the library, which csi-reclaimer embeds and the goals name, and with v13, which external-provisioner 6.4 uses.
// Each is a process of its own. Runs alternate between the subjects, and medians count. What the same set-up does
// without a subject stands beside: the limit.
//
// Rates and processor time are measured without an audit log, counts with one: writing it takes time. etcd does not
// wait for the disk. Families whose control plane has no controller manager measure the subject; the others also
// measure the controller manager, which binds claims and releases PVs one after the other.
//
// What a figure means, and its goal, stands in the table of its family; package report judges and writes them. Package
// subject starts the programs and reads what they use, package fill writes PVs into etcd, claims.go does what users do.
// Tests do not time anything: what is counted exactly is tested in test/e2e.
package bench
