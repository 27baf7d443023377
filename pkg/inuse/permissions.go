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
	nothing := resource + " are not observed, so terminating ones stay"
	rights := []permission.Permission{right(resource, "list", nothing, true), right(resource, "watch", nothing, true)}
	if !c.DryRun {
		rights = append(rights, right(resource, "patch",
			"new "+resource+" are not protected while they are in use, and terminating ones stay", false))
	}
	if _, none := c.Events.(events.Discard); !none {
		for _, verb := range []string{"create", "patch"} {
			rights = append(rights, right("events", verb, "only the log and the metrics show why "+resource+" stay",
				false))
		}
	}
	return rights
}
