//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// The names of nodes.
const (
	Node1 = "node-1"
	Node2 = "node-2"
)

// Nodes are played: they exist only in the API, and their reports stand for running processes.
type Nodes struct {
	plane   *controlplane.ControlPlane
	silence map[string]func() error
	boots   map[string]int // of nodes that were booted again
}

// PlayNodes returns nodes that end with the cluster, at first none.
func (c *Cluster) PlayNodes() *Nodes {
	n := &Nodes{plane: c.Plane, silence: map[string]func() error{}, boots: map[string]int{}}
	c.OnEnd(func() error {
		var errs []error
		for _, silence := range n.silence {
			errs = append(errs, silence())
		}
		return errors.Join(errs...)
	})
	return n
}

// Start plays a node until it is silenced.
func (n *Nodes) Start(ctx context.Context, name string) error {
	_, silence, err := fakenode.Play(context.WithoutCancel(ctx), n.plane, name,
		fakenode.Config{BootID: fmt.Sprintf("%s-%d", name, n.boots[name])})
	if err == nil {
		n.silence[name] = silence
	}
	return err
}

// Silence ends the reports of a node.
func (n *Nodes) Silence(name string) error {
	silence := n.silence[name]
	delete(n.silence, name)
	return silence()
}

// Boot plays a node after its reboot.
func (n *Nodes) Boot(ctx context.Context, name string) error {
	n.boots[name]++
	return n.Start(ctx, name)
}
