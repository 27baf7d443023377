package watch

import (
	"context"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
)

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
			found[name] = locks.PVOf(its.object)
		}
	}
	return explain.Found(found)
}
