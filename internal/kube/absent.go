package kube

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Absent reports whether an error is the API server's answer that it has no object of that resource and name.
//
// A 404 alone does not prove this: an API server returns it for a resource that it does not serve, and a proxy or load
// balancer returns it for an API server that it cannot find. Only an answer that names the object concerns the object.
func Absent(err error, resource schema.GroupResource, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return false
	}
	about := status.Status().Details
	return about != nil && about.Group == resource.Group && about.Kind == resource.Resource && about.Name == name
}
