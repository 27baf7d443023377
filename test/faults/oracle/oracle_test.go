package oracle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		tell func(*tale)
		want []string
	}{
		"claim first": {claimFirst, nil},
		"PV first": {func(t *tale) {
			t.pvGoes(user)
			t.claimGoes()
			t.reads()
			t.call("OK")
			t.released(sidecar)
		}, nil},
		"turned to Retain and kept": {func(t *tale) {
			t.policy("Retain")
			t.strip(sidecar)
			t.claimGoes()
			t.pvGoes(user)
			t.released(manager)
		}, nil},
		"turned to Retain while the PV was being read": {func(t *tale) {
			t.claimGoes()
			t.reads()
			flip := t.Requests[len(t.Requests)-1].Span
			t.policy("Retain")
			t.Requests[len(t.Requests)-1].Span = flip
			t.call("OK")
		}, nil},
		"deleted, the answer lost, asked again": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.call("OK")
			t.Calls[0].Code = "Unavailable"
			t.reads()
			t.call("OK")
			t.pvGoes(sidecar)
			t.released(sidecar)
		}, nil},
		"deleted, killed, asked again by the next process": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.call("OK")
			t.Processes = []Process{{Span: Span{start, t.now}}, {Span: Span{t.now.Add(time.Millisecond), t.now.Add(time.Hour)}}}
			t.tick()
			t.reads()
			t.call("OK")
			t.pvGoes(sidecar)
			t.released(sidecar)
		}, nil},
		"taken off by hand: the volume stays": {func(t *tale) {
			t.pvGoes(user)
			t.released(user)
		}, nil},
		"taken off by hand before the sidecar's process began, and gone: it cannot know": {func(t *tale) {
			t.MayLeak["pv"] = true
			t.strip(user)
			t.Processes = []Process{{Span: Span{start, t.now}}, {Span: Span{t.now, t.now.Add(time.Hour)}}}
			t.now = t.now.Add(time.Millisecond)
			t.pvGoes(user)
			t.claimGoes()
			t.released(manager)
			t.read("persistentvolumeclaims", "ns", 404)
			t.call("OK")
		}, nil},
		"gone before it could be protected: deleted afterwards": {func(t *tale) {
			t.strip(sidecar)
			t.Requests = t.Requests[1:] // it was never on
			t.pvGoes(user)
			t.claimGoes()
			t.released(manager)
			t.read("persistentvolumeclaims", "ns", 404)
			t.call("OK")
		}, nil},

		"a new claim has the name of the old one": {func(t *tale) {
			t.claimGoes()
			t.claimAgain("another")
			t.read("persistentvolumeclaims", "ns", 200)
			t.read("persistentvolumes", "", 200)
			t.call("OK")
			t.pvGoes(sidecar)
			t.released(sidecar)
		}, nil},
		"a new claim names the PV, which vanished unprotected: the volume stays": {func(t *tale) {
			t.strip(sidecar)
			t.Requests = t.Requests[1:] // it was never on
			t.pvGoes(user)
			t.claimGoes()
			t.claimAgain("pv")
			t.released(manager)
		}, nil},
		"a new claim names the PV: at rest": {func(t *tale) {
			t.claimGoes()
			t.claimAgain("pv")
			t.Now = append(t.Now, t.pv)
		}, nil},
		"STUCK: a new claim names another PV": {func(t *tale) {
			t.claimGoes()
			t.claimAgain("another")
			t.Now = append(t.Now, t.pv)
		}, []string{Stuck}},
		"WRONG DELETE: a new claim names the PV": {func(t *tale) {
			t.claimGoes()
			t.claimAgain("pv")
			t.read("persistentvolumeclaims", "ns", 200)
			t.read("persistentvolumes", "", 200)
			t.call("OK")
		}, []string{WrongDelete}},

		"LEAK: let go without a deletion": {func(t *tale) {
			t.pvGoes(user)
			t.claimGoes()
			t.released(sidecar)
		}, []string{Leak}},
		"LEAK: never protected": {func(t *tale) {
			t.strip(sidecar)
			t.claimGoes()
			t.pvGoes(user)
			t.released(manager)
		}, []string{Leak}},
		"LEFT EARLY: let go before the deletion": {func(t *tale) {
			t.pvGoes(user)
			t.claimGoes()
			t.reads()
			t.released(sidecar)
			t.call("OK")
		}, []string{WrongDelete, LeftEarly}},
		"LEFT EARLY: the driver was slower than the PV": {func(t *tale) {
			t.pvGoes(user)
			t.claimGoes()
			t.reads()
			t.call("OK")
			t.released(sidecar)
			t.Calls[0].Done = t.now
			t.Calls[0].Answered = t.now
		}, []string{LeftEarly}},
		"WRONG DELETE: policy Retain": {func(t *tale) {
			t.policy("Retain")
			t.claimGoes()
			t.reads()
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim lives": {func(t *tale) {
			t.pv.Phase = "Released"
			t.write(manager, "update", t.pv)
			t.read("persistentvolumeclaims", "ns", 200)
			t.read("persistentvolumes", "", 200)
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: nothing was read": {func(t *tale) {
			t.claimGoes()
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim was not read": {func(t *tale) {
			t.claimGoes()
			t.read("persistentvolumes", "", 200)
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: read long ago": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.now = t.now.Add(time.Minute)
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: tried again on what was read before": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.call("Internal")
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: read by the process before": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.restarted()
			t.call("OK")
		}, []string{WrongDelete}},
		"a call of the process before, which comes when the next has begun": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.restarted()
			t.call("OK")
			t.Calls[0].PID = 7
			t.pvGoes(user)
			t.released(sidecar)
		}, nil},
		"WRONG DELETE: by a process that read nothing": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.restarted()
			t.call("OK")
			t.Calls[0].PID = 8
		}, []string{WrongDelete}},
		"WRONG DELETE: by somebody else": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.Processes[0].PID = 7
			t.call("OK")
			t.Calls[0].PID = 9
		}, []string{WrongDelete}},
		"WRONG DELETE: without a finalizer": {func(t *tale) {
			t.strip(user)
			t.claimGoes()
			t.reads()
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: the claim was taken back": {func(t *tale) {
			t.claimGoes()
			t.pv.ClaimUID = ""
			t.write(user, "patch", t.pv)
			t.reads()
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: bound anew": {func(t *tale) {
			t.claimGoes()
			t.pv.ClaimUID, t.pv.Phase = "other", "Bound"
			t.write(manager, "update", t.pv)
			t.reads()
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: taken off by hand, and gone": {func(t *tale) {
			t.claimGoes()
			t.pvGoes(user)
			t.released(user)
			t.read("persistentvolumeclaims", "ns", 404)
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: taken off by hand while it lived, and gone": {func(t *tale) {
			t.MayLeak["pv"] = true
			t.strip(user)
			t.pvGoes(user)
			t.claimGoes()
			t.released(manager)
			t.read("persistentvolumeclaims", "ns", 404)
			t.call("OK")
		}, []string{WrongDelete}},
		"WRONG DELETE: a volume of nobody": {func(t *tale) {
			t.call("OK")
			t.Calls[0].Volume = "other"
		}, []string{WrongDelete}},
		"IN USE: attached for long": {func(t *tale) {
			t.write(user, "create", Object{Kind: Attachment, Name: "va", UID: "va-uid", Volume: "pv"})
			t.now = t.now.Add(time.Minute)
			claimFirst(t)
		}, []string{InUse}},
		"attached a moment ago: the watch may not know": {func(t *tale) {
			t.write(user, "create", Object{Kind: Attachment, Name: "va", UID: "va-uid", Volume: "pv"})
			claimFirst(t)
		}, nil},
		"attached for long, with a watch that was held up": {func(t *tale) {
			t.write(user, "create", Object{Kind: Attachment, Name: "va", UID: "va-uid", Volume: "pv"})
			t.Lags = []Span{{t.now, t.now.Add(2 * time.Minute)}}
			t.now = t.now.Add(time.Minute)
			claimFirst(t)
		}, nil},
		"IN USE: another PV has the volume": {func(t *tale) {
			other := t.pv
			other.Name, other.UID = "other", "other-uid"
			t.write(user, "create", other)
			t.now = t.now.Add(time.Minute)
			claimFirst(t)
		}, []string{InUse}},
		"a call that was under way when the sidecar was killed": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.Processes = []Process{{Span: Span{start, t.now.Add(-time.Millisecond)}}}
			t.call("OK")
			t.pvGoes(user)
			t.released(sidecar)
		}, nil},
		"WRONG DELETE: long after the sidecar was killed": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.Processes = []Process{{Span: Span{start, t.now}}}
			t.now = t.now.Add(2 * time.Second)
			t.call("OK")
			t.pvGoes(user)
			t.released(sidecar)
		}, []string{WrongDelete}},
		"two PVs of one volume, each deleted after its own reads": {func(t *tale) {
			other := t.pv
			other.Name, other.UID, other.ClaimName, other.ClaimUID, other.Phase = "b", "b-uid", "b", "b-claim", "Released"
			t.write(user, "create", other)
			t.claimGoes()
			t.reads()
			t.call("OK")
			t.call("OK")
			t.pvGoes(sidecar)
			t.released(sidecar)
			other.Finalizers, other.Terminating = nil, true
			t.write(sidecar, "patch", other)
		}, nil},
		"DOUBLE: again after success": {func(t *tale) {
			t.claimGoes()
			t.reads()
			t.call("OK")
			t.reads()
			t.call("OK")
			t.pvGoes(sidecar)
			t.released(sidecar)
		}, []string{DoubleDelete}},
		"STUCK: deleted, and nothing happens": {func(t *tale) {
			t.claimGoes()
			t.Now = []Object{t.pv}
		}, []string{Stuck}},
		"STORM: writes": {func(t *tale) {
			t.WriteBudget = Budget{"pv": 2}
			for range 7 {
				t.write(sidecar, "patch", t.pv)
			}
		}, []string{Storm}},
		"STORM: Events": {func(t *tale) {
			t.EventBudget = Budget{"pv": 1}
			t.Events["pv"] = 4
		}, []string{Storm}},
		"STORM: calls": {func(t *tale) {
			t.claimGoes()
			t.CallBudget = Budget{"pv": 1}
			for range 4 {
				t.reads()
				t.call("Internal")
			}
		}, []string{Storm}},
		"STORM: calls by the thousand, told in a few lines": {func(t *tale) {
			t.claimGoes()
			t.CallBudget = Budget{"pv": 1}
			for range 5000 {
				t.reads()
				t.call("Internal")
			}
		}, []string{Storm}},
		"within the budget": {func(t *tale) {
			t.WriteBudget = Budget{"pv": 2}
			for range 6 {
				t.write(sidecar, "patch", t.pv)
			}
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			told := begin()
			c.tell(told)
			sortByTime(told.Requests)
			found := Judge(told.Case)
			var kinds []string
			for _, f := range found {
				kinds = append(kinds, f.Kind)
				if len(f.History) > 2*longest+1 {
					t.Errorf("%s is told in %d lines", f.Kind, len(f.History))
				}
				if len(f.History) == 0 && f.PV != "?" {
					t.Errorf("%s is told without its history", f.Kind)
				}
			}
			if !slices.Equal(kinds, c.want) {
				t.Errorf("found %q, want %q", kinds, c.want)
				for _, f := range found {
					t.Log(f)
				}
			}
		})
	}
}

func TestUnrest(t *testing.T) {
	claim := Object{Kind: Claim, Name: "pv", UID: "claim-uid"}
	pv := begin().pv
	change := func(do func(*Object)) Object { o := pv; do(&o); return o }
	released := change(func(o *Object) { o.Phase = "Released" })
	cases := map[string]struct {
		now  []Object
		rest bool
	}{
		"bound and protected":            {[]Object{pv, claim}, true},
		"bound and unprotected":          {[]Object{change(func(o *Object) { o.Finalizers = nil }), claim}, false},
		"terminating, its claim lives":   {[]Object{change(func(o *Object) { o.Terminating = true }), claim}, true},
		"released":                       {[]Object{released}, false},
		"released and attached":          {[]Object{released, {Kind: Attachment, Volume: "pv"}}, true},
		"released, another PV needs it":  {[]Object{released, change(func(o *Object) { o.Name, o.UID, o.ClaimUID = "b", "b", "" })}, true},
		"released, so is the other":      {[]Object{released, change(func(o *Object) { o.UID, o.Phase = "b", "Released" })}, false},
		"released, unprotected":          {[]Object{change(func(o *Object) { o.Phase, o.Finalizers = "Released", nil })}, false},
		"its claim is gone":              {[]Object{pv}, false},
		"its claim is going":             {[]Object{pv, {Kind: Claim, UID: "claim-uid", Terminating: true}}, false},
		"Retain with the finalizer":      {[]Object{change(func(o *Object) { o.Policy = "Retain" }), claim}, false},
		"Retain, bound and terminating":  {[]Object{change(func(o *Object) { o.Policy, o.Terminating = "Retain", true }), claim}, true},
		"Retain, released":               {[]Object{change(func(o *Object) { o.Policy, o.Phase, o.Finalizers = "Retain", "Released", nil })}, true},
		"unclaimed, terminating":         {[]Object{change(func(o *Object) { o.ClaimUID, o.Phase, o.Terminating = "", "Available", true })}, false},
		"abandoned, held by another":     {[]Object{change(func(o *Object) { o.Phase, o.Terminating, o.Finalizers = "Released", true, []string{"x"} })}, true},
		"terminating, with no finalizer": {[]Object{change(func(o *Object) { o.Phase, o.Terminating, o.Finalizers = "Released", true, []string{pvProtection} })}, false},
		"of another driver":              {[]Object{change(func(o *Object) { o.Driver, o.Phase = "e", "Released" })}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Unrest("d", ours, c.now); (len(got) == 0) != c.rest {
				t.Errorf("got %+v, want rest: %t", got, c.rest)
			}
		})
	}
}

const auditLines = `{"kind":"Event","verb":"patch","user":{"username":"s"},"objectRef":{"resource":"persistentvolumes","name":"mine"},"responseStatus":{"code":200},"responseObject":{"kind":"PersistentVolume","metadata":{"name":"mine","uid":"u","resourceVersion":"7","finalizers":["a/b"]},"spec":{"persistentVolumeReclaimPolicy":"Delete","csi":{"driver":"d","volumeHandle":"h"},"claimRef":{"name":"c","uid":"x"}},"status":{"phase":"Bound"}},"requestReceivedTimestamp":"2030-01-01T00:00:02.000000Z","stageTimestamp":"2030-01-01T00:00:03.000000Z"}
{"kind":"Event","verb":"get","user":{"username":"s"},"objectRef":{"resource":"persistentvolumes","name":"mine"},"responseStatus":{"code":404},"requestReceivedTimestamp":"2030-01-01T00:00:01.000000Z","stageTimestamp":"2030-01-01T00:00:01.500000Z"}
{"kind":"Event","verb":"get","objectRef":{"resource":"persistentvolumes","name":"another"},"responseStatus":{"code":200}}
{"kind":"Event","verb":"delete","objectRef":{"resource":"volumeattachments","name":"mine"},"responseStatus":{"code":200},"responseObject":{"kind":"Status","details":{"name":"mine","uid":"v"}},"requestReceivedTimestamp":"2030-01-01T00:00:04.000000Z","stageTimestamp":"2030-01-01T00:00:04.500000Z"}
{"kind":"Event","verb":"get","objectRef":{"name":"mi`

func TestReadAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(auditLines), 0o600); err != nil {
		t.Fatal(err)
	}
	requests, err := ReadAudit(path, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != 3 || requests[0].Code != 404 || requests[0].Object != nil {
		t.Fatalf("got %+v", requests)
	}
	if got := requests[1].Object.String(); got != "PV mine Bound Delete claimed +b" {
		t.Errorf("got %q", got)
	}
	if o := requests[2].Object; o == nil || o.UID != "v" || o.Kind != Attachment {
		t.Errorf("got %+v", o)
	}
	if err := os.WriteFile(path, []byte("mine {\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAudit(path, "mine"); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %v, want the line that is damaged", err)
	}
}
