package main

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
)

func TestMisfit(t *testing.T) {
	const (
		topology  = csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS
		creates   = csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME
		publishes = csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
		capacity  = csi.ControllerServiceCapability_RPC_GET_CAPACITY
		lists     = csi.ControllerServiceCapability_RPC_LIST_VOLUMES
		snapshots = csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT
		clones    = csi.ControllerServiceCapability_RPC_CLONE_VOLUME
	)
	with := func(c ...csi.ControllerServiceCapability_RPC_Type) csidriver.Facts {
		f := csidriver.Facts{Name: "disk.csi.example.com", Controller: rpc.ControllerCapabilitySet{creates: true}}
		for _, one := range c {
			f.Controller[one] = true
		}
		return f
	}
	placed, zone := with(), with()
	placed.Services = rpc.PluginCapabilitySet{topology: true}
	zone.Segments = map[string]string{"zone": "b"}
	unplaced := with()
	unplaced.Segments = map[string]string{}
	all := wiring{topology: true, capacity: true, leaks: true, snapshots: true, node: true, neverAttached: true}
	for name, c := range map[string]struct {
		wired         wiring
		before, after csidriver.Facts
		attached      bool
		words         string
	}{
		"the same":                         {wired: all, before: with(), after: with()},
		"it clones now":                    {wired: all, before: with(), after: with(clones)},
		"it has topology now":              {all, with(), placed, false, topology.String()},
		"it has no topology any more":      {all, placed, with(), false, topology.String()},
		"topology is switched off":         {wired: wiring{}, before: with(), after: placed},
		"it deletes no more":               {wiring{}, with(), csidriver.Facts{}, false, creates.String()},
		"it attaches now":                  {wiring{}, with(), with(publishes), false, publishes.String()},
		"it attaches no more":              {wired: all, before: with(publishes), after: with()},
		"it reports capacity now":          {all, with(), with(capacity), false, capacity.String()},
		"no capacity is published":         {wired: wiring{}, before: with(), after: with(capacity)},
		"it lists now":                     {all, with(), with(lists), false, lists.String()},
		"no leak check runs":               {wired: wiring{}, before: with(), after: with(lists)},
		"it takes snapshots now":           {all, with(), with(snapshots), false, snapshots.String()},
		"no snapshot is swept":             {wired: wiring{}, before: with(), after: with(snapshots)},
		"its place was not asked for":      {wired: all, before: with(), after: zone},
		"its place is another":             {all, unplaced, zone, false, "zone:b"},
		"its place does not matter":        {wired: wiring{}, before: with(), after: zone},
		"its CSIDriver requires to attach": {all, with(), with(), true, "attachRequired"},
		"attachments are looked for":       {wired: wiring{}, before: with(), after: with(), attached: true},
	} {
		words := c.wired.misfit(c.before, c.after, !c.attached)
		if !strings.Contains(words, c.words) || (words == "") != (c.words == "") {
			t.Errorf("%s: %q", name, words)
		}
	}
}
