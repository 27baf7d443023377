package admission

import "github.com/csi-reclaimer/csi-reclaimer/pkg/permission"

// permissions returns the permissions that a LiveReader needs.
func permissions() []permission.Permission {
	return []permission.Permission{
		{Resource: "pods", Verb: "get", Without: "pods are bound although one of their claims is terminating"},
		{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "pods are bound although one of their claims is terminating"},
	}
}
