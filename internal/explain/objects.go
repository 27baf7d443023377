package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PV holds the fields of a PersistentVolume that explanations need.
type PV struct {
	volume.PV
	// Tree holds the fields of an in-tree volume; nil for any other volume.
	Tree *intree.PV
	// FormerPlugin is the in-tree plugin that the volume needs, if some version of Kubernetes lacks it; empty otherwise.
	FormerPlugin string
}

// PVOf converts a PersistentVolume into a value that keeps no reference to o.
func PVOf(o *v1.PersistentVolume) PV {
	pv := PV{PV: volume.Of(o), FormerPlugin: formerPlugin(o)}
	if pv.InTree {
		tree := intree.Of(o)
		pv.Tree = &tree
	}
	return pv
}

// PolicyName returns the PV's reclaim policy as the Kubernetes API spells it.
func (pv PV) PolicyName() string {
	switch pv.Policy {
	case volume.PolicyDelete:
		return string(v1.PersistentVolumeReclaimDelete)
	case volume.PolicyRetain:
		return string(v1.PersistentVolumeReclaimRetain)
	case volume.PolicyRecycle:
		return string(v1.PersistentVolumeReclaimRecycle)
	case volume.PolicyUnknown:
	}
	return "unknown"
}

// CSIName reports whether the name of a provisioner can be a CSI driver's, which never contains a slash
// (ValidateCSIDriverName in pkg/apis/core/validation).
func CSIName(provisioner string) bool {
	return provisioner != "" && !strings.Contains(provisioner, "/")
}

// InTree reports whether an owner of PVs is an in-tree volume plugin.
func InTree(owner string) bool { return strings.HasPrefix(owner, "kubernetes.io/") }

// The plugins that Kubernetes had up to 1.30. The others left before any version still in use.
const (
	RBD    = "rbd"
	CephFS = "cephfs"
)

// formerPlugin returns the in-tree plugin that a PV needs, if Kubernetes has removed it in any version, and otherwise
// an empty string. The list follows the documentation of PersistentVolumeSource in core/v1 ("no longer supported").
func formerPlugin(o *v1.PersistentVolume) string {
	switch s := o.Spec.PersistentVolumeSource; {
	case s.RBD != nil:
		return RBD
	case s.CephFS != nil:
		return CephFS
	case s.Glusterfs != nil:
		return "glusterfs"
	case s.Flocker != nil:
		return "flocker"
	case s.Quobyte != nil:
		return "quobyte"
	case s.StorageOS != nil:
		return "storageos"
	case s.ScaleIO != nil:
		return "scaleIO"
	case s.PhotonPersistentDisk != nil:
		return "photonPersistentDisk"
	}
	return ""
}

// Pod holds the fields of a Pod that explanations need.
type Pod struct {
	objects.Pod
	Phase v1.PodPhase
	// TerminatingSince is the time of the deletion request, zero for a pod that is not terminating.
	TerminatingSince time.Time
	// Created is the creationTimestamp. Scheduled is the time of binding to a node, zero for an unscheduled pod.
	Created, Scheduled time.Time
	Tolerations        []v1.Toleration
	// Waiting is the pod as policies count it; nil if it does not wait for its node.
	Waiting *fencing.Waiting
	// User is the pod as a user of claims.
	User pvc.Pod
}

// PodOf converts a Pod into a value that keeps no reference to its managedFields.
func PodOf(o *v1.Pod) Pod {
	p := Pod{Pod: objects.PodOf(o), Phase: o.Status.Phase, Created: o.CreationTimestamp.Time,
		Tolerations: slices.Clone(o.Spec.Tolerations), User: pvc.PodOf(o)}
	if waiting, waits := fencing.WaitingOf(o); waits {
		p.Waiting = &waiting
	}
	for _, c := range o.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			p.Scheduled = c.LastTransitionTime.Time
		}
	}
	if o.DeletionTimestamp != nil {
		// The API server sets deletionTimestamp to the end of the grace period.
		p.TerminatingSince = o.DeletionTimestamp.Time
		if grace := o.DeletionGracePeriodSeconds; grace != nil {
			p.TerminatingSince = p.TerminatingSince.Add(-time.Duration(*grace) * time.Second)
		}
	}
	return p
}

// UsersOf returns pods as users of claims.
func UsersOf(pods Read[[]Pod]) Read[[]pvc.Pod] {
	return Then(pods, func(all []Pod) (users []pvc.Pod) {
		for i := range all {
			users = append(users, all[i].User)
		}
		return users
	})
}

// NodeOf returns the fields of a Node that explanations need. It leaves out fields that change with each heartbeat, and
// long ones: names of images, addresses, sizes.
func NodeOf(o *v1.Node) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, Labels: o.Labels, Annotations: o.Annotations,
			CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp, Finalizers: o.Finalizers},
		Spec:   v1.NodeSpec{Taints: o.Spec.Taints, Unschedulable: o.Spec.Unschedulable},
		Status: v1.NodeStatus{Conditions: slices.Clone(o.Status.Conditions)},
	}
	info := &o.Status.NodeInfo
	n.Status.NodeInfo = v1.NodeSystemInfo{BootID: info.BootID, MachineID: info.MachineID, SystemUUID: info.SystemUUID}
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return n
}

// ReadyOf returns the condition Ready of a node, nil if it has none or the node is nil.
func ReadyOf(node *v1.Node) *v1.NodeCondition {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c
		}
	}
	return nil
}

// IsReady reports whether the condition Ready of a node is True.
func IsReady(node *v1.Node) bool {
	c := ReadyOf(node)
	return c != nil && c.Status == v1.ConditionTrue
}

// DownSince returns since when a node is not Ready, the zero time if that is unknown.
func DownSince(node *v1.Node) time.Time {
	if c := ReadyOf(node); c != nil && c.Status != v1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// VolumeGuard is the name of volume-guard, and of its Lease for leader election. NoGuard means that it may not run.
const (
	VolumeGuard = "volume-guard"
	NoGuard     = "by this machine's clock, no replica holds its Lease (none does with --leader-election=false)"
)

// ReadGuards reads volume-guard's leader election Leases.
func ReadGuards(ctx context.Context, c Cluster) Read[[]coordinationv1.Lease] {
	return c.Leases(ctx, []string{VolumeGuard})
}

// GuardIsAway reports whether no replica of volume-guard leads. It is false if guards, the Leases of its name, were not
// read.
func GuardIsAway(guards Read[[]coordinationv1.Lease], now time.Time) bool {
	return guards.OK() && leaderOf(guards.Value, now) == nil
}

func leaderOf(guards []coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	for i := range guards {
		if objects.IsHeld(guards[i], now) {
			return &guards[i]
		}
	}
	return nil
}

// AddGuards reports whether volume-guard runs. guards are the Leases of its name.
func (s *Explanation) AddGuards(guards Read[[]coordinationv1.Lease], now time.Time) {
	NoteUnread(s, guards, "Leases", "whether volume-guard runs")
	switch leader := leaderOf(guards.Value, now); {
	case !guards.OK():
	case leader == nil:
		s.AddFact(VolumeGuard, "%s%s: nothing is released", NoGuard, lastRenewal(guards.Value, now))
	default:
		s.AddFact(VolumeGuard, "%s leads (Lease %s/%s)", HolderOf(*leader), leader.Namespace, leader.Name)
	}
}

// lastRenewal describes a renewal that is so recent that the Lease may only look expired, because clocks differ.
func lastRenewal(guards []coordinationv1.Lease, now time.Time) string {
	for _, l := range guards {
		if at := l.Spec.RenewTime; at != nil && HolderOf(l) != "" && now.Sub(at.Time) < 10*time.Minute {
			return fmt.Sprintf("; %s renewed it %s ago", HolderOf(l), Age(now, at.Time))
		}
	}
	return ""
}

// HolderOf returns the host name of a Lease's holder, which is its pod's name, or an empty string without a holder.
func HolderOf(l coordinationv1.Lease) string {
	return leadership.HostOf(ptr.Deref(l.Spec.HolderIdentity, ""))
}

// ErrNoFencing means that the API server does not serve NodeFences and FencePolicies.
var ErrNoFencing = errors.New("the API server does not serve NodeFences and FencePolicies, so no node is fenced by " +
	"csi-reclaimer in this cluster")

// FenceRead converts the answer to a GET of the NodeFence with this name. Value is nil if the fence does not exist.
// Err is ErrNoFencing if the API server does not serve the kind.
func FenceRead(o *v1alpha1.NodeFence, err error, name string) Read[*v1alpha1.NodeFence] {
	switch {
	case err == nil:
		return Found(o)
	case kube.Absent(err, nodefence.Kind.Resource, name):
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
	text := string(cmp.Or(o.Status.Phase, v1alpha1.PhaseRequested))
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

// AddedBy returns the field manager of a finalizer according to managedFields, empty if they show none.
func AddedBy(o metav1.Object, finalizer string) string {
	return writerOf(o, "f:finalizers", `v:"`+finalizer+`"`).Manager
}

// AnnotatedAt returns the time at which the field manager of an annotation last wrote to the object, according to
// managedFields. It is the zero time if they show none.
func AnnotatedAt(o metav1.Object, annotation string) time.Time {
	return ptr.Deref(writerOf(o, "f:annotations", "f:"+annotation).Time, metav1.Time{}).Time
}

// writerOf returns the first entry of managedFields that has a part of the metadata, the zero value for none.
func writerOf(o metav1.Object, field, key string) metav1.ManagedFieldsEntry {
	for _, entry := range o.GetManagedFields() {
		if objects.HasField(entry.FieldsV1, "f:metadata", field, key) {
			return entry
		}
	}
	return metav1.ManagedFieldsEntry{}
}
