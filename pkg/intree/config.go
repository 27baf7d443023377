package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Controller; the zero value is usable. Workers is the number of PVs worked on at once,
// RetryStart and RetryMax are the delays after failed deletions, too, and Events record on a PV why it is kept.
type Config struct{ controllers.Settings }

func (c Config) withDefaults() Config { return Config{c.WithDefaults()} }

// rules returns the settings that decisions depend on.
func (c Config) rules() intree.Rules {
	return intree.Rules{DryRun: c.DryRun, RetryStart: c.RetryStart, RetryMax: c.RetryMax}
}

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var needed controller.Permissions
	needed.AddUnsafe("", "persistentvolumes", "in-tree PVs are not observed", "list", "watch")
	needed.AddUnsafe("", "persistentvolumes", "no in-tree volume is deleted, because its PV cannot be read live", "get")
	needed.AddUnsafe("", "persistentvolumeclaims",
		"no in-tree volume is deleted, because it is not known whether its claim is gone", "get")
	needed.AddUnsafe("storage.k8s.io", "volumeattachments",
		"no in-tree volume is deleted, because it is not known whether one is attached", "list")
	if !c.DryRun {
		needed.Add("", "persistentvolumes", "in-tree PVs are not protected, so deletion before the claim leaks the volume, "+
			"and protected PVs keep the finalizer", "patch")
		needed.Add("", "persistentvolumes", "in-tree PVs that are deleted before their claim stay, and their volumes too",
			"create")
		needed.Add("", "persistentvolumes", "twins of in-tree PVs whose volume is to be kept stay", "delete")
	}
	needed.AddEvents(c.Events, "only the log and the metrics show why an in-tree PV stays")
	return needed.All
}
