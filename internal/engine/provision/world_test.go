package provision

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	quiet = time.Minute
	uid   = types.UID("11111111-2222-3333-4444-555555555555")
)

var now = time.Unix(1_000_000, 0)

// waiting returns the edited facts about a claim that waits for its volume.
func waiting(edit ...func(*Facts)) Facts {
	f := Facts{
		MayAct: true, First: true, Wanted: true, Composed: true, Prepared: true, Confirmed: true, VersionNoted: true,
		Log:   LogAbsent,
		Claim: Claim{Namespace: "ns", Name: "data", UID: uid, Ours: true, PVName: "pvc-" + string(uid)},
	}
	for _, e := range edit {
		e(&f)
	}
	return f
}

// begun returns the edited facts about an entry whose request was sent long ago without an answer, and whose claim has
// no PersistentVolume according to a live read.
func begun(edit ...func(*Facts)) Facts {
	f := waiting()
	f.Log, f.Record = LogOpen, Opened(uid, Request{})
	f.Record.Sending()
	f.Record.Unanswered, f.Record.Failed = now.Add(-quiet), true
	absent(&f)
	for _, e := range edit {
		e(&f)
	}
	return f
}

// made returns the edited facts about an entry whose volume the driver has named.
func made(edit ...func(*Facts)) Facts {
	f := begun()
	f.Record.Volume, f.Record.Handle, f.Record.InPVForm, f.Record.Failed = VolumeMade, "vol-1", true, false
	f.PV = PV{}
	for _, e := range edit {
		e(&f)
	}
	return f
}

// live sets the claim's PersistentVolume, read just now.
func live(f *Facts) {
	f.PV = PV{Known: true, Exists: true, OfClaim: true, OfDriver: true, Handle: "vol-1", Read: now}
}

// cached sets the same PersistentVolume from a watch cache.
func cached(f *Facts) {
	live(f)
	f.PV.Read = time.Time{}
}

// absent sets the result of a live read without a PersistentVolume.
func absent(f *Facts) { f.PV = PV{Known: true, Read: now} }

// gone removes the claim.
func gone(f *Facts) { f.Claim.Gone, f.Wanted = true, false }

func unfit(f *Facts)      { f.Record.Unfit = true }
func discarding(f *Facts) { f.Record.Discarding = true }
func loud(f *Facts)       { f.Record.Unanswered = now.Add(time.Second - quiet) }

// migrated gives the driver's id another form than the handle of the claim's PersistentVolume.
func migrated(f *Facts) { f.Record.InPVForm, f.PV.Handle = false, "in-tree-1" }
