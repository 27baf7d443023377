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
	controllerConditionNumber csi.ControllerServiceCapability_RPC_Type = 11
	nodeConditionNumber       csi.NodeServiceCapability_RPC_Type       = 4
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

// List returns the capabilities of the set, sorted.
func (s Capabilities) List() []Capability { return slices.Sorted(maps.Keys(s)) }
