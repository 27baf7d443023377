package podsafety

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	const (
		nothing = "held pods are not observed, so terminating ones stay"
		claims  = "claims of generic ephemeral volumes are not observed, so no pod is released"
	)
	permissions := []permission.Permission{
		{Resource: "pods", Verb: "list", Without: nothing, Unsafe: true},
		{Resource: "pods", Verb: "watch", Without: nothing, Unsafe: true},
		{Resource: "pods", Verb: "get", Without: "no held pod is released, because there is no evidence without a live read",
			Unsafe: true},
		{Resource: "persistentvolumeclaims", Verb: "list", Without: claims, Unsafe: true},
		{Resource: "persistentvolumeclaims", Verb: "watch", Without: claims, Unsafe: true},
		{Resource: "nodes", Verb: "list", Without: nothing, Unsafe: true},
		{Resource: "nodes", Verb: "watch", Without: nothing, Unsafe: true},
		{Resource: "nodes", Verb: "get",
			Without: "no held pod is released because its node is gone or out of service"},
		{Group: "coordination.k8s.io", Resource: "leases", Namespace: v1.NamespaceNodeLease, Verb: "get",
			Without: "no held pod is released because its node is gone"},
		{Resource: "namespaces", Verb: "list", Without: "namespaces that ask for pod safety are not observed", Unsafe: true},
		{Resource: "namespaces", Verb: "watch", Without: "namespaces that ask for pod safety are not observed", Unsafe: true},
	}
	const unshown = "nothing shows the unmount of the volumes of a held pod, so each is held for longer (UnmountGrace)"
	permissions = append(permissions,
		permission.Permission{Group: admissionv1.GroupName, Resource: "validatingadmissionpolicies", Name: forcePolicy,
			Verb: "get", Without: unshown},
		permission.Permission{Group: admissionv1.GroupName, Resource: "validatingadmissionpolicybindings", Name: forceBinding,
			Verb: "get", Without: unshown})
	if c.Fences {
		const unfenced = "held pods of nodes that are fenced stay"
		for _, verb := range []string{"get", "list", "watch"} {
			permissions = append(permissions, permission.Permission{Group: v1alpha1.GroupVersion.Group,
				Resource: client.FenceResource, Verb: verb, Without: unfenced, Unsafe: verb != "get"})
		}
	}
	return append(permissions, c.writes()...)
}

// writes returns the permissions for writes, and for the reads that serve only them.
func (c Config) writes() (permissions []permission.Permission) {
	add := func(group, resource, without string, verbs ...string) {
		for _, verb := range verbs {
			permissions = append(permissions, permission.Permission{
				Group: group, Resource: resource, Verb: verb, Without: without})
		}
	}
	if !c.DryRun {
		add("", "pods", "no pod is held that admission has not held, and no held pod is released", "patch")
		add("", "pods", "held pods whose node is gone or out of service stay", "delete")
		add("", "persistentvolumeclaims", "held pods do not keep the claims of their generic ephemeral volumes, and claims "+
			"that have the finalizer stay", "patch")
	}
	switch {
	case c.NodeCondition:
		add("", "pods/status", "pods do not show that their node is unreachable", "patch")
	case !c.DryRun: // conditions of an earlier process are removed
		add("", "pods/status", "pods keep the condition "+string(objects.NodeUnreachable)+" after their node is back",
			"patch")
	}
	const bound = "volumes stay bound to one node after the pod is gone"
	switch {
	case c.VolumeLocks:
		const unlocked = "volumes can be attached to another node while a held pod may write to them"
		add("", "persistentvolumeclaims", unlocked, "get")
		add("", "persistentvolumes", unlocked, "get")
		add(lockGroup, lockResource, unlocked, "list", "create", "update")
		add(lockGroup, lockResource, bound, "delete")
	case !c.DryRun: // locks of an earlier process are removed
		add(lockGroup, lockResource, bound, "list", "delete")
	}
	if _, none := c.Events.(events.Discard); !none {
		add("", "events", "only the log and the metrics show why a pod stays", "create", "patch")
	}
	return permissions
}
