package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Timeout bounds one call to the API server. Without it, a server that hangs would keep a worker.
const Timeout = 30 * time.Second

// Kind is an API kind. Word is its name in errors.
type Kind struct {
	Resource schema.GroupResource
	Word     string
}

// The kinds that several controllers read. The namespace of a NodeLease is kube-node-lease, and errors leave it out.
var (
	Pod          = Kind{v1.Resource("pods"), "pod"}
	Claim        = Kind{v1.Resource("persistentvolumeclaims"), "claim"}
	PV           = Kind{v1.Resource("persistentvolumes"), "PV"}
	Node         = Kind{v1.Resource("nodes"), "node"}
	Namespace    = Kind{v1.Resource("namespaces"), "namespace"}
	NodeLease    = Kind{coordinationv1.Resource("leases"), "Lease of node"}
	StatefulSet  = Kind{appsv1.Resource("statefulsets"), "StatefulSet"}
	StorageClass = Kind{storagev1.Resource("storageclasses"), "StorageClass"}
)

// Get reads an object from the API server, and returns its record. The read is live: it is as new as the request. For a
// missing object it succeeds, with found false. It takes at most Timeout.
func Get[O, R any](ctx context.Context, of Kind, namespace, name string,
	get func(context.Context, string, metav1.GetOptions) (*O, error), record func(*O) R) (r R, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	o, err := GetObject(ctx, of.Resource, name, get)
	switch {
	case Absent(err, of.Resource, name):
		return r, false, nil
	case err != nil:
		return r, false, fmt.Errorf("read %s %q: %w", of.Word, cache.NewObjectName(namespace, name), err)
	}
	return record(o), true, nil
}

// GetObject calls get, which is a client's. For a name that no object can have, it returns the error of an API server
// without the object: client-go rejects some names and HTTP servers reject overlong URLs, and a retry would never
// succeed. Tenants may write such names, as the API server does not validate claimName of a pod or volumeName of a
// claim.
func GetObject[O any](ctx context.Context, resource schema.GroupResource, name string,
	get func(context.Context, string, metav1.GetOptions) (*O, error)) (*O, error) {
	if len(name) > validation.DNS1123SubdomainMaxLength || len(rest.IsValidPathSegmentName(name)) > 0 {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return get(ctx, name, metav1.GetOptions{})
}

// Read is Get for the whole object, nil for a missing one.
func Read[O any](ctx context.Context, of Kind, namespace, name string,
	get func(context.Context, string, metav1.GetOptions) (*O, error)) (*O, error) {
	o, _, err := Get(ctx, of, namespace, name, get, func(o *O) *O { return o })
	return o, err
}

// WithoutLog returns a context for calls whose bodies client-go must not log, as it does from level 8 on. The level
// of a program that embeds a controller is its own.
func WithoutLog(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// ReadSecret is Get for the values of a Secret, which are not logged.
func ReadSecret(ctx context.Context, client corev1.SecretsGetter, namespace,
	name string) (values map[string]string, found bool, err error) {
	return Get(WithoutLog(ctx), Kind{v1.Resource("secrets"), "Secret"}, namespace, name,
		client.Secrets(namespace).Get, func(o *v1.Secret) map[string]string {
			values := make(map[string]string, len(o.Data))
			for key, value := range o.Data {
				values[key] = string(value)
			}
			return values
		})
}

// Absent reports whether an error is the API server's answer that it has no object of that resource and name.
//
// A 404 alone does not prove this: an API server returns it for a resource that it does not serve, and a proxy or load
// balancer returns it for an API server that it cannot find. Only an answer that names the object concerns the object.
func Absent(err error, resource schema.GroupResource, name string) bool {
	about, absent := notFound(err, name)
	return absent && about.Group == resource.Group && about.Kind == resource.Resource
}

// AnyAbsent is Absent for whichever object the API server names, where the request shows which one that is. Before a
// write that cannot be undone, use Absent.
func AnyAbsent(err error) bool {
	about, _ := notFound(err, "")
	return about.Name != ""
}

// Answer returns the status code of an error that is the API server's answer, and 0 for any other error.
func Answer(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// notFound reports whether an error is the API server's answer that it has no object of that name. about is the object
// that the answer names, zero for an error of another kind.
func notFound(err error, name string) (about metav1.StatusDetails, absent bool) {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return about, false
	}
	if details := status.Status().Details; details != nil {
		about = *details
	}
	return about, about.Name == name
}
