package oracle

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// namedBy precedes the claim's UID in the names of its PV and volume (the defaults of --volume-name-prefix and
// --volume-name-uuid-length).
const namedBy = "pvc-"

// volumeOf is the PV that a claim's volume has, or is to have.
func volumeOf(claim Object, handle string) Object {
	return Object{
		Kind: PV, Name: namedBy + claim.UID, Handle: handle, Driver: claim.Driver,
		ClaimNamespace: claim.Namespace, ClaimName: claim.Name, ClaimUID: claim.UID,
	}
}

// claimOf returns the claim of the volume with this name.
func (j *judge) claimOf(name string) (timeline, bool) {
	uid, named := strings.CutPrefix(name, namedBy)
	claim := j.lives[uid]
	return claim, named && claim != nil
}

// provisions reports whether the driver was to make the claim's volume, or was asked for it.
func (j *judge) provisions(claim timeline) bool {
	name := namedBy + claim[0].UID
	return slices.ContainsFunc(claim, func(m moment) bool { return m.Driver == j.Driver && m.Driver != "" }) ||
		slices.ContainsFunc(j.creations, func(c ledger.Call) bool { return c.Name == name })
}

// judgeProvisioning checks that at every moment each volume has a PV or an entry of the in-flight log.
func (j *judge) judgeProvisioning() {
	asked := map[string]int{}
	for _, c := range j.creations {
		if asked[c.Name]++; asked[c.Name] <= enough {
			j.judgeCreation(c)
		}
	}
	for _, shard := range j.shards {
		j.judgeSettled(shard)
	}
	for _, claim := range j.claims {
		about := volumeOf(claim[0].Object, "")
		writes := 0
		for _, r := range j.Requests {
			if j.writesClaim(r) && r.Object.UID == claim[0].UID {
				writes++
			}
		}
		j.judgeStorm(about, "writes of the claim", writes, j.ClaimBudget)
		j.judgeStorm(about, "Events about the claim", j.ClaimEvents[about.Name], j.ClaimBudget)
		j.judgeStorm(about, "CreateVolume calls", asked[about.Name], j.ClaimBudget)
	}
	for _, r := range j.Requests {
		if j.writesClaim(r) && !j.provisions(j.lives[r.Object.UID]) {
			j.found(Foreign, volumeOf(*r.Object, ""), "%s of claim %s/%s, of driver %q", r.Verb, r.Namespace, r.Name,
				r.Object.Driver)
		}
	}
	for _, handle := range slices.Sorted(maps.Keys(j.made)) {
		if claim, found := j.claimOf(j.made[handle]); found && len(j.family(handle)) == 0 {
			j.judgeRepeatsOf(volumeOf(claim[0].Object, handle), 1)
		}
	}
	j.judgeLeft()
}

// writesClaim reports whether the sidecar has changed a claim.
func (j *judge) writesClaim(r Request) bool {
	return r.User == j.User && r.write() && r.Resource == "persistentvolumeclaims" && r.Object != nil && r.Object.UID != ""
}

// judgeCreation checks that the in-flight log has the entry before the driver is called.
func (j *judge) judgeCreation(c ledger.Call) {
	about := Object{Kind: PV, Name: c.Name, Handle: c.Volume, Driver: j.Driver}
	if claim, found := j.claimOf(c.Name); found {
		about = volumeOf(claim[0].Object, c.Volume)
	}
	logs := func(m moment) bool { return !m.gone && m.logs(c.Name) }
	for _, shard := range j.shards {
		if slices.ContainsFunc(shard.during(Span{c.Received, c.Received}), logs) {
			return
		}
	}
	j.found(Unlogged, about, "CreateVolume(%s) at %s, and the in-flight log had no entry", c.Name, clock(c.Received))
}

// judgeSettled checks that the sidecar removes an entry of the in-flight log only when its volume has a PV, or does not
// exist.
func (j *judge) judgeSettled(shard timeline) {
	for i := 1; i < len(shard); i++ {
		now := shard[i]
		for _, volume := range shard[i-1].Entries {
			if now.by == j.User && !now.logs(volume) {
				j.judgeRemoved(volume, now)
			}
		}
	}
}

func (j *judge) judgeRemoved(volume string, now moment) {
	about := Object{Kind: PV, Name: volume, Driver: j.Driver}
	if claim, found := j.claimOf(volume); found {
		about = volumeOf(claim[0].Object, "")
	}
	for _, c := range j.creations {
		there := c.Changed && c.Name == volume && c.Done.Before(now.commit.From) && !j.deletedBefore(c.Volume, now.commit.To)
		if there && !j.stored(c.Volume, now.commit.To) {
			about.Handle = c.Volume
			j.found(LeftEarly, about, "the entry of %s was removed while its volume %s had no PV", volume, c.Volume)
		}
	}
}

// deletedBefore reports whether the volume was deleted by a time.
func (j *judge) deletedBefore(handle string, at time.Time) bool {
	return slices.ContainsFunc(j.calls, func(c ledger.Call) bool {
		return c.Volume == handle && c.Changed && !c.Done.After(at)
	})
}

// stored reports whether a PV that names the volume may have been made by a time.
func (j *judge) stored(handle string, by time.Time) bool {
	return slices.ContainsFunc(j.family(handle), func(pv timeline) bool { return !pv[0].commit.From.After(by) })
}

// judgeLeft checks that at the end each provisioned volume has had a PV, which is judged by itself, or has an entry.
func (j *judge) judgeLeft() {
	of := map[string]string{} // handles by name
	for _, handle := range slices.Sorted(maps.Keys(j.OnDisk)) {
		name := j.OnDisk[handle]
		if !strings.HasPrefix(name, namedBy) {
			continue
		}
		about := Object{Name: name, Handle: handle}
		claim, found := j.claimOf(name)
		if found {
			about = volumeOf(claim[0].Object, handle)
		}
		if other := of[name]; other != "" {
			j.found(MadeTwice, about, "volumes %s and %s are there", other, handle)
		}
		of[name] = handle
		logged := slices.ContainsFunc(j.Now, func(o Object) bool { return o.logs(name) })
		if !logged && len(j.family(handle)) == 0 {
			j.found(Leak, about, "volume %s never had a PV, and the in-flight log has no entry for it", handle)
		}
	}
}

// objectionWithoutPV returns the objection to the deletion of a volume that no PV has named so far: a creation that has
// begun is finished, and not undone. about is the PV that it would have had.
func (j *judge) objectionWithoutPV(c ledger.Call) (about Object, objection string) {
	claim, found := j.claimOf(j.made[c.Volume])
	if !found {
		return Object{Name: "?", Handle: c.Volume}, "no PV of the driver names the volume"
	}
	about = volumeOf(claim[0].Object, c.Volume)
	if len(j.family(c.Volume)) > 0 {
		return about, "its PV was made afterwards"
	}
	return about, "it never had a PV"
}
