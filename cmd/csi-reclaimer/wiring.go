package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
)

// wiring is the part of a process's setup that depends on capabilities of its driver. Other capabilities, such as
// CLONE_VOLUME, may change while the process runs.
type wiring struct {
	topology, capacity, leaks, snapshots, node bool
	// neverAttached: the reclaimer does not check VolumeAttachments, because the driver never attaches volumes.
	neverAttached bool
}

func (o *options) wiring() wiring {
	return wiring{
		topology: o.gates.Enabled(topologyGate), capacity: o.publishes(), leaks: o.checksLeaks(),
		snapshots: o.checksLeaks() || o.sweeps(), node: o.node.on,
	}
}

// misfit is a pure function. It returns the reason, in words, if a process that is set up for the driver before cannot
// continue with the driver after. unattached means that the CSIDriver still has attachRequired: false.
func (w wiring) misfit(before, after csidriver.Facts, unattached bool) string {
	var changed []string
	plugin := func(matters bool, service csi.PluginCapability_Service_Type) {
		if matters && before.Services[service] != after.Services[service] {
			changed = append(changed, service.String())
		}
	}
	controller := func(matters bool, c csi.ControllerServiceCapability_RPC_Type) {
		if matters && before.Controller[c] != after.Controller[c] {
			changed = append(changed, c.String())
		}
	}
	plugin(w.topology, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	controller(true, csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)
	controller(w.capacity, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	controller(w.leaks, csi.ControllerServiceCapability_RPC_LIST_VOLUMES)
	controller(w.snapshots, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
	// A process that was set up for attachment checks VolumeAttachments, which is correct for both kinds of drivers.
	const publishes = csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
	controller(!before.Controller[publishes], publishes)
	switch {
	case len(changed) > 0:
		slices.Sort(changed)
		return "its capabilities changed: " + strings.Join(changed, ", ")
	case w.node && before.Segments != nil && !maps.Equal(before.Segments, after.Segments):
		return fmt.Sprintf("its topology segments changed from %v to %v", before.Segments, after.Segments)
	case w.neverAttached && !unattached:
		return "its CSIDriver does not say attachRequired: false any more, or cannot be read"
	}
	return ""
}
