package watch

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// Load reads every kind once, page by page, in place of Run: PVs before claims and claims before pods, so that what is
// missing from a later list was not missed. It returns an error if the API server does not answer; Unread names the
// kinds that it refuses. ctx also bounds the reads of Leases that Facts makes. The number of requests depends on the
// number of drivers and fences, and not on the number of PVs.
func (c *Cluster) Load(ctx context.Context) error {
	c.mu.Lock()
	c.run = func(t *table[coordinationv1.Lease]) { _ = t.load(ctx) } // the table keeps the error
	c.mu.Unlock()
	for _, load := range []func(context.Context) error{c.pvs.load, c.attachments.load, c.drivers.load, c.csiNodes.load,
		c.classes.load, c.shards.load, c.claims.load, c.pods.load, c.nodes.load, c.fences.load} {
		if err := load(ctx); err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// Failure returns the reason why a kind was never read, nil if each was read or refused, or may still be read.
func (c *Cluster) Failure() error {
	for _, h := range c.health() {
		if h.err != nil && !h.synced && !h.kind.maybe && !refused(h.err) {
			return fmt.Errorf("list %s: %w", h.kind.resource, h.err)
		}
	}
	return nil
}

// Unread returns the kinds that the API server refuses, and the questions that this leaves open.
func (c *Cluster) Unread() []string { return stateOf(c.health()).Unread }

// Explainer returns a Reader that reads from the caches, and Events from the API server.
func (c *Cluster) Explainer() *explain.Reader { return c.reader }

// errOtherNamespace means that only the claims of Config.Namespace are read.
var errOtherNamespace = errors.New("the claims of other namespaces were not read")

func (c *Cluster) beyond(namespace string) bool {
	return c.cfg.Namespace != "" && namespace != c.cfg.Namespace
}
