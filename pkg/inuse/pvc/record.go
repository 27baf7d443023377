package pvc

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// Finalizer holds a claim while pods use it (PVCProtectionFinalizer in kubernetes/pkg/volume/util).
const Finalizer = "kubernetes.io/pvc-protection"

// Claim holds the recorded fields of a PersistentVolumeClaim.
type Claim = inuse.Object

// ClaimOf returns the needed fields of a claim, without keeping a reference to it.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim { return inuse.ObjectOf(o, Finalizer) }

// Pod holds the recorded fields of a pod.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	// Scheduled is true if the pod has a node. A pod without a node uses nothing, and the scheduler places no pod whose
	// claim is terminating. A kubelet would start it as long as the claim has the finalizer: see DESIGN.md.
	Scheduled bool
	// Ended is true if the pod has ended, which for a pod that pod safety holds is up to the kubelet's report.
	Ended bool
	// ShutDown is true if the pod was deleted without grace, by force or by a kubelet that is done with it, and nothing
	// holds it. Its ephemeral volumes are released then, because the pod may wait for the deletion of their claims.
	ShutDown bool
	// Claims are the claims that the pod's volumes name. Ephemeral are the claims of its generic ephemeral volumes, by
	// name; they count only if the pod controls them.
	Claims, Ephemeral []string
}

// PodOf returns the needed fields of a pod, without keeping a reference to it.
func PodOf(o *v1.Pod) Pod {
	p := objects.PodOf(o)
	named := slices.DeleteFunc(p.Claims, func(name string) bool { return slices.Contains(p.Ephemeral, name) })
	return Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Scheduled: p.Node != "",
		Ended: p.Node != "" && !p.UsesVolumes(), ShutDown: p.ShutDown(), Claims: named, Ephemeral: p.Ephemeral}
}

// names returns the keys of all claims that the pod may use.
func (p Pod) names() []string {
	keys := make([]string, 0, len(p.Claims)+len(p.Ephemeral))
	for _, name := range slices.Concat(p.Claims, p.Ephemeral) {
		keys = append(keys, cache.NewObjectName(p.Namespace, name).String())
	}
	return keys
}

// uses reports whether the pod uses the claim, ended or not.
func (p Pod) uses(c Claim) bool {
	if !p.Scheduled || p.Namespace != c.Namespace {
		return false
	}
	return slices.Contains(p.Claims, c.Name) ||
		!p.ShutDown && c.Owner != "" && p.UID == c.Owner && slices.Contains(p.Ephemeral, c.Name)
}

// usageOf returns the use of the claim by these pods.
func usageOf(c Claim, pods []*Pod) (u Usage) {
	for _, p := range pods {
		switch {
		case !p.uses(c):
		case p.Ended:
			u.ByEnded = p.Name
		default:
			u.By = p.Name
		}
	}
	return u
}

// UsageOf returns the use of the claim by these pods. It is a pure function; pods of other namespaces do not count.
func UsageOf(c Claim, pods []Pod) Usage {
	all := make([]*Pod, len(pods))
	for i := range pods {
		all[i] = &pods[i]
	}
	return usageOf(c, all)
}

// mayUse reports whether the pod may use a claim; others are not recorded.
func (p *Pod) mayUse() bool { return p.Scheduled && len(p.Claims)+len(p.Ephemeral) > 0 }

// recordClaim and recordPod keep the claims that may need a write, and the pods that may use a claim, so that others
// take no memory.
var recordClaim, recordPod = kube.RecordIf(ClaimOf, (*Claim).Needs), kube.RecordIf(PodOf, (*Pod).mayUse)
