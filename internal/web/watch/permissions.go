package watch

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Cluster and its pages need, except for leak reports. The page leaves out
// the objects of missing permissions.
func Permissions() (all []permission.Permission) {
	fencing := v1alpha1.GroupVersion.Group
	add := func(group, resource, without string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, permission.Permission{Group: group, Resource: resource, Verb: verb, Without: without})
		}
	}
	const (
		tables = "the page leaves them out, and says so"
		pages  = "the pages of claims, pods and nodes cannot explain all"
		policy = "the page cannot tell which PVs an admission policy protects, and says so"
	)
	for _, of := range []struct {
		group     string
		resources []string
	}{
		{"", []string{"persistentvolumes", "persistentvolumeclaims", "pods", "nodes", "events"}},
		{storagev1.GroupName, []string{"volumeattachments", "csidrivers", "csinodes", "storageclasses"}},
		{coordinationv1.GroupName, []string{"leases"}},
		{fencing, []string{client.FenceResource}},
	} {
		for _, resource := range of.resources {
			add(of.group, resource, tables, "list", "watch")
		}
	}
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims", "pods", "nodes", "namespaces"} {
		add("", resource, pages, "get")
	}
	add(coordinationv1.GroupName, "leases", pages, "get")
	add(fencing, client.FenceResource, pages, "get")
	add(fencing, client.PolicyResource, pages, "list")
	add(appsv1.GroupName, "statefulsets", pages, "list")
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"mutatingwebhookconfigurations"} {
		add(admissionv1.GroupName, resource, policy, "get")
	}
	return all
}
