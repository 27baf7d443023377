// Package leadership measures how long a replica may still act as the leader, and refuses writes after that.
//
// client-go's leader election reads its clock only when it renews the Lease. A process that was paused for longer than
// its lease, or whose machine was suspended, therefore continues as leader until the renew deadline, while another
// replica leads already. A Clock observes each renewal when it is sent, and measures with a clock that counts
// suspended time (CLOCK_BOOTTIME on Linux).
//
// After a restore of etcd, the Lease goes back to an earlier state, and watches may miss changes. The wrapped lock does
// not take that Lease. A program ends then, on each replica ([Clock.Back]), and starts with new caches.
//
// A program that elects a leader wraps its lock, and passes the Clock to the controllers that act:
//
//	clock := leadership.NewClock()
//	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: clock.Lock(lock), ...})
//	reclaimer, err := reclaim.New(config, driver, deleter, reclaim.Config{Lease: clock, ...})
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package leadership
