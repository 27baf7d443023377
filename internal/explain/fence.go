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

// ErrNoFencing means that the API server does not serve NodeFences and FencePolicies.
var ErrNoFencing = errors.New("the API server does not serve NodeFences and FencePolicies, so no node is fenced by " +
	"csi-reclaimer in this cluster")

func nodeFences() schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "nodefences"}
}

// FenceRead converts the answer to a GET of the NodeFence with this name. Value is nil if the fence does not exist.
// Err is ErrNoFencing if the API server does not serve the kind.
func FenceRead(o *v1alpha1.NodeFence, err error, name string) Read[*v1alpha1.NodeFence] {
	switch {
	case err == nil:
		return Found(o)
	case kube.Absent(err, nodeFences(), name):
		return Found[*v1alpha1.NodeFence](nil)
	}
	return Failed[*v1alpha1.NodeFence](FencingError(err))
}

// FencingError returns ErrNoFencing if err means that the API server does not serve the kind, and otherwise returns
// err unchanged.
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

// NoFencing reports whether a read failed because the API server does not serve the fencing API.
func NoFencing[T any](r Read[T]) bool { return errors.Is(r.Err, ErrNoFencing) }

// FenceEnded reports whether the fence has the condition Returned. The ended NodeFence object is kept for some time.
func FenceEnded(o *v1alpha1.NodeFence) bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReturned)
}

// FenceWords describes the progress of a fence: its phase, its agent and its proof.
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
