// Package podsafety admits new pods: it decides which of them get the finalizer of pod-safety and the scheduling gate
// of single-node, in the write that creates them. It names the objects with which the API server adds both and keeps
// them.
//
// From Kubernetes 1.36 on, MutatingAdmissionPolicies add them (deploy/manifests/pod-safety-hold.yaml and
// single-node-gate.yaml). Older API servers call webhooks of package admission, which decide by [HoldOf] and [GateOf].
// The controllers decide on the removal of both.
//
// Stability: for the programs of this repository. It may change with each release.
package podsafety

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

const (
	// Finalizer on a pod means that processes of the pod may run.
	Finalizer = objects.RunningFinalizer
	// Gate is the scheduling gate of a pod that waits for the locks of its claims.
	Gate = objects.VolumeGate
)

// Name is the name of the MutatingAdmissionPolicy that adds the finalizer, of its binding, and of the
// MutatingWebhookConfiguration in its place. StaysName is the name of the ValidatingAdmissionPolicy that allows only
// volume-guard to remove the finalizer, and of its binding.
const (
	Name      = "csi-reclaimer-pod-hold"
	StaysName = Name + "-stays"
)

// GateName is the name of the MutatingAdmissionPolicy that adds the gate, of its binding, and of the
// MutatingWebhookConfiguration in its place. The others are names of ValidatingAdmissionPolicies and their bindings,
// which exempt volume-guard: GateRequiredName refuses a new pod without the gate, GateStaysName the removal of the
// gate, and LockStaysName a change of the lock of a claim.
const (
	GateName         = "csi-reclaimer-pod-gate"
	GateRequiredName = GateName + "-required"
	GateStaysName    = GateName + "-stays"
	LockStaysName    = "csi-reclaimer-claim-lock-stays"
)

// MinGracePeriodSeconds replaces a terminationGracePeriodSeconds of 0 in new pods.
const MinGracePeriodSeconds = 1

// Changes are the changes to a pod in the write that creates it; the zero value changes nothing.
type Changes struct {
	// Hold means that the pod gets the Finalizer.
	Hold bool
	// Grace means that terminationGracePeriodSeconds becomes MinGracePeriodSeconds. With 0, each deletion would be a force
	// deletion, including the deletion of the pod's namespace or owner.
	Grace bool
	// Gate means that the pod gets the Gate.
	Gate bool
}

// HoldOf is a pure function that returns the changes to a pod that is being created in a namespace that enforces pod
// safety. Its rule is the same as the conditions in deploy/manifests/pod-safety-hold.yaml.
func HoldOf(pod *v1.Pod) Changes {
	grace := pod.Spec.TerminationGracePeriodSeconds
	return Changes{
		Hold: (objects.HasClaims(pod) || objects.OfSet(pod)) && !mirror(pod) &&
			!slices.Contains(pod.Finalizers, Finalizer),
		Grace: grace != nil && *grace == 0,
	}
}

// GateOf is a pure function that returns the changes to a pod that is being created in a namespace that asks for locks
// of claims. Its rule is the same as the conditions in deploy/manifests/single-node-gate.yaml. A pod that names its
// node is not changed, because it cannot have a gate: [GateRequiredName] refuses it.
func GateOf(pod *v1.Pod) Changes {
	return Changes{Gate: objects.HasClaims(pod) && !mirror(pod) && pod.Spec.NodeName == "" &&
		!slices.Contains(pod.Spec.SchedulingGates, v1.PodSchedulingGate{Name: Gate})}
}

// mirror reports whether a pod is the mirror of a static pod, which its kubelet creates and deletes.
func mirror(pod *v1.Pod) bool {
	_, found := pod.Annotations[v1.MirrorPodAnnotationKey]
	return found
}

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
