package fencing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// cluster is the access to the API server for a NodeFence, and for a FencePolicy. Each read for a NodeFence is live,
// except the list of VolumeAttachments (see attachments): it is as new as the moment at which it was sent. No read
// fails if the object does not exist.
type cluster interface {
	policyCluster
	readFence(ctx context.Context, name string) (f fencing.Fence, found bool, err error)
	readNode(ctx context.Context, name string) (objects.Node, error)
	readLease(ctx context.Context, node string) (objects.Lease, error)
	// listRemaining lists the objects that are left on the node of an Ask.
	listRemaining(ctx context.Context, ask fencing.Ask) (fencing.RemainingFacts, error)
	// setFinalizer adds or removes Finalizer on the NodeFence of an Ask.
	setFinalizer(ctx context.Context, ask fencing.Ask, has bool) error
	deleteFence(ctx context.Context, ask fencing.Ask) error
	writeStatus(ctx context.Context, ask fencing.Ask) error
	// setTaint makes the taint of an Ask the only one of this project on its Node, which must be unchanged since it was
	// read.
	setTaint(ctx context.Context, ask fencing.Ask) error
	// eachTainted reads all Nodes that have a taint of this project, page by page.
	eachTainted(ctx context.Context, visit func(name string, facts objects.Node)) error
}

// apiServer implements cluster with real clients.
type apiServer struct {
	clients     clients
	attachments *attachments
}

func (a apiServer) readFence(ctx context.Context, name string) (fencing.Fence, bool, error) {
	return kube.Get(ctx, nodefence.Kind, "", name, a.clients.own.Fences.Get, fencing.FenceOf)
}

func (a apiServer) readNode(ctx context.Context, name string) (objects.Node, error) {
	n, _, err := kube.Get(ctx, kube.Node, "", name, a.clients.Core.Nodes().Get, objects.NodeOf)
	return n, err
}

func (a apiServer) readLease(ctx context.Context, node string) (objects.Lease, error) {
	l, _, err := kube.Get(ctx, kube.NodeLease, "", node,
		a.clients.Coordination.Leases(v1.NamespaceNodeLease).Get, objects.LeaseOf)
	return l, err
}

func (a apiServer) listRemaining(ctx context.Context, ask fencing.Ask) (f fencing.RemainingFacts, err error) {
	err = eachPod(ctx, a.clients.Clients, ask.Node, "", func(o *v1.Pod) { f.AddPod(objects.PodOf(o)) })
	if err != nil || ask.PodsOnly {
		return f, err
	}
	left, listed, err := a.attachments.on(ctx, ask, a.listAttachments)
	if err != nil {
		return fencing.RemainingFacts{}, err
	}
	f.All.VolumeAttachments, f.Leaving.VolumeAttachments, f.AttachmentsListed = left.all, left.leaving, listed
	return f, nil
}

func (a apiServer) listAttachments(ctx context.Context) (map[string]attached, error) {
	of := map[string]attached{}
	err := kube.Each(ctx, "VolumeAttachments", metav1.ListOptions{}, a.clients.Storage.VolumeAttachments().List,
		func(o *storagev1.VolumeAttachment) {
			n := of[o.Spec.NodeName]
			n.all++
			if o.DeletionTimestamp != nil {
				n.leaving++
			}
			of[o.Spec.NodeName] = n
		})
	if err != nil {
		return nil, err
	}
	return of, nil
}

// attached counts the VolumeAttachments of a node, and the terminating ones among them.
type attached struct{ all, leaving int }

// attachments is the last list of the VolumeAttachments of all nodes, since no selector finds those of one node. In a
// large cluster a list takes many seconds and many fences can end at once, so the fences share it. Its methods are safe
// for concurrent use.
type attachments struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// listing means that a call lists them.
	listing      bool
	sent, listed time.Time
	nodes        map[string]attached
}

// listEvery is the shortest interval at which lists are sent. A list that takes longer is followed by a pause as long
// as itself.
const listEvery = 10 * time.Second

// on returns the counts of the node of an Ask, and whether they are from a list that was sent after ask.Since. It sends
// a list if one is due, and returns the counts of the last one otherwise.
func (a *attachments) on(ctx context.Context, ask fencing.Ask,
	list func(context.Context) (map[string]attached, error)) (left attached, listed bool, err error) {
	if left, listed, due := a.last(ask); !due {
		return left, listed, nil
	}
	defer a.ended() // after a panic, too, which ends the work on one fence alone
	sent := a.clock.Now()
	nodes, err := list(ctx)
	if err != nil {
		return attached{}, false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent, a.listed, a.nodes = sent, a.clock.Now(), nodes
	return nodes[ask.Node], true, nil
}

func (a *attachments) ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listing = false
}

// last returns the result of the last list, or that the caller has to make one.
func (a *attachments) last(ask fencing.Ask) (left attached, listed, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	recent := a.clock.Since(a.sent) < max(listEvery, 2*a.listed.Sub(a.sent))
	listed = !ask.Since.IsZero() && a.sent.After(ask.Since)
	due = !recent && !a.listing
	a.listing = a.listing || due
	return a.nodes[ask.Node], listed, due
}

// eachPod reads the pods of a node, page by page. version is the minimum resourceVersion of the list; an empty version
// reads the latest state.
func eachPod(ctx context.Context, clients kube.Clients, node, version string, visit func(*v1.Pod)) error {
	options := metav1.ListOptions{ResourceVersion: version,
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	what := fmt.Sprintf("pods of node %q", node)
	return kube.Each(ctx, what, options, clients.Core.Pods(metav1.NamespaceAll).List, visit)
}

// setFinalizer replaces the list of finalizers, because a custom resource accepts no strategic merge patch. The write
// is bound to a live read, so that the finalizers of other programs survive.
func (a apiServer) setFinalizer(ctx context.Context, ask fencing.Ask, has bool) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	o, err := kube.Read(ctx, nodefence.Kind, "", ask.Node, a.clients.own.Fences.Get)
	switch {
	case err != nil:
		return err
	case o == nil, o.UID != ask.UID:
		return fmt.Errorf("NodeFence %q: %w", ask.Node, kube.ErrGone)
	case slices.Contains(o.Finalizers, fencing.Finalizer) == has:
		return nil
	case has && o.DeletionTimestamp != nil:
		return fmt.Errorf("NodeFence %q is terminating: %w", ask.Node, kube.ErrChanged)
	}
	after := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == fencing.Finalizer })
	if has {
		after = append(after, fencing.Finalizer)
	}
	o, err = kube.PatchMetadata(ctx, a.clients.own.Fences, kube.MetadataPatch{Name: ask.Node, UID: ask.UID,
		ResourceVersion: o.ResourceVersion, Finalizers: &after})
	if err != nil {
		return fmt.Errorf("NodeFence %q: %w", ask.Node, err)
	}
	if slices.Contains(o.Finalizers, fencing.Finalizer) != has {
		return fmt.Errorf("change the finalizers of NodeFence %q: %w", ask.Node, kube.ErrUndone)
	}
	return nil
}

func (a apiServer) deleteFence(ctx context.Context, ask fencing.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	return kube.Delete(ctx, "NodeFence", a.clients.own.Fences, ask.Node, ask.UID, ask.ResourceVersion)
}

// writeStatus replaces the status, since the API server ignores the other fields of this object. The kind of an earlier
// release drops the fields that it does not know, such as the volumes of a proof and the tries of an undo. A decision
// from such a status would be made again and again.
func (a apiServer) writeStatus(ctx context.Context, ask fencing.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	o := &v1alpha1.NodeFence{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: fenceKind},
		ObjectMeta: metav1.ObjectMeta{Name: ask.Node, UID: ask.UID, ResourceVersion: ask.ResourceVersion},
		Status:     *ask.Status,
	}
	kept, err := a.clients.own.Fences.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of NodeFence %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	}
	if !sameStatus(*ask.Status, kept.Status) {
		return fmt.Errorf("write the status of NodeFence %q: %w", ask.Node, errOldKind)
	}
	return nil
}

// errOldKind is the error of a status that is kept only in part.
var errOldKind = errors.New("the API server keeps only a part of it: apply node-fencing-crd.yaml of this release")

// sameStatus compares the JSON of two statuses, in which times are whole seconds.
func sameStatus(a, b v1alpha1.NodeFenceStatus) bool {
	one, errOne := json.Marshal(a)
	other, errOther := json.Marshal(b)
	return errOne == nil && errOther == nil && bytes.Equal(one, other)
}

// errTaken is returned because the API server allows only one taint with the same key and effect.
var errTaken = errors.New("it has the taint " + v1.TaintNodeOutOfService + " of others with each effect")

// withTaint returns the taints, with this one as the only taint of this project.
//
// The effect of the taint out-of-service is NoExecute, which also deletes the pods that tolerate an unreachable node.
// If other programs have added that taint, the effect is NoSchedule: Kubernetes looks for the key alone
// (pkg/controller/podgc and pkg/controller/volume/attachdetach), and a node cannot have two taints with the same key
// and effect.
func withTaint(taints []v1.Taint, is fencing.Taint) ([]v1.Taint, error) {
	others := slices.DeleteFunc(slices.Clone(taints), objects.IsOwnTaint)
	switch is {
	case fencing.OutOfService:
	case fencing.VolumesFenced:
		return append(others, v1.Taint{Key: objects.VolumesFencedTaint, Effect: v1.TaintEffectNoSchedule}), nil
	default:
		return others, nil
	}
	for _, effect := range []v1.TaintEffect{v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule} {
		taken := func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService && t.Effect == effect }
		if !slices.ContainsFunc(others, taken) {
			return append(others, v1.Taint{Key: v1.TaintNodeOutOfService, Value: objects.OwnTaintValue, Effect: effect}), nil
		}
	}
	return nil, errTaken
}

// hasTaint reports whether a Node has this taint of this project and no more dangerous one, or none at all for NoTaint.
func hasTaint(o *v1.Node, is fencing.Taint) bool {
	switch n := objects.NodeOf(o); is {
	case fencing.OutOfService:
		return n.OwnTaint
	case fencing.VolumesFenced:
		return n.VolumesFenced && !n.OwnTaint
	default:
		return !n.Tainted()
	}
}

// taintPatch returns a JSON merge patch that replaces the taints of a Node, if it is unchanged since it was read.
func taintPatch(o *v1.Node, taints []v1.Taint) ([]byte, error) {
	if o.UID == "" || o.ResourceVersion == "" {
		return nil, errors.New("want a UID and a resourceVersion to change the taints of a node")
	}
	if taints == nil {
		taints = []v1.Taint{}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
}

// setTaint replaces the whole list of taints, because a merge patch cannot change one entry. The write is bound to a
// live read, which must show the same version of the Node as the decision.
func (a apiServer) setTaint(ctx context.Context, ask fencing.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	o, err := a.clients.Core.Nodes().Get(ctx, ask.Node, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read node %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	case o.ResourceVersion != ask.NodeVersion:
		return fmt.Errorf("node %q: %w", ask.Node, kube.ErrChanged)
	}
	taints, err := withTaint(o.Spec.Taints, ask.Taint)
	if err != nil {
		return fmt.Errorf("taint node %q: %w", ask.Node, err)
	}
	body, err := taintPatch(o, taints)
	if err != nil {
		return err
	}
	after, err := a.clients.Core.Nodes().Patch(ctx, ask.Node, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change the taints of node %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	}
	if !hasTaint(after, ask.Taint) {
		return fmt.Errorf("change the taints of node %q: %w", ask.Node, kube.ErrUndone)
	}
	return nil
}

func (a apiServer) eachTainted(ctx context.Context, visit func(string, objects.Node)) error {
	return kube.Each(ctx, "nodes", metav1.ListOptions{}, a.clients.Core.Nodes().List, func(o *v1.Node) {
		if n := objects.NodeOf(o); n.Tainted() {
			visit(o.Name, n)
		}
	})
}
