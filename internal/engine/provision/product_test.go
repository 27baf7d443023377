package provision

import (
	"testing"
	"time"
)

// pvs returns all PersistentVolumes of a name that the engine distinguishes.
func pvs() (list []PV) {
	reads := []time.Time{{}, now, now.Add(-time.Hour)}
	list = append(list, PV{})
	for _, read := range reads[1:] {
		list = append(list, PV{Known: true, Read: read})
	}
	for bits := range 1 << 4 {
		for _, handle := range []string{"vol-0", "vol-1"} {
			for _, read := range reads {
				list = append(list, PV{
					Known: true, Exists: true, OfClaim: bits&1 > 0, OfDriver: bits&2 > 0, Terminating: bits&4 > 0,
					Elsewhere: bits&8 > 0, Handle: handle, Read: read,
				})
			}
		}
	}
	return list
}

// claims returns all combinations of claims.
func claims(names, bindings []string, nodes []NodeSelection) (list []Claim) {
	for bits := range 1 << 3 {
		for _, name := range names {
			for _, volume := range bindings {
				for _, node := range nodes {
					for _, read := range []time.Time{{}, now, now.Add(-time.Hour)} {
						list = append(list, Claim{
							UID: uid, Ours: bits&1 > 0, Terminating: bits&2 > 0, Gone: bits&4 > 0,
							PVName: name, VolumeName: volume, Node: node, Read: read,
						})
					}
				}
			}
		}
	}
	return list
}

const long = "pvc-" + string(uid)

func isTrue(bits, bit int) bool { return bits&bit > 0 }

// The product of all facts for a name without an open entry: the driver is never called.
func TestDecideWithoutOpenEntry(t *testing.T) {
	all := pvs()
	for _, c := range append(claims([]string{long}, []string{"", long, "x"},
		[]NodeSelection{NodeAny, NodeNone, NodeHere, NodeElsewhere}), Claim{}) {
		for _, pv := range all {
			for bits := range 1 << 5 {
				for log := LogUnknown; log <= LogOthers; log++ {
					if isTrue(bits, 8) == (log == LogOpen) {
						continue // the other test has open entries; without the lease, one state is enough
					}
					f := Facts{MayAct: isTrue(bits, 8), First: isTrue(bits, 1), Wanted: isTrue(bits, 2), Composed: isTrue(bits, 4),
						Prepared: isTrue(bits, 16), Log: log, Claim: c, PV: pv}
					checkClosed(t, f, Decide(f, now, quiet))
				}
			}
		}
	}
}

func checkClosed(t *testing.T, f Facts, d Decision) {
	t.Helper()
	wrong := ""
	sure := f.First || f.PV.Known && fresh(f.Claim.Read, now)
	switch d.Action {
	case Wait, BuildRequest, ReadPV, ReadClaim:
	case Prepare:
		if !f.Composed || f.Log != LogAbsent {
			wrong = "a request is prepared that is not composed, or has no place"
		}
	case OpenEntry:
		switch c := f.Claim; {
		case f.Log != LogAbsent:
			wrong = "an entry is written although the log is not known to have none"
		case !sure:
			wrong = "an entry is written although one may have been closed, without live reads"
		case f.PV.stored():
			wrong = "an entry is written although the PV is stored"
		case !c.needsVolume() || !f.Wanted || f.PV.Exists:
			wrong = "an entry is written for a claim that needs none"
		case !f.Composed || !f.Prepared:
			wrong = "an entry is written without a request that can be sent"
		case c.Node == NodeElsewhere:
			wrong = "an entry is written for another node"
		}
	default:
		wrong = "without an entry"
	}
	if d.Action != Wait && (!f.MayAct || f.Log == LogUnknown || f.Log == LogChanging) {
		wrong = "a step while another leads, or the log is not known"
	}
	if wrong != "" {
		t.Fatalf("%v: %s: %+v", d.Action, wrong, f)
	}
}

// records returns all states of an open entry.
func records() (list []Record) {
	sent, settled := Request{Node: "a", MayReschedule: true, Sent: true},
		Request{Node: "a", MayReschedule: true, Sent: true, Settled: true}
	for _, requests := range [][]Request{
		{{Node: "a"}}, {sent}, {settled}, {{Sent: true}}, {{}}, {sent, {Node: "b"}}, {settled, sent}, {settled, settled},
		{sent, settled},
	} {
		for _, unanswered := range []time.Time{{}, now, now.Add(-quiet)} {
			for bits := range 1 << 4 {
				r := Record{Claim: uid, Count: len(requests), Unanswered: unanswered, Discarding: isTrue(bits, 1),
					By: bits & 8 >> 3 % len(requests)}
				copy(r.Requests[:], requests)
				if isTrue(bits, 2) {
					r.Volume, r.Handle, r.Unfit = VolumeMade, "vol-1", isTrue(bits, 4)
					r.InPVForm = len(list)%3 > 0
				} else if isTrue(bits, 4) {
					continue
				}
				list = append(list, r)
			}
		}
	}
	return list
}

// The product of the facts for an open entry.
func TestDecideWithOpenEntry(t *testing.T) {
	all, known := pvs(), records()
	aparts := []PV{{}, {Known: true, Exists: true, OfDriver: true, Handle: "vol-1"},
		{Known: true, Exists: true, OfDriver: true, Handle: "vol-1", Read: now}}
	for i, c := range claims([]string{long, "pvc-1111"}, []string{"", "x"}, []NodeSelection{NodeAny}) {
		if i%3 > 0 || !c.Ours || c.Terminating && c.Gone {
			continue
		}
		c.SelectedNode = "b"
		for j, pv := range all {
			if pv.Exists && (pv.OfClaim || pv.Terminating) && (i/3+j)%8 > 0 {
				continue // every eighth claim is enough for these PersistentVolumes
			}
			for _, r := range known {
				for bits := range 1 << 3 {
					f := Facts{
						MayAct: true, Log: LogOpen, Wanted: isTrue(bits, 1), Composed: isTrue(bits, 2), Shared: isTrue(bits, 4),
						Claim: c, PV: pv, Record: r, Apart: aparts[(bits+j)%3], Prepared: j%2 > 0, SecondFailed: j%5 == 0,
						VersionNoted: j%7 > 0, Confirmed: j%11 > 0,
					}
					checkOpen(t, f, Decide(f, now, quiet))
				}
			}
		}
	}
}

func checkOpen(t *testing.T, f Facts, d Decision) {
	t.Helper()
	wrong := ""
	r := f.Record
	settled, sent := true, false
	for _, q := range r.Requests[:r.Count] {
		settled, sent = settled && q.Settled, sent || q.Sent
	}
	calm := r.Unanswered.IsZero() || now.Sub(r.Unanswered) >= quiet
	isNamed := func(p PV) bool { return p.Exists && p.OfDriver && p.Handle == "vol-1" && p.Read.Equal(now) }
	isMade := r.Volume == VolumeMade
	switch d.Action {
	case Wait, ReadPV, ConfirmEntry:
	case BuildRequest, Prepare:
		if f.SecondFailed || isMade || settled {
			wrong = "a second request keeps the first one from being repeated"
		}
	case OpenEntry:
		if !f.Wanted || !f.Composed || !f.Prepared || f.SecondFailed || isMade || settled {
			wrong = "a request is added that is not wanted, or cannot be sent"
		}
	case CreateVolume, NoteVersion:
		if f.VersionNoted != (d.Action == CreateVolume) {
			wrong = "the driver is called whose version the log does not have, or it has it already"
		}
		if isMade || settled || !sent && !f.Claim.needsVolume() || r.Discarding && !calm {
			wrong = "not asked for, or made already, or a deletion may still arrive"
		}
		switch repeats := r.Requests[r.Next].Sent && r.Count == 1 && !r.Discarding; {
		case repeats && f.PV.Exists && f.PV.OfClaim && f.PV.OfDriver && !f.PV.Elsewhere:
			wrong = "a call is repeated on a volume that pods may use"
		case repeats && d.Action == CreateVolume && !f.PV.Read.Equal(now):
			wrong = "a call is repeated without a live read of the PersistentVolume"
		}
	case StorePV:
		if !isMade || r.Unfit || f.PV.Exists {
			wrong = "not made, not fit, or there is one"
		}
	case StoreApart:
		if !isMade || r.Unfit || !f.PV.Exists || !f.PV.Elsewhere || f.PV.Handle == "vol-1" && f.PV.OfDriver ||
			f.Claim.needsVolume() {
			wrong = "not made, not fit, or its own name is free"
		}
	case MarkDiscarding, DeleteVolume:
		alone := f.Claim.PVName == long
		named := f.PV.Exists && f.PV.OfDriver && f.PV.Handle == "vol-1"
		switch {
		case !r.InPVForm && f.PV.Exists && f.PV.OfDriver && f.PV.OfClaim:
			wrong = "a volume that its own PV may name in another form"
		case !isMade || !r.Unfit || f.Shared || !alone || named:
			wrong = "a volume that is fit, or may be another's"
		case d.Action == DeleteVolume && (!r.Discarding || !f.PV.Known || !f.PV.Read.Equal(now)):
			wrong = "without mark or live read"
		}
	case CloseEntry:
		stored := isMade && calm && (isNamed(f.PV) || !r.Unfit && isNamed(f.Apart))
		nothing := !isMade && (settled || !sent && !f.Claim.needsVolume())
		inUse := !isMade && calm && r.Count == 1 && !r.Discarding && f.PV.Exists && f.PV.OfClaim && f.PV.OfDriver &&
			!f.PV.Elsewhere && f.PV.Read.Equal(now)
		if !stored && !nothing && !inUse {
			wrong = "neither stored nor settled nor never sent"
		}
	default:
		wrong = "with an open entry"
	}
	if f.Confirmed == (d.Action == ConfirmEntry) {
		wrong = "the entry may be settled, or was confirmed before"
	}
	if wrong != "" {
		t.Fatalf("%v (%s): %s: %+v", d.Action, d.Reason, wrong, f)
	}
}
