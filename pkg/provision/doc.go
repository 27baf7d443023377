// Package provision makes the volumes of claims, such that none is left behind without a
// PersistentVolume: not by a crash between CreateVolume and the PV's creation, not by a claim that
// is deleted meanwhile, not by an answer that was lost.
//
// It is the Provisioner of sig-storage-lib-external-provisioner's own ProvisionController, and
// runs that controller. What a volume is asked to be like is left to an [Orders], of which
// [Composer] is the one for a real cluster and driver; deleting the volumes of PVs is left to
// package reclaim.
//
// # How it is used
//
// [New] makes a [Provisioner] and starts nothing; [Provisioner.Run] works until its context ends.
// [Config] holds what can be chosen.
//
// # How it works
//
// A finalizer holds a claim from before the first CreateVolume until its PV is stored, or nothing
// is left. observe.go gathers facts about one claim into a [Snapshot]; decide.go is a pure
// function from Snapshot to [Decision], one step at a time; execute.go has the step carried out,
// adds what was learned, and decides again. The library's workers (library.go) and a small loop
// of our own (controller.go) both ask [Decide]: the one for claims that are to get a volume, the
// other for those that are not to get one any more.
package provision
