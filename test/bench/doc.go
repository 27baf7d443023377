// Package bench measures csi-reclaimer beside a reference, on one control plane and one mock driver: what it costs the
// driver and the API server, how fast it is, and how large.
//
// The reference is the ProvisionController of sig-storage-lib-external-provisioner v10, as package peer runs it: once
// at its defaults (a client of 5 calls a second, burst 10) and once without a limit and with 100 threads. Each is a
// process of its own. Runs alternate between the subjects, and medians count. What no subject can exceed is measured in
// the same way and stands beside: bare PATCHes, bare DeleteVolume calls, the controller manager alone.
//
// What figures mean and what they are to be is in the table of families; how objects get into the cluster in volume
// set.go (a user's volumes, by the API) and fill.go (a hundred thousand, into etcd). Tests do not time anything: what
// is counted exactly is tested in test/e2e.
package bench
