package oracle

import (
	"fmt"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// The kinds of findings.
const (
	// Leak: the PV is gone, its volume is not, and was to be deleted; or it never had a PV, and the in-flight log has no
	// entry for it.
	Leak = "leak"
	// LeftEarly: the PV was released before its volume was deleted, or the entry of the in-flight log was removed
	// before its volume had a PV: a crash in between would have been a leak.
	LeftEarly = "left early"
	// Unlogged: CreateVolume without an entry in the in-flight log: a crash right after would have been a leak.
	Unlogged = "unlogged"
	// MadeTwice: a claim has two volumes.
	MadeTwice = "made twice"
	// Foreign: a write to a claim of another driver.
	Foreign = "foreign"
	// WrongDelete: DeleteVolume without live reads that show that the volume may go.
	WrongDelete = "wrong delete"
	// InUse: DeleteVolume while an attachment or another PV had held the volume for long.
	InUse = "deleted in use"
	// DoubleDelete: DeleteVolume again by a process that had the volume deleted.
	DoubleDelete = "double delete"
	// Stuck: a PV or claim does not come to rest.
	Stuck = "stuck"
	// Storm: more than three times the justified writes, Events or calls.
	Storm = "storm"
)

const (
	// readFor is how old a live read may be when the driver is called: 5 seconds by the contract, and a
	// second for a busy machine.
	readFor = 6 * time.Second
	// lagFor is the possible lag of a watch that no fault holds up.
	lagFor = 2 * time.Second
	// flightFor is how long a call may be under way to the driver.
	flightFor = time.Second
	// contestAfter strips by others the finalizer is not asked for any more on a PV, and on none after that many
	// on each of contestedPVs.
	contestAfter, contestedPVs = 3, 3
	// stormFactor times the budget is a storm.
	stormFactor = 3
)

// Budget holds the justified numbers of writes, Events or calls, by the name of the PV, which is also the name of a
// provisioned volume. Missing names are not judged.
type Budget map[string]int

// Case is the history of one driver's volumes. Requests are in order of arrival, as ReadAudit returns them.
type Case struct {
	Driver string
	// Finalizer is the finalizer that protects PVs, and User the sidecar's user in the API server.
	Finalizer, User string
	// ClaimsWatched means that the sidecar watches claims, and does not read a claim whose end it saw.
	ClaimsWatched bool
	// Timeout is the sidecar's timeout for the driver. It may not have received an answer that came close to it.
	Timeout time.Duration

	// Requests are all users' requests for the driver's PVs, their claims and attachments, and the in-flight log.
	Requests []Request
	// Seen are the versions of these objects as a watch showed them, in order.
	Seen []Seen
	// Calls are all DeleteVolume calls, and the sidecar's CreateVolume calls.
	Calls []ledger.Call
	// OnDisk are the volumes on the driver's disk at the end: the names of their creation, by handle.
	OnDisk map[string]string
	// Now are the PVs, claims, attachments, classes and shards of the in-flight log at the end.
	Now []Object
	// Processes are the sidecar's, in order; the last may end in the future.
	Processes []Process
	// Lags are the times in which a watch of the sidecar was held up.
	Lags []Span
	// MayLeak are names of PVs that were deleted before the sidecar could protect them.
	MayLeak map[string]bool
	// Events and ClaimEvents count the sidecar's Events on PVs and on the claims that they are provisioned for, by the
	// PV's name. WriteBudget, EventBudget and CallBudget hold the justified writes, Events and calls for a PV. ClaimBudget
	// holds the justified number for a claim, which counts for writes, for Events and for CreateVolume calls.
	Events, ClaimEvents                               map[string]int
	WriteBudget, EventBudget, CallBudget, ClaimBudget Budget
	// Notes are lines of the history that neither log has: the actions of users and faults.
	Notes []Note
}

// Process is one process of the sidecar: its life, and its id, 0 if unknown.
type Process struct {
	Span
	PID int
}

// Note is a line of a history.
type Note struct {
	At   time.Time
	Text string
}

// Finding is a broken promise.
type Finding struct {
	// Kind is one of Leak, WrongDelete and so on.
	Kind string
	// PV is the name of the affected PV, which may not exist, and What describes the fault.
	PV, What string
	// History has the events of the PV and its volume, in order.
	History []string
}

// String is the finding with its history.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: PV %s: %s", f.Kind, f.PV, f.What)
	for i, line := range f.History {
		text += fmt.Sprintf("\n  %3d. %s", i+1, line)
	}
	return text
}

// judge is a Case that is being read.
type judge struct {
	Case
	lives map[string]timeline
	pvs   []timeline
	// claims are the claims for which the driver's volumes were, or should be, provisioned.
	claims []timeline
	// shards are the shards of the in-flight log.
	shards []timeline
	// calls are the DeleteVolume calls, creations the CreateVolume calls, and made the names of volumes by handle.
	calls, creations []ledger.Call
	made             map[string]string
	// gets are the sidecar's reads of single objects, in order of arrival, by object.
	gets     map[object][]Request
	findings []Finding
}

// object names the object of a read.
type object struct{ resource, namespace, name string }

// enough calls of one volume are judged: more of them are a storm, and found as one.
const enough = 100

// Judge returns all findings, nil for none.
func Judge(c Case) []Finding {
	j := newJudge(c)
	j.lives, j.gets = lives(c.Requests, c.Seen), map[object][]Request{}
	j.pvs = of(j.lives, PV, func(l timeline) bool { return l.living().Driver == c.Driver })
	j.claims = of(j.lives, Claim, j.provisions)
	j.shards = of(j.lives, Log, func(timeline) bool { return true })
	for _, r := range c.Requests {
		if r.User == c.User && r.Verb == "get" {
			about := object{r.Resource, r.Namespace, r.Name}
			j.gets[about] = append(j.gets[about], r)
		}
	}
	looked := map[string]int{}
	for _, call := range j.calls {
		if looked[call.Volume]++; looked[call.Volume] <= enough {
			j.judgeCall(call)
		}
	}
	for _, pv := range j.pvs {
		j.judgeRepeats(pv)
		j.judgeEnd(pv)
		j.judgeStorms(pv)
	}
	j.judgeProvisioning()
	for _, u := range Unrest(c.Driver, c.Finalizer, c.Now) {
		j.found(Stuck, u.Object, "%s", u.Why)
	}
	for _, u := range UnrestClaims(c.Driver, c.Now) {
		j.found(Stuck, volumeOf(u.Object, ""), "claim %s: %s", u.Name, u.Why)
	}
	for _, u := range UnrestLog(c.Now) {
		j.found(Stuck, u.Object, "%s", u.Why)
	}
	return j.findings
}

// newJudge sorts the calls.
func newJudge(c Case) *judge {
	j := &judge{Case: c, calls: ledger.Select(c.Calls, "DeleteVolume"), creations: ledger.Select(c.Calls, "CreateVolume"),
		made: map[string]string{}}
	for _, call := range j.creations {
		if call.Volume != "" {
			j.made[call.Volume] = call.Name
		}
	}
	return j
}

// found reports something once for each PV: the first time shows it, and more would bury it.
func (j *judge) found(kind string, pv Object, format string, args ...any) {
	if slices.ContainsFunc(j.findings, func(f Finding) bool { return f.Kind == kind && f.PV == pv.Name }) {
		return
	}
	j.findings = append(j.findings, Finding{
		Kind: kind, PV: pv.Name, What: fmt.Sprintf(format, args...), History: j.history(pv),
	})
}

// process returns the process that sent a call. If the driver could not tell, it is the process that ran then, or ran
// last, since a call may arrive after its process's end.
func (j *judge) process(c ledger.Call) (Process, bool) {
	for _, p := range slices.Backward(j.Processes) {
		switch {
		case c.Received.Before(p.From):
		case c.PID == 0 || p.PID == 0:
			return p, !c.Received.After(p.To.Add(flightFor))
		case c.PID == p.PID:
			return p, true
		}
	}
	return Process{}, false
}

// heard reports whether the sidecar got the answer that the volume is deleted.
func (j *judge) heard(c ledger.Call) bool {
	p, known := j.process(c)
	inTime := j.Timeout == 0 || c.Answered.Sub(c.Received) < j.Timeout*9/10
	return known && c.Code == "OK" && !c.Lost && inTime && c.Answered.Before(p.To)
}

// judgeRepeats checks that after a successful deletion the same process sends no other for that PV.
func (j *judge) judgeRepeats(pv timeline) {
	family := j.family(pv[0].Handle)
	if family[0][0].UID != pv[0].UID {
		return // reported once for all PVs of the volume
	}
	j.judgeRepeatsOf(pv[0].Object, len(family))
}

// judgeRepeatsOf does so for a volume that so many PVs have.
func (j *judge) judgeRepeatsOf(about Object, pvs int) {
	for _, process := range j.Processes {
		done, after := false, 0
		for _, c := range j.calls {
			if by, known := j.process(c); c.Volume != about.Handle || !known || by != process {
				continue
			}
			if done {
				after++
			}
			done = done || j.heard(c)
		}
		if after >= pvs {
			j.found(DoubleDelete, about, "DeleteVolume was sent %d times by a process that had the volume deleted", after)
		}
	}
}

// judgeEnd finds a PV that was removed before its volume was deleted.
func (j *judge) judgeEnd(pv timeline) {
	end, gone := pv.end()
	last := pv.living()
	if !gone || last.Policy != "Delete" || last.ClaimUID == "" || j.MayLeak[last.Name] ||
		j.finalizerRemovedByOthers(pv) || j.heldByAnother(pv) {
		return
	}
	if _, there := j.OnDisk[last.Handle]; there && named(last, j.Now) {
		return // the claim keeps the volume
	}
	if _, there := j.OnDisk[last.Handle]; there {
		j.found(Leak, last, "the PV is gone, and its volume %s is there", last.Handle)
		return
	}
	for _, c := range j.calls {
		if c.Volume == last.Handle && c.Changed {
			if c.Done.After(end.commit.To) && j.heldToTheEnd(pv) {
				j.found(LeftEarly, last, "the PV was gone %v before its volume was", c.Done.Sub(end.commit.To))
			}
			return
		}
	}
}

// finalizerRemovedByOthers reports whether another user removed the finalizer while the PV was terminating.
func (j *judge) finalizerRemovedByOthers(pv timeline) bool {
	for i := 1; i < len(pv); i++ {
		before, now := pv[i-1], pv[i]
		if before.Terminating && before.has(j.Finalizer) && !now.has(j.Finalizer) && now.by != j.User {
			return true
		}
	}
	return false
}

// heldToTheEnd reports whether the finalizer was on the PV when it was to be deleted with its volume, and not only
// while the policy was another.
func (j *judge) heldToTheEnd(pv timeline) bool {
	for _, m := range slices.Backward(pv) {
		if m.has(j.Finalizer) {
			return m.Policy == "Delete" && m.ClaimUID != ""
		}
	}
	return false
}

// contested reports whether others removed the finalizer from the PV again and again while it was not terminating, or
// did so with several.
func (j *judge) contested(pv timeline) bool {
	several := 0
	for _, other := range j.pvs {
		if j.strips(other) >= contestAfter {
			several++
		}
	}
	return j.strips(pv) >= contestAfter || several >= contestedPVs
}

// strips counts how often others removed the finalizer from a PV that was not terminating.
func (j *judge) strips(pv timeline) (n int) {
	for i := 1; i < len(pv); i++ {
		before, now := pv[i-1], pv[i]
		if before.has(j.Finalizer) && !now.has(j.Finalizer) && !now.Terminating && now.by != j.User {
			n++
		}
	}
	return n
}

// heldByAnother reports whether a PV that is there holds the volume.
func (j *judge) heldByAnother(pv timeline) bool {
	return slices.ContainsFunc(j.pvs, func(other timeline) bool {
		return other[0].UID != pv[0].UID && other.living().Handle == pv[0].Handle && !other.last().gone
	})
}

func (j *judge) judgeStorms(pv timeline) {
	name, handle := pv[0].Name, pv[0].Handle
	writes, calls := 0, 0
	for _, r := range j.Requests {
		if r.User == j.User && r.write() && r.Resource == "persistentvolumes" && r.Name == name {
			writes++
		}
	}
	for _, c := range j.calls {
		if c.Volume == handle {
			calls++
		}
	}
	j.judgeStorm(pv[0].Object, "writes", writes, j.WriteBudget)
	j.judgeStorm(pv[0].Object, "Events", j.Events[name], j.EventBudget)
	j.judgeStorm(pv[0].Object, "DeleteVolume calls", calls, j.CallBudget)
}

func (j *judge) judgeStorm(about Object, what string, got int, budgets Budget) {
	if budget, given := budgets[about.Name]; given && got > stormFactor*budget {
		j.found(Storm, about, "%d %s, where there were reasons for %d", got, what, budget)
	}
}
