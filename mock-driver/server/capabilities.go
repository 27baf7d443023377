package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Capability is a capability in the form of the flags: service and name in the specification, such as
// controller/EXPAND_VOLUME.
type Capability string

// Capabilities that the code uses by name, a part of [AllCapabilities].
const (
	ControllerService   Capability = "plugin/CONTROLLER_SERVICE"
	VolumeTopology      Capability = "plugin/VOLUME_ACCESSIBILITY_CONSTRAINTS"
	SnapshotTopology    Capability = "plugin/SNAPSHOT_ACCESSIBILITY_CONSTRAINTS"
	ExpansionOnline     Capability = "plugin/EXPANSION_ONLINE"
	ExpansionOffline    Capability = "plugin/EXPANSION_OFFLINE"
	CreateDeleteVolume  Capability = "controller/CREATE_DELETE_VOLUME"
	PublishUnpublish    Capability = "controller/PUBLISH_UNPUBLISH_VOLUME"
	ListVolumes         Capability = "controller/LIST_VOLUMES"
	ListPublishedNodes  Capability = "controller/LIST_VOLUMES_PUBLISHED_NODES"
	GetCapacity         Capability = "controller/GET_CAPACITY"
	CreateDelSnapshot   Capability = "controller/CREATE_DELETE_SNAPSHOT"
	ListSnapshots       Capability = "controller/LIST_SNAPSHOTS"
	CloneVolume         Capability = "controller/CLONE_VOLUME"
	PublishReadonly     Capability = "controller/PUBLISH_READONLY"
	ControllerExpand    Capability = "controller/EXPAND_VOLUME"
	GetVolume           Capability = "controller/GET_VOLUME"
	ControllerWriters   Capability = "controller/SINGLE_NODE_MULTI_WRITER"
	ModifyVolume        Capability = "controller/MODIFY_VOLUME"
	GetSnapshot         Capability = "controller/GET_SNAPSHOT"
	ControllerHealth    Capability = "controller/GET_VOLUME_HEALTH"
	ListVolumeHealth    Capability = "controller/LIST_VOLUME_HEALTH"
	ControllerCondition Capability = "controller/VOLUME_CONDITION"
	NodeStage           Capability = "node/STAGE_UNSTAGE_VOLUME"
	NodeStats           Capability = "node/GET_VOLUME_STATS"
	NodeExpand          Capability = "node/EXPAND_VOLUME"
	NodeWriters         Capability = "node/SINGLE_NODE_MULTI_WRITER"
	NodeMountGroup      Capability = "node/VOLUME_MOUNT_GROUP"
	NodeHealth          Capability = "node/GET_VOLUME_HEALTH"
	NodeStorageHealth   Capability = "node/GET_STORAGE_HEALTH"
	NodeCondition       Capability = "node/VOLUME_CONDITION"
)

// Numbers of the alpha capability VOLUME_CONDITION, which v1.13 removed but deployed drivers still report.
const (
	controllerConditionNumber = 11
	nodeConditionNumber       = 4
)

// Capabilities is the set of capabilities that a driver advertises.
type Capabilities map[Capability]bool

// AllCapabilities returns every capability that the driver can advertise, sorted.
func AllCapabilities() []Capability {
	all := []Capability{ControllerService, VolumeTopology, SnapshotTopology, ExpansionOnline, ExpansionOffline,
		ControllerCondition, NodeCondition}
	for number, name := range csi.ControllerServiceCapability_RPC_Type_name {
		if number != 0 {
			all = append(all, Capability("controller/"+name))
		}
	}
	for number, name := range csi.NodeServiceCapability_RPC_Type_name {
		if number != 0 {
			all = append(all, Capability("node/"+name))
		}
	}
	slices.Sort(all)
	return all
}

// find returns the capabilities of a flag value: a single one, or the equally named ones of all services.
func find(word string) ([]Capability, error) {
	var found []Capability
	for _, c := range AllCapabilities() {
		_, name, _ := strings.Cut(string(c), "/")
		if strings.EqualFold(word, string(c)) || strings.EqualFold(word, name) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("unknown capability %q", word)
	}
	return found, nil
}

// Enable adds capabilities by name, with or without service.
func (s Capabilities) Enable(words ...string) error {
	for _, word := range words {
		found, err := find(word)
		if err != nil {
			return err
		}
		for _, c := range found {
			s[c] = true
		}
	}
	return nil
}

// Disable removes capabilities, together with their dependents.
func (s Capabilities) Disable(words ...string) error {
	for _, word := range words {
		found, err := find(word)
		if err != nil {
			return err
		}
		for _, c := range found {
			delete(s, c)
		}
	}
	s.dropUnsupported()
	return nil
}

func (s Capabilities) dropUnsupported() {
	for again := true; again; {
		again = false
		for c := range s {
			if s.missing(c) != "" {
				delete(s, c)
				again = true
			}
		}
	}
}

// Complete returns an error about the first capability that lacks another capability which the specification
// requires.
func (s Capabilities) Complete() error {
	for _, c := range s.List() {
		if need := s.missing(c); need != "" {
			return fmt.Errorf("capability %s needs %s", c, need)
		}
	}
	return nil
}

// Validate checks Complete, and rejects capabilities that exclude each other.
func (s Capabilities) Validate() error {
	if err := s.Complete(); err != nil {
		return err
	}
	if s[ExpansionOnline] && s[ExpansionOffline] {
		return fmt.Errorf("capabilities %s and %s exclude each other", ExpansionOnline, ExpansionOffline)
	}
	return nil
}

// missing returns the capability that c needs and the set lacks, or "".
func (s Capabilities) missing(c Capability) string {
	if strings.HasPrefix(string(c), "controller/") && !s[ControllerService] {
		return string(ControllerService)
	}
	needs := func(anyOf ...Capability) string {
		if slices.ContainsFunc(anyOf, func(n Capability) bool { return s[n] }) {
			return ""
		}
		return strings.Trim(fmt.Sprint(anyOf), "[]")
	}
	switch c {
	case CreateDelSnapshot, CloneVolume:
		return needs(CreateDeleteVolume)
	case ListPublishedNodes, PublishReadonly:
		return needs(PublishUnpublish)
	case SnapshotTopology:
		return needs(VolumeTopology)
	case ListVolumeHealth:
		return needs(ControllerHealth)
	case ExpansionOnline:
		return needs(ControllerExpand, NodeExpand)
	case ExpansionOffline:
		return needs(ControllerExpand)
	default:
		return ""
	}
}

// numbers returns the numbers of a service's capabilities in the specification, in the order of their names.
func (s Capabilities) numbers(service string, values map[string]int32) (list []int32) {
	for _, c := range s.List() {
		of, name, _ := strings.Cut(string(c), "/")
		number, known := values[name]
		switch c {
		case ControllerCondition:
			number, known = controllerConditionNumber, true
		case NodeCondition:
			number, known = nodeConditionNumber, true
		default:
		}
		if of == service && known {
			list = append(list, number)
		}
	}
	return list
}

// List returns the capabilities of the set, sorted.
func (s Capabilities) List() []Capability { return slices.Sorted(maps.Keys(s)) }

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

func only(list ...Capability) Capabilities { return with(Capabilities{}, list...) }

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
