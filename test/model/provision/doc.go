// Package provision explores, to exhaustion within named bounds, what can happen to claims while their volumes are
// provisioned, and checks each step:
//
//   - P1: no volume is left that has neither a PersistentVolume nor an open entry in the in-flight log, at any moment;
//   - P2: no volume is deleted that an existing claim has or is to get, or that an administrator has kept by Retain,
//     no PersistentVolume is stored for a volume that is deleted, or does not match its request, CreateVolume is not
//     repeated for the only request of an entry whose volume has its PersistentVolume, and nothing is done with a
//     volume in a run that began after an operator settled its entry;
//   - P5: when users and faults stop, every state leads to rest: each claim that wants a volume has its
//     PersistentVolume or waits for a reason that is reported, each entry is settled unless the driver refuses for
//     ever, and no claim is terminating because of us.
//
// The provisioner in it is the engine that ships: Facts, Decide, Learn and Record. Played are those who answer: the API
// server with watches that lag for each object on their own; the in-flight log, whose writes are compare-and-swap;
// Kubernetes' controllers; users; the driver; the lease; and chance, which breaks what can break. So is reclaim, simply
// and faithfully: the volume of a PersistentVolume whose claim is gone is deleted, and then the PersistentVolume, but
// not while the leader's log has an entry of its name. What becomes of PersistentVolumes otherwise is the matter of
// test/model.
//
// A step that calls somebody is a call on its way: it arrives, its answer is taken, or it is not answered in time
// and may still arrive. Of the time that passes, the model keeps what the engine can distinguish: whether a live read
// still counts, and whether an earlier call can still arrive.
//
// # What all worlds hold constant
//
//   - One volume name is one shard of the log. Names share a Lease in truth: a write for another name makes one of
//     this name conflict, which is read again, as after a write that was not answered.
//   - Watches show an object's present state at any time, or one that they have received before, and none that is
//     older than what they have shown. They hold back one state each: more would be shown as well one after another.
//   - The name of a claim's volume. Package provision keeps the name after a restart with another prefix, and its tests
//     have the restarts.
//   - Sizes and content sources: a request is a number that differs from another one. Which fields differ does not
//     matter to the engine, which never looks into a request. A source that is gone keeps a request from being
//     prepared, as a Secret does.
//   - The log is never unreadable, which keeps the engine from writing an entry and from nothing else. The engine's own
//     tests ask about it. An entry that can be read only later is inherited then, as at a take-over. Where the log is
//     full, it lacks room for new entries and requests, not for a mark or a removal.
//   - DeleteVolume of a volume that is not as requested deletes it. If its Secret is gone with the claim, a driver may
//     answer OK and delete nothing: pkg/provision warns of that answer, and nothing proves more.
//
// # What is taken for granted
//
//   - A driver keeps the calls for one volume name apart (CSI specification, ABORTED), and answers OK to the request
//     that made the volume. It may refuse in doubt, unseen, but does not answer InvalidArgument or OutOfRange to
//     that very request, unless its version differs from the one that made the volume, or it lacks the Secret. A final
//     answer to the first call ever shows that this request made nothing.
//   - The version of the driver that is read before and after a call is that of the driver that was called.
//   - The API server's node, Secret and class are read live when a request is composed and prepared. A node that cannot
//     be read is one that is there.
//   - A replica that another has led after starts anew: what it remembered counts for nothing.
//   - The calls of a replica end with its lease. What is on the way may arrive until quiet has passed.
//   - A claim is known to be new to the log (Facts.First) only if it was created after the replica took over.
//   - A write of the log that was not answered is written again, on a live read, until one is answered.
//
// worlds.go has the worlds and what bounds them; world.go is what exists in one; cluster.go has the moves of users and
// Kubernetes, replica.go, steps.go and log.go those of a replica, arrive.go those of whom it calls; invariants.go holds
// the promises, written down apart from how the engine keeps them; trace.go has the words.
package provision
