package fencing

import (
	"math"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// waiting is what is read of a pod with claims on a node that is unreachable.
type waiting struct {
	namespace   string
	labels      map[string]string
	terminating bool
}

// waitingOf returns a pod as what waits for its node, false for one that does not: it has no claim, it has ended, it
// cannot run on another node (DaemonSets, static pods), or it is to stay on its node for ever.
func waitingOf(o *v1.Pod) (waiting, bool) {
	p, owner := objects.PodOf(o), metav1.GetControllerOf(o)
	switch {
	case p.Mirror, owner != nil && owner.Kind == "DaemonSet", len(p.Claims) == 0:
		return waiting{}, false
	case !p.UsesVolumes(), p.Finished():
		return waiting{}, false
	case !p.Terminating && staysForEver(o):
		return waiting{}, false
	}
	return waiting{o.Namespace, o.Labels, p.Terminating}, true
}

// staysForEver reports whether a pod tolerates its node being unreachable without a limit, as kube-controller-manager
// has it (getMinTolerationTime in pkg/controller/tainteviction).
func staysForEver(o *v1.Pod) bool {
	taint := v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}
	limit, tolerates := int64(math.MaxInt64), false
	for i := range o.Spec.Tolerations {
		t := &o.Spec.Tolerations[i]
		if !t.ToleratesTaint(klog.Background(), &taint, false) {
			continue
		}
		tolerates = true
		if t.TolerationSeconds != nil {
			limit = min(limit, *t.TolerationSeconds)
		}
	}
	return tolerates && limit == math.MaxInt64
}
