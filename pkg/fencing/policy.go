package fencing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// leasePoll is the interval of lists of all node Leases while a node is unreachable, and equals their renewal interval.
const leasePoll = 10 * time.Second

// pollLeases lists the Leases and wakes the policies at each leasePoll, while a policy exists and a node is
// unreachable, until ctx ends.
func (c *Controller) pollLeases(ctx context.Context) {
	for {
		if c.observer.looksForSilence() {
			c.pollOnce(ctx)
		} else {
			c.view.rest()
		}
		tick := c.cfg.Clock.NewTimer(leasePoll)
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C():
		}
	}
}

func (c *Controller) pollOnce(ctx context.Context) {
	leases, err := c.policies.listLeases(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.observer.policies.Each(func(p *policy) {
			c.policyReports.ReportFailure(ctx, policyObject(p), fencing.ReasonAPIReadFailed, err, false)
		})
	} else {
		c.view.saw(leases, c.observer.unreachable(), c.cfg.Clock.Now())
	}
	c.observer.wakePolicies()
}

// reconcilePolicy works on one policy. A single worker calls it, because the limits of each policy count the fences of
// all.
func (c *Controller) reconcilePolicy(ctx context.Context, name string) controller.Result {
	p, found := c.observer.policies.Get(name)
	if !found || p.terminating {
		return controller.Done()
	}
	if _, known := c.view.clear(c.cfg.Clock.Now()); !known && c.observer.looksForSilence() {
		return controller.Done() // the next list of Leases decides
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("FencePolicy", name))
	err := c.carryOutPolicy(ctx, p)
	failure := controller.FailureOf(ctx, err)
	if failure == controller.Retryable || failure == controller.Lasting {
		c.policyReports.ReportFailure(ctx, policyObject(p), fencing.ReasonAPIReadFailed, err, false)
	} else if err == nil {
		c.policyReports.Forget(p.uid)
	}
	return failure.Result(c.cfg.retries())
}

// carryOutPolicy fences as many nodes as the policy allows now, and writes its status.
func (c *Controller) carryOutPolicy(ctx context.Context, p *policy) error {
	f, err := c.policyFacts(ctx, p)
	if err != nil {
		return err
	}
	d := fencing.DecidePolicy(f, c.cfg.Clock.Now())
	for d.Fence != "" && !c.cfg.DryRun {
		next, err := c.fenceNode(ctx, p, f, d.Fence)
		if err != nil {
			return err
		}
		f = next
		d = fencing.DecidePolicy(f, c.cfg.Clock.Now())
	}
	c.reportNodes(ctx, p, d)
	return c.writePolicy(ctx, p, d)
}

// fenceNode creates the NodeFence of a node, if live reads agree with the watches. It returns the facts, updated by
// these reads and the creation.
func (c *Controller) fenceNode(ctx context.Context, p *policy, f fencing.PolicyFacts, name string) (
	fencing.PolicyFacts, error) {
	old, err := c.readLive(ctx, p, &f, name)
	if err != nil {
		return f, err
	}
	if fencing.DecidePolicy(f, c.cfg.Clock.Now()).Fence != name {
		return f, nil
	}
	if old != nil {
		// The deletion frees the name and wakes the policy, as does the deletion by another client (ErrGone).
		if err := c.policies.deleteEnded(ctx, old); err != nil {
			return f, err
		}
		return f, fmt.Errorf("the NodeFence of node %q that has ended is deleted first: %w", name, kube.ErrChanged)
	}
	since, _ := c.view.since(name)
	if err := c.policies.createFence(ctx, fenceFor(p, name, since)); err != nil {
		return f, err
	}
	c.policyReports.Event(ctx, judged(p, name), fencing.ReasonUnreachable, "Node "+name+".")
	f.Nodes[indexOf(f, name)].Fenced = true
	return f, nil
}

// readLive replaces the state of a policy, of the node and of all fences in f by live reads. It returns the ended
// NodeFence of the node, or nil.
func (c *Controller) readLive(ctx context.Context, p *policy, f *fencing.PolicyFacts, name string) (*fence, error) {
	live, found, err := c.policies.readPolicy(ctx, p.name)
	switch {
	case err != nil:
		return nil, err
	case !found, live.uid != p.uid, live.terminating, live.generation != p.generation:
		return nil, fmt.Errorf("FencePolicy %q: %w", p.name, kube.ErrChanged)
	}
	fences, err := c.policies.listFences(ctx)
	if err != nil {
		return nil, err
	}
	old := countFences(f, fences, name)
	n, found, err := c.policies.readWholeNode(ctx, name)
	if err != nil {
		return nil, err
	}
	lease, err := c.cluster.readLease(ctx, name)
	if err != nil {
		return nil, err
	}
	at := &f.Nodes[indexOf(*f, name)]
	_, version := c.view.since(name)
	switch {
	case !found:
		at.Unreachable = false
	case lease.ResourceVersion != version:
		c.view.reached(name)
		at.Since = time.Time{}
	default:
		at.Unreachable = n.unreachable
		at.Selected, err = selects(p, n)
	}
	return old, err
}

// countFences recounts the fenced nodes in f, and returns the ended fence with this name, or nil.
func countFences(f *fencing.PolicyFacts, fences []*fence, name string) (ended *fence) {
	active, byRequest := map[string]*fence{}, map[string]bool{}
	for _, one := range fences {
		byRequest[one.Name] = one.endedByRequest()
		if !one.ended() {
			active[one.Name] = one
		} else if one.Name == name {
			ended = one
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.Fenced, n.Ended = active[n.Name] != nil, byRequest[n.Name]
		delete(active, n.Name)
	}
	maps.DeleteFunc(active, func(_ string, one *fence) bool { return one.Vacant() })
	f.Others = slices.Sorted(maps.Keys(active))
	return ended
}

func indexOf(f fencing.PolicyFacts, name string) int {
	return slices.IndexFunc(f.Nodes, func(n fencing.NodeView) bool { return n.Name == name })
}

// fenceFor returns the NodeFence that a policy requests for a node.
func fenceFor(p *policy, node string, since time.Time) *v1alpha1.NodeFence {
	return &v1alpha1.NodeFence{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: fenceKind},
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: v1alpha1.NodeFenceSpec{
			Reason: "The node is unreachable since " + since.UTC().Format(time.RFC3339) +
				", and pods with claims wait for it (FencePolicy " + p.name + ").",
			PolicyName: p.name, Agents: p.spec.Agents, AllowControlPlane: p.spec.AllowControlPlane,
			Unfence: v1alpha1.UnfenceWhenReturned,
		},
	}
}

// reportNodes reports the decisions of a policy about unreachable nodes. A node with a NodeFence is reported there
// instead.
func (c *Controller) reportNodes(ctx context.Context, p *policy, d fencing.PolicyDecision) {
	judgedNow := map[types.UID]bool{}
	for _, j := range d.Nodes {
		about := judged(p, j.Node)
		reason := j.Reason
		switch {
		case reason == fencing.ReasonFenceExists:
			continue
		case reason == fencing.ReasonUnreachable && c.cfg.DryRun:
			reason = fencing.ReasonWouldFence
		}
		judgedNow[about.Key] = true
		c.judgements.Report(ctx, about, reason, "Node "+j.Node+".")
	}
	c.observer.forgetJudged(p.uid, judgedNow, c.judgements.Forget)
}

// policyObject returns the object of reports on a policy.
func policyObject(p *policy) events.Object {
	return events.Object{ObjectReference: v1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind,
		Name: p.name, UID: p.uid}}
}

// judged returns the object of reports on a policy and a node.
func judged(p *policy, node string) events.Object {
	o := policyObject(p)
	o.Node, o.Key = events.Node(node), p.uid+"/"+types.UID(node)
	return o
}

// bySilence orders nodes as fencing.DecidePolicy does.
func bySilence(a, b *fencing.NodeView) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
}
