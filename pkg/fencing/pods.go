package fencing

import (
	"math"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// waiting is the record of a pod with claims on an unreachable node.
type waiting struct {
	namespace   string
	labels      map[string]string
	terminating bool
}

// waitingOf returns the record of a pod, and false for a pod that does not wait for its node. Such a pod has no claim,
// has ended, cannot run on another node (DaemonSets, static pods), or tolerates the unreachable node for ever. An ended
// pod that is held and terminating waits: pod safety keeps it until the node shows the unmount of its volumes.
func waitingOf(o *v1.Pod) (waiting, bool) {
	p, owner := objects.PodOf(o), metav1.GetControllerOf(o)
	switch {
	case p.Mirror, owner != nil && owner.Kind == "DaemonSet", len(p.Claims) == 0:
		return waiting{}, false
	case !p.UsesVolumes():
		return waiting{}, false
	case !p.Terminating && staysForEver(o):
		return waiting{}, false
	}
	return waiting{o.Namespace, o.Labels, p.Terminating}, true
}

// staysForEver reports whether a pod tolerates an unreachable node without a limit, by the rules of
// kube-controller-manager (getMinTolerationTime in pkg/controller/tainteviction).
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
