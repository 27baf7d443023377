// Package bench measures csi-reclaimer beside a reference, on one control plane and one mock driver: its load on the
// driver and the API server, its speed, and its size.
//
// The reference is the ProvisionController of sig-storage-lib-external-provisioner, as package peer runs it: once at
// its defaults (a client of 5 calls a second, burst 10) and once without a limit and with 100 threads. Both run with
// v10 of the library, which csi-reclaimer requires and the goals name, and with v13, which external-provisioner 6.4
// uses. Each is a separate process. Runs alternate between the subjects, and medians count. The limit is the figure of
// the same set-up without a subject.
//
// The families growth_… measure costs beside more and more objects, and judge the slope. The families outage and
// many_pods simulate large clusters, and are measured only by name.
//
// Rates and processor time are measured without an audit log, because writing it takes time, and counts with one. etcd
// does not wait for the disk. Families whose control plane has no controller manager measure the subject. The others
// also measure the controller manager, which binds claims and releases PVs one after the other.
//
// The table of a family has the meaning and the goal of each figure; package report judges and writes them. bench.go
// lists the families: package volumes is about csi-reclaimer, pods about volume-guard, and growth about costs
// beside many objects. Package session is common to all: the environment, the users, and the record of values.
// Package subject starts the programs and reads their use of resources, and package fill writes PVs into etcd. The
// tests measure no time, and test/e2e tests exact counts.
package bench
