package inuse

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Guard with these settings needs on the protected kind, given by its
// resource name ("persistentvolumes"); the packages of the kinds add their own.
func (c Config) Permissions(resource string) []permission.Permission {
	if c.Mode == ModeOff {
		return nil
	}
	c = c.WithDefaults()
	right := func(resource, verb, without string, unsafe bool) permission.Permission {
		return permission.Permission{Resource: resource, Verb: verb, Without: without, Unsafe: unsafe}
	}
	nothing := "nothing is known of " + resource + ", so those that are being deleted stay"
	rights := []permission.Permission{right(resource, "list", nothing, true), right(resource, "watch", nothing, true)}
	if !c.DryRun {
		rights = append(rights, right(resource, "patch",
			"new "+resource+" are not protected while they are in use, and those that are being deleted stay", false))
	}
	if _, none := c.Events.(events.Discard); !none {
		for _, verb := range []string{"create", "patch"} {
			rights = append(rights, right("events", verb, "what keeps "+resource+" is reported in the log and the metrics only",
				false))
		}
	}
	return rights
}
