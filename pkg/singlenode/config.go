package singlenode

import (
	"errors"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Controller, and is usable in its zero value. Workers bounds the concurrent calls
// to the API server, and Events are recorded on pods, and on a claim if a person has to act.
type Config struct {
	controllers.Settings
	// UnmountGrace is the delay for the unmount of the volumes of a completed pod, such as the pod of a Job, and defaults
	// to 30 seconds if 0.
	UnmountGrace time.Duration
	// Fences frees locks if a NodeFence keeps the node of a terminating pod from the volume. It needs the kind NodeFence
	// (deploy/manifests/node-fencing-crd.yaml). Default off: no NodeFence is read.
	Fences bool
}

func (c Config) withDefaults() Config {
	c.Settings = c.WithDefaults()
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() singlenode.Rules {
	return singlenode.Rules{UnmountGrace: c.UnmountGrace, DryRun: c.DryRun}
}

// Validate returns an error for every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	return errors.Join(wrong.Err(), c.Settings.Validate())
}

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var needed controller.Permissions
	const (
		nothing  = "locks of claims are not observed, so pods that wait for one are not scheduled"
		noLock   = "no claim gets a lock, so pods that wait for one are not scheduled"
		notFreed = "no lock of a claim is freed, so pods that wait for one are not scheduled"
	)
	needed.AddUnsafe("", "pods", nothing, "list", "watch")
	needed.AddUnsafe("", "persistentvolumeclaims", nothing, "list", "watch")
	needed.AddUnsafe("", "namespaces", "namespaces that ask for locks of claims are not observed", "list", "watch")
	needed.AddUnsafe("", "persistentvolumes", nothing, "list", "watch")
	needed.AddUnsafe("storage.k8s.io", "storageclasses", nothing, "list", "watch")
	needed.AddUnsafe("", "nodes", nothing, "list", "watch")
	needed.AddUnsafe("", "pods", notFreed, "get")
	needed.AddUnsafe("", "persistentvolumeclaims", noLock, "get")
	const notAsked = "pods whose claims need no lock keep their scheduling gate"
	needed.Add("", "persistentvolumes", notAsked, "get")
	needed.Add("storage.k8s.io", "storageclasses", notAsked, "get")
	needed.Add("", "namespaces", notAsked, "get")
	if c.Fences {
		const unfenced = "locks of pods on nodes that a fence keeps from the volume are not freed"
		needed.AddUnsafe(v1alpha1.GroupVersion.Group, client.FenceResource, unfenced, "list", "watch")
		needed.Add(v1alpha1.GroupVersion.Group, client.FenceResource, unfenced, "get")
		needed.Add("", "nodes", unfenced, "get")
	}
	if !c.DryRun {
		needed.Add("", "pods", "no scheduling gate is removed, so pods with claims are not scheduled", "patch")
		needed.Add("", "persistentvolumeclaims", noLock, "patch")
	}
	needed.AddEvents(c.Events, "only the log and the metrics show why a pod waits")
	return needed.All
}
