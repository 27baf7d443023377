package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	authorizationapi "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	admissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Clients holds the typed clients of the controllers, which share one connection.
type Clients struct {
	Core          corev1.CoreV1Interface
	Apps          appsv1.AppsV1Interface
	Storage       storagev1.StorageV1Interface
	Coordination  coordinationv1.CoordinationV1Interface
	Authorization authorizationv1.AuthorizationV1Interface
	Admission     admissionv1.AdmissionregistrationV1Interface
}

// ClientsOf returns the clients of a clientset.
func ClientsOf(c kubernetes.Interface) Clients {
	return Clients{Core: c.CoreV1(), Apps: c.AppsV1(), Storage: c.StorageV1(), Coordination: c.CoordinationV1(),
		Authorization: c.AuthorizationV1(), Admission: c.AdmissionregistrationV1()}
}

// ConfigOf returns a copy of config whose answers are bounded (ErrTooLarge), and in which a QPS of 0 means no limit on
// the client side, where client-go would use 5 a second. The number of workers bounds the requests, and the API
// server's priority and fairness (429 with Retry-After, which client-go obeys) protects the server.
func ConfigOf(config *rest.Config) *rest.Config {
	c := Limited(config)
	c.Wrap(bounded)
	return c
}

// Limited returns a copy of config, whose clients share one limit of requests, and nil for nil. client-go would give
// each of them, and so each API group, a limit of its own.
func Limited(config *rest.Config) *rest.Config {
	if config == nil {
		return nil
	}
	c := rest.CopyConfig(config)
	switch {
	case c.QPS == 0:
		c.QPS = -1
	case c.QPS > 0 && c.RateLimiter == nil:
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, cmp.Or(c.Burst, rest.DefaultBurst))
	}
	return c
}

// configOf returns a copy of config for the clients of controllers.
func configOf(config *rest.Config) *rest.Config {
	c := ConfigOf(config)
	if c.Burst == 0 {
		c.Burst = rest.DefaultBurst // a clientset with a QPS requires one
	}
	// Compressing long lists costs the API server more than sending them within a cluster.
	c.DisableCompression = true
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// NewClientset is NewClients with the clients of all kinds.
func NewClientset(config *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(configOf(config))
	if err != nil {
		return nil, fmt.Errorf("create clients for the API server: %w", err)
	}
	return client, nil
}

// NewClients returns clients for the cluster of config, which is copied, without a limit of requests if its QPS is 0.
func NewClients(config *rest.Config) (Clients, error) {
	c := configOf(config)
	shared, err := rest.HTTPClientFor(c)
	if err != nil {
		return Clients{}, fmt.Errorf("create an HTTP client for the API server: %w", err)
	}
	var failed error
	clients := Clients{
		Core:          typed(c, shared, "core/v1", corev1.NewForConfigAndClient, &failed),
		Apps:          typed(c, shared, "apps/v1", appsv1.NewForConfigAndClient, &failed),
		Storage:       typed(c, shared, "storage.k8s.io/v1", storagev1.NewForConfigAndClient, &failed),
		Coordination:  typed(c, shared, "coordination.k8s.io/v1", coordinationv1.NewForConfigAndClient, &failed),
		Authorization: typed(c, shared, "authorization.k8s.io/v1", authorizationv1.NewForConfigAndClient, &failed),
		Admission:     typed(c, shared, "admissionregistration.k8s.io/v1", admissionv1.NewForConfigAndClient, &failed),
	}
	if failed != nil {
		return Clients{}, failed
	}
	return clients, nil
}

// typed returns the client of one API group. An error is stored in failed.
func typed[T any](c *rest.Config, shared *http.Client, group string,
	create func(*rest.Config, *http.Client) (T, error), failed *error) T {
	client, err := create(c, shared)
	if err != nil {
		*failed = fmt.Errorf("create a client for %s: %w", group, err)
	}
	return client
}

// Granted asks the API server whether this program has a permission. It sends a SelfSubjectAccessReview, which every
// authenticated user may create. An empty namespace means the whole cluster, and an empty name all objects. An error
// means that the answer is unknown.
func Granted(ctx context.Context, client authorizationv1.AuthorizationV1Interface, verb, group, resource,
	namespace, name string) (bool, error) {
	review := &authorizationapi.SelfSubjectAccessReview{Spec: authorizationapi.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationapi.ResourceAttributes{Namespace: namespace, Name: name, Verb: verb, Group: group,
			Resource: resource},
	}}
	answer, err := client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s of %s is allowed: %w", verb, strings.Trim(resource+"."+group, "."), err)
	}
	return answer.Status.Allowed, nil
}
