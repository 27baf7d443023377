package podhold

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
)

// callTimeout bounds one call to the API server.
const callTimeout = time.Minute

// RemoveAdmission deletes what adds the finalizer to new pods, and what keeps it on pods: the binding and the webhook
// configuration of [Name], and the binding of [StaysName]. It returns those that existed, as
// "mutatingadmissionpolicybinding/NAME". It needs delete of these three, by name; one that is missing, or of a kind
// that the API server does not serve, is no error.
//
// It comes before the finalizers are removed from pods. API servers observe it some time later, so list the pods until
// no finalizer was found for some seconds.
func RemoveAdmission(ctx context.Context, config *rest.Config) (deleted []string, err error) {
	client, err := admissionclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for admissionregistration.k8s.io/v1: %w", err)
	}
	for _, object := range []struct {
		kind, name string
		delete     func(context.Context, string, metav1.DeleteOptions) error
	}{
		{"mutatingadmissionpolicybinding", Name, client.MutatingAdmissionPolicyBindings().Delete},
		{"mutatingwebhookconfiguration", Name, client.MutatingWebhookConfigurations().Delete},
		// Last: until the finalizer is not added, nobody else need remove it.
		{"validatingadmissionpolicybinding", StaysName, client.ValidatingAdmissionPolicyBindings().Delete},
	} {
		name := object.kind + "/" + object.name
		switch err := deleteOne(ctx, object.name, object.delete); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return deleted, fmt.Errorf("delete %s: %w", name, err)
		default:
			deleted = append(deleted, name)
		}
	}
	return deleted, nil
}

func deleteOne(ctx context.Context, name string,
	call func(context.Context, string, metav1.DeleteOptions) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, name, metav1.DeleteOptions{})
}
