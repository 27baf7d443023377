package server

import (
	"fmt"
	"slices"
	"strings"
)

// Profile is a kind of driver: a named set of capabilities.
type Profile struct {
	Name string
	// Help describes drivers of this kind in one line.
	Help         string
	Capabilities Capabilities
}

// Profiles returns all kinds of drivers that the server can play.
func Profiles() []Profile {
	return []Profile{
		{"full", "every capability of CSI v1.13 but topology (give --topology) and offline expansion", full()},
		{"minimal", "creates and deletes volumes, nothing else", only(ControllerService, CreateDeleteVolume)},
		{"no-attach", "like full, without ControllerPublishVolume", full(PublishUnpublish)},
		{"no-stage", "like full, without NodeStageVolume", full(NodeStage)},
		{"no-list", "like full, but cannot list volumes, snapshots or health",
			full(ListVolumes, ListPublishedNodes, ListSnapshots, ListVolumeHealth)},
		{"no-snapshot", "like full, without snapshots and clones", full(CreateDelSnapshot, ListSnapshots, GetSnapshot,
			CloneVolume)},
		{"offline-expand", "like full, but volumes grow only while unused", with(full(ExpansionOnline), ExpansionOffline)},
		{"topology", "like full, volumes bound to one place (--topology, default zone-a)", with(full(), VolumeTopology)},
		{"legacy", "a driver of CSI v1.12: VOLUME_CONDITION instead of the health calls",
			with(full(ControllerHealth, ListVolumeHealth, NodeHealth, NodeStorageHealth), ControllerCondition, NodeCondition)},
		{"static", "neither creates nor deletes: volumes are there beforehand (--static-volume)", full(CreateDeleteVolume)},
		{"node-only", "no controller service at all", only(NodeStage, NodeStats, NodeMountGroup)},
	}
}

// FindProfile returns the profile of that name, or an error that lists all names.
func FindProfile(name string) (Profile, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("unknown profile %q: want one of %s", name, strings.Join(names, ", "))
}

func only(list ...Capability) Capabilities {
	s := Capabilities{}
	for _, c := range list {
		s[c] = true
	}
	return s
}

// full returns all capabilities that a single driver can advertise, except the given ones and their dependents.
func full(without ...Capability) Capabilities {
	without = append(without, VolumeTopology, SnapshotTopology, ExpansionOffline, ControllerCondition, NodeCondition)
	s := Capabilities{}
	for _, c := range AllCapabilities() {
		if !slices.Contains(without, c) {
			s[c] = true
		}
	}
	s.dropUnsupported()
	return s
}

func with(s Capabilities, list ...Capability) Capabilities {
	for _, c := range list {
		s[c] = true
	}
	return s
}
