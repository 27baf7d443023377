package pvc

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// Finalizer holds a claim while pods use it (PVCProtectionFinalizer in kubernetes/pkg/volume/util).
const Finalizer = "kubernetes.io/pvc-protection"

// Claim is what is kept of a PersistentVolumeClaim.
type Claim struct {
	inuse.Object
	// Owner is the UID of the object that controls the claim, empty for none. Of a generic ephemeral
	// volume it is the pod.
	Owner types.UID
}

// ClaimOf reads what is needed of a claim, without keeping a reference to it.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim {
	c := Claim{Object: inuse.ObjectOf(o, Finalizer)}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		c.Owner = owner.UID
	}
	return c
}

// Pod is what is kept of a pod.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	// Scheduled: it has a node. One that has none uses nothing, and the scheduler places no pod whose claim is
	// terminating. A kubelet would start it as long as the finalizer is on the claim: see DESIGN.md.
	Scheduled bool
	// Ended: it has ended, of a pod that pod safety holds by the word of its kubelet.
	Ended bool
	// ShutDown: it was deleted without grace, by force or by the kubelet that is done with it, and
	// nothing holds it. Its ephemeral volumes go then, for the pod may wait for their claims to go.
	ShutDown bool
	// Claims and Ephemeral are the claims that its volumes name, and those that its generic
	// ephemeral volumes have by their name, if the pod controls them.
	Claims, Ephemeral []string
}

// PodOf reads what is needed of a pod, without keeping a reference to it.
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

// usageOf returns which of the pods use the claim.
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

// recordClaim keeps the claims that may need something. Others take no memory.
func recordClaim(object runtime.Object, _ bool) (_ *Claim, keep bool, err error) {
	api, ok := object.(*v1.PersistentVolumeClaim)
	if !ok {
		return nil, false, fmt.Errorf("watch claims: got a %T", object)
	}
	c := ClaimOf(api)
	return &c, c.Needs(), nil
}

// recordPod keeps the pods that may use a claim.
func recordPod(object runtime.Object, _ bool) (_ *Pod, keep bool, err error) {
	api, ok := object.(*v1.Pod)
	if !ok {
		return nil, false, fmt.Errorf("watch pods: got a %T", object)
	}
	p := PodOf(api)
	return &p, p.Scheduled && len(p.Claims)+len(p.Ephemeral) > 0, nil
}
