package podsafety

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

const callTimeout = time.Minute

// object is an object that a release deletes.
type object struct {
	kind, name string
	delete     func(context.Context, string, metav1.DeleteOptions) error
}

// RemoveAdmission deletes the objects that add the finalizer to new pods and keep it on pods: the binding and the
// webhook configuration of [Name], and the binding of [StaysName]. It returns the objects that existed, as
// "mutatingadmissionpolicybinding/NAME". It needs delete of these three, by name. An object that is missing, or of a
// kind that the API server does not serve, is no error.
//
// RemoveAdmission comes before the finalizers are removed from pods. API servers observe the deletions some time later,
// so list the pods until no finalizer was found for some seconds.
func RemoveAdmission(ctx context.Context, config *rest.Config) (deleted []string, err error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	// The policy that keeps the finalizer is last: while the finalizer is still added, only volume-guard removes it.
	return remove(ctx, append(adders(clients, Name), stays(clients, StaysName))...)
}

// RemoveGateAdmission is the counterpart of RemoveAdmission for the scheduling gate: it deletes the bindings
// of [GateRequiredName], [GateStaysName] and [LockStaysName], and the binding and the webhook configuration of
// [GateName]. It needs delete of these five, by name.
//
// It comes before the gates are removed from pods, and the locks from claims.
func RemoveGateAdmission(ctx context.Context, config *rest.Config) (deleted []string, err error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	// The policy that requires the gate is first, because it refuses new pods once nothing adds the gate.
	all := append([]object{stays(clients, GateRequiredName)}, adders(clients, GateName)...)
	return remove(ctx, append(all, stays(clients, GateStaysName), stays(clients, LockStaysName))...)
}

// adders are the two objects of a name that change new pods.
func adders(clients kube.Clients, name string) []object {
	return []object{
		{"mutatingadmissionpolicybinding", name, clients.Admission.MutatingAdmissionPolicyBindings().Delete},
		{"mutatingwebhookconfiguration", name, clients.Admission.MutatingWebhookConfigurations().Delete},
	}
}

// stays is the binding of a policy that refuses writes.
func stays(clients kube.Clients, name string) object {
	return object{"validatingadmissionpolicybinding", name, clients.Admission.ValidatingAdmissionPolicyBindings().Delete}
}

// remove deletes the objects in this order, up to the first error.
func remove(ctx context.Context, objects ...object) (deleted []string, err error) {
	for _, object := range objects {
		name := object.kind + "/" + object.name
		switch err := object.deleted(ctx); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return deleted, fmt.Errorf("delete %s: %w", name, err)
		default:
			deleted = append(deleted, name)
		}
	}
	return deleted, nil
}

func (o object) deleted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return o.delete(ctx, o.name, metav1.DeleteOptions{})
}
