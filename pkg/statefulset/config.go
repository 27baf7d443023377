package statefulset

import (
	"cmp"
	"errors"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Controller, and is usable in its zero value. Workers is the number of claims in work
// at once, and Events are recorded on a claim and its set.
type Config struct {
	controllers.Settings
	// Grace is the delay between the deletion of a replica's pod and of its claim, unless its StatefulSet has
	// GraceAnnotation. It defaults to 1 minute if 0.
	Grace time.Duration
}

func (c Config) withDefaults() Config {
	c.Settings = c.WithDefaults()
	c.Grace = cmp.Or(c.Grace, statefulset.DefaultGrace)
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() statefulset.Rules { return statefulset.Rules{Grace: c.Grace, DryRun: c.DryRun} }

// Validate returns an error for every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Grace < 0, "grace period: %v is negative", c.Grace)
	return errors.Join(wrong.Err(), c.Settings.Validate())
}

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var needed controller.Permissions
	for _, of := range []struct{ group, resource string }{
		{"", "persistentvolumeclaims"}, {"", "pods"}, {"apps", "statefulsets"},
	} {
		needed.AddUnsafe(of.group, of.resource, "claims of StatefulSets are not observed, so none is deleted",
			"list", "watch")
		needed.AddUnsafe(of.group, of.resource, "no claim is deleted, because that needs a live read", "get")
	}
	if !c.DryRun {
		needed.Add("", "persistentvolumeclaims", "claims that the policy of their StatefulSet deletes stay",
			"patch", "delete")
		needed.Add("", "pods", "pods stay that were created with a claim that is being deleted, and lose its data when they "+
			"end", "delete")
		needed.Add("apps", "statefulsets", "StatefulSets that were scaled up while a claim was being deleted may stay "+
			"without a pod", "patch")
	}
	needed.AddEvents(c.Events, "only the log and the metrics show why a claim is deleted or stays")
	return needed.All
}
