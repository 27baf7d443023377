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
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// Facts returns the input of the rows.
func (c *Cluster) Facts(ctx context.Context) view.Facts {
	f := view.Facts{Driver: c.cfg.Driver, Object: c.object, AllClaims: c.claims.read()}
	// An error means that PVs cannot be read, which State reports too.
	f.StatusFacts, _ = volumes.ReadStatus(ctx, c.cluster, c.cfg.Driver)
	f.ClusterFacts = f.Indexed() // indexed once for all rows
	f.ClaimOf = func(namespace, name string) explain.Read[*v1.PersistentVolumeClaim] {
		return explain.Optional(c.Claim(ctx, namespace, name))
	}
	f.Class = func(name string) explain.Read[*storagev1.StorageClass] { return explain.Optional(c.Class(ctx, name)) }
	f.Users = func(namespace, name string) explain.Read[[]pvc.Pod] {
		read := c.podIndex()
		return explain.UsersOf(explain.ReadOf(pick(read.Value.ofClaim[namespace+"/"+name]), read.Err))
	}
	f.Pods = c.podList(ctx)
	f.Locks = c.lockFacts(ctx)
	// An error means that NodeFences cannot be read, which State reports if the API server serves them.
	f.Fences, _ = nodes.ReadList(ctx, c.cluster)
	f.Leaks, _ = c.reports()
	return f
}

func (c *Cluster) object(name string) *v1.PersistentVolume {
	found, _, _ := c.pvs.find(name) // nil if it is unknown
	return found.object
}

func (c *Cluster) podList(ctx context.Context) pods.ListFacts {
	f, err := pods.ReadList(ctx, c.cluster, metav1.NamespaceAll)
	if err != nil {
		f = pods.ListFacts{Now: c.now(), Pods: explain.Failed[[]explain.Pod](err), Nodes: explain.ByName(c.Nodes(ctx))}
	}
	f.Fences = explain.ByName(c.Fences(ctx)) // also if no held pod is terminating, because it costs no request
	return f
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
	s.Partial = len(s.Unread) > 0
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

// lockFacts returns the input of the rows of locks: nil if no claim has a lock and no pod has the gate, or if claims or
// pods were not read, because an unseen pod would look as if it had ended.
func (c *Cluster) lockFacts(ctx context.Context) *locks.Facts {
	locked := func(o *v1.PersistentVolumeClaim) bool {
		claim := singlenode.ClaimOf(o)
		return claim.Locked || claim.Kept
	}
	gated := func(p explain.Pod) bool { return p.Gated }
	if !c.cfg.Locks || !slices.ContainsFunc(c.claims.read().Value, locked) &&
		!slices.ContainsFunc(c.pods.read().Value, gated) {
		return nil
	}
	f, err := locks.ReadList(ctx, c.cluster, c.cfg.Namespace)
	if err != nil {
		return nil
	}
	f.Fences = explain.ByName(c.Fences(ctx))
	return &f
}
