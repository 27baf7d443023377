package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// ErrNoFencing: the API server does not serve the kinds by which nodes are fenced.
var ErrNoFencing = errors.New("the API server does not serve NodeFences and FencePolicies, so no node is fenced by " +
	"csi-reclaimer in this cluster")

// nodeFences is the resource of NodeFences.
func nodeFences() schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "nodefences"}
}

// FenceRead returns the result of a GET of the NodeFence of that name; its Value is nil where there is none. Err is
// ErrNoFencing where the kind is not served.
func FenceRead(o *v1alpha1.NodeFence, err error, name string) Read[*v1alpha1.NodeFence] {
	switch {
	case err == nil:
		return Found(o)
	case kube.Absent(err, nodeFences(), name):
		return Found[*v1alpha1.NodeFence](nil)
	}
	return Failed[*v1alpha1.NodeFence](FencingError(err))
}

// FencingError returns ErrNoFencing for the answer to a request for a kind that is not served, and other errors as they
// are.
func FencingError(err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && !apierrors.IsUnexpectedServerError(err) {
		if about := status.Status().Details; about != nil && about.Name != "" {
			return err // the kind is served, and has no object of the name
		}
	}
	return ErrNoFencing
}

// NoFencing reports whether a read failed because the kinds of fencing are not served.
func NoFencing[T any](r Read[T]) bool { return errors.Is(r.Err, ErrNoFencing) }

// FenceEnded reports whether the fence of a node has come to its end. Its object is kept for some time.
func FenceEnded(o *v1alpha1.NodeFence) bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReturned)
}

// FenceWords is how far a fence is, by which agent, and what is proven.
func FenceWords(o *v1alpha1.NodeFence, now time.Time) string {
	text := string(o.Status.Phase)
	if text == "" {
		text = string(v1alpha1.PhaseRequested)
	}
	n := len(o.Status.Attempts)
	switch p := o.Status.Proof; {
	case p != nil:
		text += fmt.Sprintf(", agent %s proved %s %s ago", p.Agent, covers(p), Age(now, p.ProvenAt.Time))
	case n > 0 && o.Status.Attempts[n-1].EndedAt == nil:
		last := o.Status.Attempts[n-1]
		text += fmt.Sprintf(", agent %s began %s ago", last.Agent, Age(now, last.StartedAt.Time))
	}
	return text
}

func covers(p *v1alpha1.Proof) string {
	text := string(p.Covers)
	for i, of := range p.Volumes {
		text += []string{" of driver ", ", and of driver "}[min(i, 1)] + of.Driver
		for n, key := range slices.Sorted(maps.Keys(of.VolumeAttributes)) {
			text += fmt.Sprintf("%s %s=%s", []string{" with", ","}[min(n, 1)], key, of.VolumeAttributes[key])
		}
	}
	return text
}
