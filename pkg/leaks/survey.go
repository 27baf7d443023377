package leaks

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// survey holds the results of all reads of one complete leak check.
type survey struct {
	// began is the start of the leak check, and listed the end of the volume list.
	began, listed time.Time
	listing       listing
	makers        []maker
	// snapshots and named are the keys of the volumes that snapshots and PVs name.
	snapshots, named map[string]bool
	// attached are the nodes that pods' inline volumes are attached to, by the keys of the volumes.
	attached map[string]string
	// unclear describes a PV or VolumeAttachment whose volume is unknown, or is empty.
	unclear string
	// claims are the UIDs of all claims in the cluster.
	claims map[types.UID]bool
	// inFlight are the driver's entries in the in-flight log, and unreadable describes an entry that cannot be read, or
	// is empty.
	inFlight   []inflight.Located
	unreadable string
	// ofEntry tells for each entry's volume name whether a PV of this name exists.
	ofEntry map[string]bool
	// unlisted are the CSI PVs by UID whose volume is not listed, with their descriptions.
	unlisted map[types.UID]string
	// pvs counts the PVs of the driver's volumes, and matched counts those whose volume is listed.
	pvs, matched int
}

// readAll makes all reads of a leak check in a fixed order. Volumes come first, so that the object that created or
// named a volume exists when its kind is read, or else is gone together with the volume. PVs come last, because an
// entry of the in-flight log is removed, and a claim is bound, only after the PV is stored. DESIGN.md has the proof
// for this order.
func readAll(ctx context.Context, driver string, asks Driver, at cluster, cfg Config) (survey, error) {
	now := cfg.Clock.Now
	s := survey{began: now(), snapshots: map[string]bool{}, named: map[string]bool{}, attached: map[string]string{},
		claims: map[types.UID]bool{}, ofEntry: map[string]bool{}, unlisted: map[types.UID]string{}}
	var err error
	if s.listing, err = list(ctx, asks, int32(cfg.PageSize), maxVolumes); err != nil {
		return survey{}, err
	}
	s.listed = now()
	if err = at.eachSnapshot(ctx, func(c snapshot.Content) { s.takeSnapshot(c, driver) }); err != nil {
		return survey{}, err
	}
	if err = at.eachAttachment(ctx, func(a *storagev1.VolumeAttachment) { s.takeAttachment(a, driver) }); err != nil {
		return survey{}, err
	}
	if err = at.eachClaim(ctx, func(c *v1.PersistentVolumeClaim) { s.takeClaim(c, driver) }); err != nil {
		return survey{}, err
	}
	entries, problems, err := at.inFlight(ctx, driver)
	if err != nil {
		return survey{}, err
	}
	s.takeLog(entries, problems, driver)
	if err = at.eachPV(ctx, func(pv *v1.PersistentVolume) { s.takePV(volume.At(cfg.Node, pv), driver) }); err != nil {
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

// takeAttachment records a volume without a PV that is attached: a volume of an in-tree plugin that a pod names inline,
// which is migrated to the driver. As for an in-tree PV, the driver may list it under another name.
func (s *survey) takeAttachment(a *storagev1.VolumeAttachment, driver string) {
	key, inline := inlineKey(a, driver)
	if !inline {
		return
	}
	s.attached[key] = a.Spec.NodeName
	if _, listed := s.listing.volumes[key]; !listed {
		s.unclear = "VolumeAttachment " + a.Name
	}
}

// inlineKey returns the key of the driver's volume that a VolumeAttachment names without a PV.
func inlineKey(a *storagev1.VolumeAttachment, driver string) (key string, inline bool) {
	spec := a.Spec.Source.InlineVolumeSpec
	if spec == nil || a.Spec.Attacher != driver {
		return "", false
	}
	return keyOf(volume.Of(&v1.PersistentVolume{Spec: *spec}).Handle), true
}

func (s *survey) takeClaim(c *v1.PersistentVolumeClaim, driver string) {
	s.claims[c.UID] = true
	if makes(c, driver) {
		s.makers = append(s.makers, maker{c.UID, "claim " + c.Namespace + "/" + c.Name})
	}
}

// takeLog records the driver's entries, each of which counts as a maker with its claim's UID, even if the claim is
// gone, because its volume may exist or still be created.
func (s *survey) takeLog(entries []inflight.Located, problems []inflight.LocatedProblem, driver string) {
	for _, e := range entries {
		if e.Driver == driver {
			s.inFlight = append(s.inFlight, e)
			s.ofEntry[e.Volume] = false
			s.makers = append(s.makers, maker{e.Claim.UID, "claim " + e.Claim.Namespace + "/" + e.Claim.Name})
		}
	}
	for _, p := range problems {
		if p.HidesEntries() && (p.Driver == driver || p.Driver == "") {
			s.unreadable = p.String()
		}
	}
}

// entryOf returns the entry of the in-flight log whose volume the handle may name: drivers put the requested name, or
// the claim's UID, into their handles.
func (s *survey) entryOf(handle string) (entry inflight.Located, found bool) {
	key := keyOf(handle)
	for _, e := range s.inFlight {
		if strings.Contains(key, keyOf(e.Volume)) || strings.Contains(key, keyOf(string(e.Claim.UID))) {
			return e, true
		}
	}
	return inflight.Located{}, false
}

// forgotten returns the entries begun before that time whose claim and PV do not exist.
func (s *survey) forgotten(before time.Time) (all []inflight.Located) {
	for _, e := range s.inFlight {
		if !s.claims[e.Claim.UID] && !s.ofEntry[e.Volume] && e.Begun.Before(before) {
			all = append(all, e)
		}
	}
	return all
}

// takePV records the volume of a PV, with a provision for in-tree PVs. The driver may list the volume of an in-tree
// PV under another name than its translation (paths of vSphere, projects of GCE). While no listed volume has the
// translated name, the PV may be for any of them. A CSI PV may name its volume otherwise than the driver lists it, too,
// such as a PV that a person wrote.
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
	case pv.Reach != volume.ReachElsewhere: // the driver of a node may list the volumes of this node alone
		s.unlisted[pv.UID] = "PV " + pv.Name
	}
}

// isEphemeral reports whether the handle has the form of the kubelet's ephemeral inline volumes: "csi-" and a SHA-256
// in hexadecimal (makeVolumeHandle in pkg/volume/csi).
func isEphemeral(handle string) bool {
	sum, found := strings.CutPrefix(handle, "csi-")
	return found && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
}

// snapshot returns the facts about a volume that follow from the survey alone.
func (s *survey) snapshot(v Volume, rules suspicionRules) facts {
	inFlight := presenceUnknown
	if _, found := s.entryOf(v.Handle); found || s.unreadable == "" {
		inFlight = presence(found)
	}
	_, attached := s.attached[keyOf(v.Handle)]
	return facts{
		InFlight:   inFlight,
		Rules:      rules,
		Snapshot:   presence(s.snapshots[keyOf(v.Handle)]),
		Unclear:    presence(s.unclear != ""),
		NamesMatch: s.pvs == 0 || s.matched > 0,
		InUse:      attached || len(v.Nodes) > 0,
		Ephemeral:  isEphemeral(v.Handle),
	}
}
