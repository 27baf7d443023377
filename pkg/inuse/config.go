package inuse

import (
	"cmp"
	"errors"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Mode indicates whether a cluster is protected; the zero value is ModeOff.
type Mode string

const (
	// ModeOff does nothing, because Kubernetes' own controller does the work.
	ModeOff Mode = ""
	// ModeFull does the work, unless another program is seen to do it.
	ModeFull Mode = "full"
)

// String returns the mode as used in flags.
func (m Mode) String() string { return cmp.Or(string(m), "off") }

// Config holds the settings of a Guard; the zero value is usable, and does nothing. Workers is the number of finalizers
// written at once, 20 by default, and Events record on an object why it is kept.
type Config struct {
	controllers.Settings
	// Mode indicates whether to work at all. Default ModeOff.
	Mode Mode
	// Patience is the time for which a need must stay unanswered before it proves that no other controller does the work.
	// It applies once after each start, and again each time another controller was seen at work. Default 30 seconds, above
	// the 15 that another kube-controller-manager needs to take over with its default leader election.
	Patience time.Duration
}

// WithDefaults returns the settings with their defaults filled in.
func (c Config) WithDefaults() Config {
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	c.Workers = cmp.Or(c.Workers, 20)
	c.Settings = c.Settings.WithDefaults()
	return c
}

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Mode != ModeOff && c.Mode != ModeFull, "mode: unknown value %q", c.Mode)
	wrong.If(c.Patience < 0, "patience: %v is negative", c.Patience)
	return errors.Join(wrong.Err(), c.Settings.Validate())
}

// Permissions returns the permissions that a Guard with these settings needs on the protected kind, given by its
// resource name ("persistentvolumes"); the packages of the kinds add their own.
func (c Config) Permissions(resource string) []permission.Permission {
	if c.Mode == ModeOff {
		return nil
	}
	c = c.WithDefaults()
	var needed controller.Permissions
	needed.AddUnsafe("", resource, resource+" are not observed, so terminating ones stay", "list", "watch")
	if !c.DryRun {
		needed.Add("", resource, "new "+resource+" are not protected while they are in use, and terminating ones stay",
			"patch")
	}
	needed.AddEvents(c.Events, "only the log and the metrics show why "+resource+" stay")
	return needed.All
}
