package controller

import (
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions collects the permissions that a controller needs; the zero value has none.
type Permissions struct {
	All []permission.Permission
	// Namespace limits the permissions that are added from then on; the default is the whole cluster.
	Namespace string
}

// Add adds the permissions for verbs on a resource. without is the effect of their absence.
func (p *Permissions) Add(group, resource, without string, verbs ...string) {
	p.add(permission.Permission{Group: group, Resource: resource, Without: without}, verbs)
}

// AddUnsafe is Add for permissions without which no action can be proven to be safe.
func (p *Permissions) AddUnsafe(group, resource, without string, verbs ...string) {
	p.add(permission.Permission{Group: group, Resource: resource, Without: without, Unsafe: true}, verbs)
}

// AddEvents adds the permissions to record Events, unless they are discarded.
func (p *Permissions) AddEvents(to record.EventRecorder, without string) {
	if _, none := to.(events.Discard); !none {
		p.Add("", "events", without, "create", "patch")
	}
}

func (p *Permissions) add(one permission.Permission, verbs []string) {
	one.Namespace = p.Namespace
	for _, one.Verb = range verbs {
		p.All = append(p.All, one)
	}
}
