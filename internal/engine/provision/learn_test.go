package provision

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

func TestLearn(t *testing.T) {
	done, lost, failed := Reply{Class: errclass.Done}, Reply{Class: errclass.Uncertain}, Reply{Class: errclass.Refused}
	with := func(r Reply, edit func(*Reply)) Reply {
		edit(&r)
		return r
	}
	cases := map[string]struct {
		facts  Facts
		action Action
		reply  Reply
		want   func(Facts) bool
	}{
		"a wait teaches nothing": {begun(), Wait, done, func(f Facts) bool { return f == begun() }},
		"a request is not prepared": {begun(), BuildRequest, done,
			func(f Facts) bool { return !f.Prepared && !f.SecondFailed }},
		"it is": {waiting(func(f *Facts) { f.Prepared = false }), Prepare, done,
			func(f Facts) bool { return f == waiting() }},
		"it cannot be": {waiting(func(f *Facts) { f.Prepared = false }), Prepare, failed,
			func(f Facts) bool { return !f.Prepared && !f.SecondFailed }},
		"a second request is not composed": {begun(), BuildRequest, failed, func(f Facts) bool { return f.SecondFailed }},
		"a second request is not prepared": {begun(), Prepare, failed, func(f Facts) bool { return f.SecondFailed }},
		"a second request has no room": {begun(), OpenEntry, with(failed, func(r *Reply) { r.Log = LogFull }),
			func(f Facts) bool { return f.SecondFailed && f.Log == LogOpen && f.Record == begun().Record }},
		"a first request has no room": {waiting(), OpenEntry, with(failed, func(r *Reply) { r.Log = LogFull }),
			func(f Facts) bool { return !f.SecondFailed && f.Log == LogFull }},
		"a second request may be stored": {begun(), OpenEntry, with(lost, func(r *Reply) { r.Log = LogChanging }),
			func(f Facts) bool { return !f.SecondFailed && f.Log == LogChanging }},
		"a read of the PV": {
			waiting(), ReadPV, with(done, func(r *Reply) { r.PV = PV{Known: true, Read: now} }),
			func(f Facts) bool { return f.PV == PV{Known: true, Read: now} },
		},
		"a read of the PV that failed": {
			waiting(cached), ReadPV, with(lost, func(r *Reply) { r.PV = PV{Known: true, Read: now} }),
			func(f Facts) bool { return f == waiting(cached) },
		},
		"a read of the claim": {
			waiting(), ReadClaim, with(done, func(r *Reply) { r.Claim = Claim{UID: uid, Gone: true} }),
			func(f Facts) bool { return f.Claim == Claim{UID: uid, Gone: true} },
		},
		"a read of the claim that failed": {waiting(), ReadClaim, lost, func(f Facts) bool { return f == waiting() }},
		"an entry is written": {
			waiting(), OpenEntry, with(done, func(r *Reply) { r.Request.Node = "a" }),
			func(f Facts) bool {
				return f.Log == LogOpen && f.Record == Opened(uid, Request{Node: "a"}) && f.Confirmed
			},
		},
		"an entry is not written": {
			waiting(), OpenEntry, with(lost, func(r *Reply) { r.Log = LogChanging }),
			func(f Facts) bool { return f.Log == LogChanging && f.Record == Record{} },
		},
		"an entry with an unknown outcome": {waiting(), OpenEntry, lost, func(f Facts) bool { return f.Log == LogUnknown }},
		"a request is added": {
			begun(), OpenEntry, with(done, func(r *Reply) { r.Request.Node = "b" }),
			func(f Facts) bool {
				return f.Log == LogOpen && f.Record.Count == 2 && f.Record.Requests[0].Sent && f.Record.Next == 1
			},
		},
		"a PV is stored": {made(), StorePV, done,
			func(f Facts) bool { return f.named() && f.namedLive(now) && f.PV.stored() }},
		"a PV that may be stored": {
			made(), StorePV, lost, func(f Facts) bool { return !f.PV.Known && !f.Record.Quiet(now, quiet) },
		},
		"a PV that is not stored": {
			made(), StorePV, failed, func(f Facts) bool { return !f.PV.Known && f.Record.Quiet(now, quiet) },
		},
		"a PV whose name is taken": {
			made(), StorePV, with(failed, func(r *Reply) { r.PV = PV{Known: true, Exists: true} }),
			func(f Facts) bool { return f.PV.Exists && !f.named() },
		},
		"a PV is stored apart": {made(), StoreApart, done, func(f Facts) bool { return f.named() && !f.PV.Exists }},
		"a deletion is marked": {made(unfit), MarkDiscarding, done,
			func(f Facts) bool { return f.Log == LogOpen && f.Record.Discarding }},
		"a deletion may be marked": {
			made(unfit), MarkDiscarding, with(lost, func(r *Reply) { r.Log = LogChanging }),
			func(f Facts) bool { return f.Log == LogChanging && !f.Record.Discarding },
		},
		"a mark of before stays": {made(unfit, discarding), MarkDiscarding, with(failed, func(r *Reply) { r.Log = LogOpen }),
			func(f Facts) bool { return f.Record.Discarding }},
		"a version is noted": {begun(func(f *Facts) { f.VersionNoted = false }), NoteVersion, done,
			func(f Facts) bool { return f.VersionNoted && f.Log == LogOpen }},
		"a version may be noted": {
			begun(), NoteVersion, with(lost, func(r *Reply) { r.Log = LogChanging }),
			func(f Facts) bool { return f.Log == LogChanging && !f.VersionNoted },
		},
		"an entry is confirmed": {begun(func(f *Facts) { f.Confirmed = false }), ConfirmEntry, done,
			func(f Facts) bool { return f == begun() }},
		"an entry is not confirmed": {begun(), ConfirmEntry, lost, func(f Facts) bool { return !f.Confirmed }},
		"a volume is deleted, after a while": {made(unfit), DeleteVolume, done,
			func(f Facts) bool { return !f.Confirmed && f.Record.Volume == VolumeUnknown }},
		"an entry is closed": {made(live), CloseEntry, done, func(f Facts) bool {
			return f.Log == LogChanging && f.Record == Record{} && !f.Confirmed
		}},
		"the driver has answered": {
			begun(), CreateVolume, with(done, func(r *Reply) { r.Handle = "vol-1" }),
			func(f Facts) bool { return f.Record.Volume == VolumeMade && f.Record.Handle == "vol-1" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := tc.facts
			f.Learn(tc.action, tc.reply, false, now, now, quiet)
			if !tc.want(f) {
				t.Errorf("learned %+v", f)
			}
		})
	}
}
