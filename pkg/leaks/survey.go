package leaks

import (
	"context"
	"iter"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// survey is what one leak check has read: all of it, or it is none.
type survey struct {
	// began is when the leak check did, listed when the list of volumes was complete.
	began, listed time.Time
	listing       listing
	makers        []maker
	// snapshots and named are the keys of the volumes that a snapshot, and a PV, name.
	snapshots, named map[string]bool
	// unclear describes a PV whose volume is unknown; empty for none.
	unclear string
	// claims are the UIDs of all claims.
	claims map[types.UID]bool
	// inFlight are the driver's entries in the in-flight log, and unreadable says of one that cannot be read; empty
	// for none.
	inFlight   []inflight.Located
	unreadable string
	// ofEntry are the names of the entries' volumes that a PV has.
	ofEntry map[string]bool
	// pvs is how many PVs are about volumes of the driver, matched how many name a listed one.
	pvs, matched int
}

// readAll reads all that a leak check needs, in this order. Volumes come first, so that whatever made or named one
// of them is there when it is read, and has not gone without the volume being gone too. PVs come last:
// an entry of the in-flight log goes, and a claim is seen to be done with its volume, only once the PV is there.
// DESIGN.md has the proof.
func readAll(ctx context.Context, driver string, asks Driver, at cluster, pageSize int32,
	now func() time.Time) (survey, error) {
	s := survey{began: now(), snapshots: map[string]bool{}, named: map[string]bool{}, claims: map[types.UID]bool{},
		ofEntry: map[string]bool{}}
	var err error
	if s.listing, err = list(ctx, asks, pageSize, maxVolumes); err != nil {
		return survey{}, err
	}
	s.listed = now()
	if err = at.eachSnapshot(ctx, func(c snapshot.Content) { s.takeSnapshot(c, driver) }); err != nil {
		return survey{}, err
	}
	if err = at.eachClaim(ctx, func(c *v1.PersistentVolumeClaim) { s.takeClaim(c, driver) }); err != nil {
		return survey{}, err
	}
	entries, problems, err := at.inFlight(ctx)
	if err != nil {
		return survey{}, err
	}
	s.takeLog(entries, problems, driver)
	if err = at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(volume.Of(pv), driver) }); err != nil {
		return survey{}, err
	}
	return s, nil
}

func (s *survey) takeSnapshot(c snapshot.Content, driver string) {
	if c.Driver != driver {
		return
	}
	if c.Handle != "" {
		s.snapshots[keyOf(c.Handle)] = true
	}
	if c.Making {
		s.makers = append(s.makers, maker{c.UID, "VolumeSnapshotContent " + c.Name})
	}
}

func (s *survey) takeClaim(c *v1.PersistentVolumeClaim, driver string) {
	s.claims[c.UID] = true
	if makes(c, driver) {
		s.makers = append(s.makers, maker{c.UID, "claim " + c.Namespace + "/" + c.Name})
	}
}

// takeLog notes the driver's entries. The volume of one may be there or come, whatever became of its claim: it has
// the same key as the claim that waits.
func (s *survey) takeLog(entries []inflight.Located, problems []inflight.LocatedProblem, driver string) {
	for _, e := range entries {
		if e.Driver == driver {
			s.inFlight = append(s.inFlight, e)
			s.ofEntry[e.Volume] = false
			s.makers = append(s.makers, maker{e.Claim.UID, "claim " + e.Claim.Namespace + "/" + e.Claim.Name})
		}
	}
	for _, p := range problems {
		if p.Driver == driver || p.Driver == "" {
			s.unreadable = p.String()
		}
	}
}

// entryOf returns the entry of the in-flight log whose volume a handle may name: drivers put the name that they were
// given, or the claim's UID in it, into their handles.
func (s *survey) entryOf(handle string) (entry inflight.Located, found bool) {
	key := keyOf(handle)
	for _, e := range s.inFlight {
		if strings.Contains(key, keyOf(e.Volume)) || strings.Contains(key, keyOf(string(e.Claim.UID))) {
			return e, true
		}
	}
	return inflight.Located{}, false
}

// forgotten returns the entries that were begun before then, and whose claim and PV do not exist.
func (s *survey) forgotten(before time.Time) (all []inflight.Located) {
	for _, e := range s.inFlight {
		if !s.claims[e.Claim.UID] && !s.ofEntry[e.Volume] && e.Begun.Before(before) {
			all = append(all, e)
		}
	}
	return all
}

// takePV notes which volume a PV is about. That of an in-tree plugin may be listed under another name than
// the one it translates to: for some plugins the translation is not what the driver says (paths of vSphere,
// projects of GCE). So while the driver lists nothing under that name, it may be any of the others.
func (s *survey) takePV(pv volume.PV, driver string) {
	if _, inFlight := s.ofEntry[pv.Name]; inFlight {
		s.ofEntry[pv.Name] = true
	}
	handle, about := names(pv, driver)
	if !about {
		return
	}
	key := keyOf(handle)
	_, listed := s.listing.volumes[key]
	s.pvs++
	s.named[key] = true
	switch {
	case listed:
		s.matched++
	case handle == "" || pv.InTree:
		s.unclear = "PV " + pv.Name
	}
}

// isEphemeral reports whether a volume is named as the kubelet names those that it makes for one pod:
// makeVolumeHandle in pkg/volume/csi, "csi-" and a SHA-256 in hexadecimal.
func isEphemeral(handle string) bool {
	sum, found := strings.CutPrefix(handle, "csi-")
	return found && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
}

// snapshot returns what the survey alone says about a volume.
func (s *survey) snapshot(v Volume, rules Rules) Facts {
	inFlight := PresenceUnknown
	if _, found := s.entryOf(v.Handle); found || s.unreadable == "" {
		inFlight = presence(found)
	}
	return Facts{
		InFlight:   inFlight,
		Rules:      rules,
		Snapshot:   presence(s.snapshots[keyOf(v.Handle)]),
		Unclear:    presence(s.unclear != ""),
		NamesMatch: s.pvs == 0 || s.matched > 0,
		InUse:      len(v.Nodes) > 0,
		Ephemeral:  isEphemeral(v.Handle),
	}
}

// sizeOf is the size of volumes, as far as the driver reports it. Sizes that no disk has do not make it negative.
func sizeOf[V any](volumes iter.Seq[V], bytes func(V) int64) (sum int64) {
	for v := range volumes {
		sum = max(sum, sum+bytes(v))
	}
	return sum
}
