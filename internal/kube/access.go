package kube

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Granted asks the API server whether this program has a permission. It sends a SelfSubjectAccessReview, which every
// authenticated user may create. An empty namespace means the whole cluster, and an empty name all objects. An error
// means that the answer is unknown.
func Granted(ctx context.Context, client authorizationclient.AuthorizationV1Interface, verb, group, resource,
	namespace, name string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Name: name, Verb: verb, Group: group,
			Resource: resource},
	}}
	answer, err := client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s of %s is allowed: %w", verb, strings.Trim(resource+"."+group, "."), err)
	}
	return answer.Status.Allowed, nil
}
