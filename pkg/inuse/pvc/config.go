package pvc

import (
	"cmp"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// TerminatedPods indicates whether pods that have ended (Succeeded or Failed) hold their claims. The zero value is
// TerminatedDefault, under which Decide lets them.
type TerminatedPods string

const (
	// TerminatedDefault is ReleaseTerminated in a Config.
	TerminatedDefault TerminatedPods = ""
	// ReleaseTerminated releases the claims of pods that have ended, as the proposal says.
	ReleaseTerminated TerminatedPods = "release"
	// HoldTerminated keeps the claims until the pod itself is deleted, as Kubernetes 1.36 does. A pod that is Failed only
	// because its node is unreachable may still run there.
	HoldTerminated TerminatedPods = "hold"
)

// String returns the setting as used in flags.
func (t TerminatedPods) String() string { return cmp.Or(string(t), string(ReleaseTerminated)) }

// ParseTerminatedPods returns the setting of that name, and an error for any other name.
func ParseTerminatedPods(name string) (TerminatedPods, error) {
	if t := TerminatedPods(name); t == ReleaseTerminated || t == HoldTerminated {
		return t, nil
	}
	return TerminatedDefault, fmt.Errorf("terminated pods: %q is neither release nor hold", name)
}

// Config holds the settings of a Protector; the zero value is usable, and does nothing.
type Config struct {
	inuse.Config
	// TerminatedPods indicates whether pods that have ended hold their claims. Default ReleaseTerminated.
	TerminatedPods TerminatedPods
}

// Validate returns an error that names an invalid setting.
func (c Config) Validate() error {
	if _, err := ParseTerminatedPods(c.TerminatedPods.String()); err != nil {
		return err
	}
	return c.Config.Validate()
}

// Permissions returns the permissions that a Protector with these settings needs.
func (c Config) Permissions() []permission.Permission {
	needed := controller.Permissions{All: c.Config.Permissions("persistentvolumeclaims")}
	if len(needed.All) > 0 { // it is not off
		needed.AddUnsafe("", "pods", "no claim loses its finalizer, because a pod may use it", "list", "watch")
	}
	return needed.All
}
