package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// Facts returns the input of the rows.
func (c *Cluster) Facts(ctx context.Context) view.Facts {
	f := view.Facts{Driver: c.cfg.Driver, Object: c.object, AllClaims: c.claims.read()}
	// An error means that PVs cannot be read, which State reports too.
	f.StatusFacts, _ = c.reader.Status(ctx, c.cfg.Driver)
	f.ClusterFacts = f.Indexed() // indexed once for all rows
	f.ClaimOf = func(namespace, name string) explain.Read[*v1.PersistentVolumeClaim] {
		return explain.Optional(c.Claim(ctx, namespace, name))
	}
	f.Class = func(name string) explain.Read[*storagev1.StorageClass] { return explain.Optional(c.Class(ctx, name)) }
	f.Users = func(namespace, name string) explain.Read[[]pvc.Pod] {
		read := c.podIndex()
		return explain.Read[[]pvc.Pod]{Made: true, Err: read.Err, Value: read.Value.ofClaim[namespace+"/"+name]}
	}
	f.Pods = c.podList()
	f.Locks = c.lockFacts(ctx, f.Pods)
	f.Fences = c.fenceList()
	f.Leaks, _ = c.reports()
	return f
}

func (c *Cluster) object(name string) *v1.PersistentVolume {
	found, _, _ := c.pvs.find(name) // nil if it is unknown
	return found.object
}

func (c *Cluster) nodesOf() explain.Read[map[string]*v1.Node] {
	return deriveFrom(&c.nodesByName, c.nodes, func(all []*v1.Node) map[string]*v1.Node {
		by := make(map[string]*v1.Node, len(all))
		for _, node := range all {
			by[node.Name] = node
		}
		return by
	})
}

func (c *Cluster) podList() pods.ListFacts {
	read := c.pods.read()
	f := pods.ListFacts{Now: c.now(), Nodes: c.nodesOf(), Leases: pods.Leases{}, Fences: c.fencesOf(),
		Pods: explain.Read[[]pods.Pod]{Made: true, Err: read.Err}}
	for _, p := range read.Value {
		f.Pods.Value = append(f.Pods.Value, p.Pod.Pod)
		_, known := f.Leases[p.Node]
		if p.Held && p.Node != "" && f.Nodes.OK() && f.Nodes.Value[p.Node] == nil && !known {
			f.Leases[p.Node] = c.kubeletLease(p.Node)
		}
	}
	return f
}

func (c *Cluster) fencesOf() pods.Fences {
	read := c.fences.read()
	if read.Err != nil {
		return explain.Failed[map[string]*v1alpha1.NodeFence](explain.FencingError(read.Err))
	}
	by := map[string]*v1alpha1.NodeFence{}
	for _, fence := range read.Value {
		by[fence.Name] = fence
	}
	return explain.Found(by)
}

func (c *Cluster) fenceList() nodes.ListFacts {
	f := nodes.ListFacts{Now: c.now(), Fences: c.fences.read().Value, On: map[string]nodes.Facts{}}
	if len(f.Fences) == 0 {
		return f
	}
	onNode, attachments := c.podIndex(), c.attachments.read()
	for _, fence := range f.Fences {
		on := nodes.Facts{Name: fence.Name, Now: f.Now}
		on.Pods = explain.Read[[]nodes.Pod]{Made: true, Err: onNode.Err}
		for _, p := range onNode.Value.onNode[fence.Name] {
			on.Pods.Value = append(on.Pods.Value, p.Pod)
		}
		on.Node = c.optionalNode(fence.Name)
		on.Lease = c.kubeletLease(fence.Name)
		on.Attachments = explain.Read[[]storagev1.VolumeAttachment]{Made: true, Err: attachments.Err,
			Value: slices.DeleteFunc(slices.Clone(attachments.Value),
				func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName != fence.Name })}
		f.On[fence.Name] = on
	}
	return f
}

func (c *Cluster) optionalNode(name string) explain.Read[*v1.Node] {
	node, exists, err := c.nodes.find(name)
	switch {
	case err != nil:
		return explain.Failed[*v1.Node](err)
	case !exists:
		return explain.Found[*v1.Node](nil)
	}
	return explain.Found(node)
}

type health struct {
	kind   kind
	synced bool
	err    error
	since  time.Time
}

func (c *Cluster) health() []health {
	all := []health{c.pvs.health(), c.claims.health(), c.pods.health(), c.nodes.health(), c.attachments.health(),
		c.drivers.health(), c.csiNodes.health(), c.classes.health(), c.fences.health(), c.shards.health()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, t := range c.leases {
		h := t.health()
		if of.Namespace != "" {
			h.kind.what, h.kind.open = "Leases of kubelets", "whether kubelets of lost nodes are alive"
		}
		all = append(all, h)
	}
	return all
}

// State returns how current the caches are, and the reads that the API server refuses.
func (c *Cluster) State(ctx context.Context) view.State {
	s := stateOf(c.health())
	if c.cfg.LeakPort == 0 {
		s.Unread = append(s.Unread, "Leak reports: they are not read here. So it is not known which leaks are suspected.")
	} else if _, err := c.reports(); err != nil {
		s.Unread = append(s.Unread, fmt.Sprintf("Leak reports (pods/proxy): %v. So suspected leaks are not shown.", err))
	}
	if admission := c.Admission(ctx); admission.Err != nil {
		s.Unread = append(s.Unread, fmt.Sprintf("The admission policies: %v. So it is not known which drivers they protect.",
			admission.Err))
	}
	return s
}

// stateOf is a pure function that sums up the watches.
func stateOf(all []health) view.State {
	s := view.State{Synced: true, Connected: true}
	var unread []string
	for _, h := range all {
		switch {
		case h.err == nil && !h.synced:
			s.Synced = false
		case h.err == nil:
		case h.kind.maybe && apierrors.IsNotFound(h.err):
		case refused(h.err), errors.Is(h.err, panics.Err):
			text := fmt.Sprintf("%s: %v. So it is not known %s.", h.kind.what, h.err, h.kind.open)
			if !slices.Contains(unread, text) {
				unread = append(unread, text)
			}
		default:
			// The state stays incomplete while a kind that every API server serves was never read.
			s.Connected, s.Synced = false, s.Synced && (h.synced || h.kind.maybe)
			if s.Since == nil || h.since.Before(s.Since.Time) {
				s.Since, s.Problem = &metav1.Time{Time: h.since}, h.err.Error()
			}
		}
	}
	s.Unread = unread
	return s
}

// refused reports whether the API server answered with a refusal.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// modesAge is the age up to which the modes of namespaces, which no cache holds, are not read again.
const modesAge = 30 * time.Second

// lockFacts returns the input of the rows of locks: nil if no claim has a lock and no pod has the gate, or if claims or
// pods were not read, because an unseen pod would look as if it had ended.
func (c *Cluster) lockFacts(ctx context.Context, list pods.ListFacts) *locks.Facts {
	claims := c.claims.read()
	if !c.cfg.Locks || !claims.OK() || !list.Pods.OK() {
		return nil
	}
	f := locks.Facts{ListFacts: list, Claims: explain.Found(make([]locks.Claim, 0, len(claims.Value)))}
	needed := slices.ContainsFunc(list.Pods.Value, func(p pods.Pod) bool { return p.Gated })
	for _, o := range claims.Value {
		claim := locks.ClaimOf(o)
		needed = needed || claim.Locked || claim.Kept
		f.Claims.Value = append(f.Claims.Value, claim)
	}
	if !needed {
		return nil
	}
	f.Modes = c.modes(ctx)
	f.Complete(c.askingClasses, c.askingPVs)
	f.Guards = c.Leases(ctx, []string{"volume-guard"})
	return &f
}

func (c *Cluster) modes(ctx context.Context) explain.Read[map[string]singlenode.Mode] {
	c.slow.mu.Lock()
	defer c.slow.mu.Unlock()
	if now := c.now(); !c.slow.modes.OK() || now.Sub(c.slow.modesRead) > modesAge {
		c.slow.modes, c.slow.modesRead = c.locks.Modes(ctx, c.cfg.Namespace), now
	}
	return c.slow.modes
}

func (c *Cluster) askingClasses() explain.Read[map[string]map[string]string] {
	all := c.classes.read()
	asks := explain.Read[map[string]map[string]string]{Made: true, Err: all.Err, Value: map[string]map[string]string{}}
	for _, o := range all.Value {
		asks.Value[o.Name] = locks.Asking(o)
	}
	return asks
}

func (c *Cluster) askingPVs(names []string) explain.Read[map[string]*locks.PV] {
	found := map[string]*locks.PV{}
	for _, name := range names {
		its, exists, err := c.pvs.find(name)
		switch {
		case err != nil:
			return explain.Failed[map[string]*locks.PV](err)
		case !exists:
			found[name] = nil
		default:
			found[name] = its.asks
		}
	}
	return explain.Found(found)
}
