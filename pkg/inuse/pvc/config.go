package pvc

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// TerminatedPods says whether pods that have ended (Succeeded or Failed) hold their claims. The zero
// value is not said, under which they do.
type TerminatedPods uint8

const (
	// TerminatedDefault is ReleaseTerminated in a Config.
	TerminatedDefault TerminatedPods = iota
	// ReleaseTerminated lets claims of pods that have ended go, as the proposal says.
	ReleaseTerminated
	// HoldTerminated keeps them until the pod itself is deleted, as Kubernetes 1.36 does. A pod that
	// is Failed only because its node cannot be reached may still run there.
	HoldTerminated
)

// String returns the setting as used in flags.
func (t TerminatedPods) String() string {
	switch t {
	case TerminatedDefault, ReleaseTerminated:
		return "release"
	case HoldTerminated:
		return "hold"
	}
	return "unknown"
}

// ParseTerminatedPods returns the setting of that name.
func ParseTerminatedPods(name string) (TerminatedPods, error) {
	for _, t := range []TerminatedPods{ReleaseTerminated, HoldTerminated} {
		if t.String() == name {
			return t, nil
		}
	}
	return TerminatedDefault, fmt.Errorf("terminated pods: %q is neither release nor hold", name)
}

// Config holds the settings of a Protector. The zero value is usable, and does nothing.
type Config struct {
	inuse.Config
	// TerminatedPods says whether pods that have ended hold their claims. Default ReleaseTerminated.
	TerminatedPods TerminatedPods
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	if c.TerminatedPods > HoldTerminated {
		return fmt.Errorf("terminated pods: %d is no setting", c.TerminatedPods)
	}
	return c.Config.Validate()
}
