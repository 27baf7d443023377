package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// realNodes are kubelets with containers, and a CSI driver to whose volumes they write.
type realNodes struct {
	pool   *nodes.Pool
	driver *nodes.Driver
	// agents is asked by agents' pods to power nodes off, at this URL.
	agents *http.Server
	url    string
}

// startRealNodes starts them where this machine can run them. The error says why it cannot.
func startRealNodes(ctx context.Context, c *cluster.Cluster) (podNodes, error) {
	if err := nodes.Supported(); err != nil {
		return nil, err
	}
	pool, err := nodes.Start(ctx, c.Plane, nodes.Options{Names: []string{cluster.Node1, cluster.Node2},
		Progress: c.Printer.Out})
	if err != nil {
		return nil, err
	}
	n := &realNodes{pool: pool}
	if err := n.start(ctx, c); err != nil {
		return nil, errors.Join(err, n.stop()) //nolint:contextcheck // ctx may have ended
	}
	c.OnEnd(n.stop)
	return n, nil
}

// start starts the rest, once the kubelets run.
func (n *realNodes) start(ctx context.Context, c *cluster.Cluster) error {
	if err := n.serveAgents(ctx); err != nil {
		return err
	}
	dir, err := c.Folder("driver")
	if err != nil {
		return err
	}
	n.driver, err = n.pool.StartDriver(ctx, nodes.DriverOptions{Options: mockdriver.Options{Name: podsDriver, Dir: dir,
		Progress: c.Printer.Out}})
	return err
}

// serveAgents starts a server that powers nodes off.
func (n *realNodes) serveAgents(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n.url = "http://" + listener.Addr().String()
	n.agents = &http.Server{ReadHeaderTimeout: cluster.Patience, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			node := n.pool.Node(r.FormValue("FENCE_NODE"))
			if node == nil {
				http.Error(w, "no such node", http.StatusNotFound)
			} else if err := node.PowerOff(); err != nil { //nolint:contextcheck // half a loss of power is none
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})}
	go func() { _ = n.agents.Serve(listener) }() // until it is closed
	return nil
}

func (n *realNodes) agent() v1.PodSpec { return nodes.FencerSpec(n.url) }

func (n *realNodes) boot(ctx context.Context, node string) error { return n.pool.Node(node).Boot(ctx) }

func (n *realNodes) describe() string {
	return "two real nodes: kubelets, containers, and a CSI driver whose volumes they write to"
}

func (n *realNodes) real() bool { return true }

func (n *realNodes) cutOff(node string) error { return n.pool.Node(node).Partition() }
func (n *realNodes) heal(node string) error   { return n.pool.Node(node).Heal() }

func (n *realNodes) volume(ctx context.Context, maker objects.Maker, name string) (*objects.Volume, error) {
	maker.CSI = n.driver.Controller()
	return maker.Make(ctx, objects.Spec{Name: name, Policy: v1.PersistentVolumeReclaimRetain})
}

func (n *realNodes) pod(claim string) v1.PodSpec { return nodes.WriterSpec(claim) }

func (n *realNodes) waitWritten(ctx context.Context, vol *objects.Volume, pod types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	before, err := n.driver.Stamps(vol.Handle)
	if err != nil {
		return err
	}
	_, err = n.driver.WaitStamps(ctx, vol.Handle, func(now []stamps.Stamp) bool {
		for _, stamp := range now[len(before):] {
			if stamp.Pod == pod {
				return true
			}
		}
		return false
	})
	return err
}

func (n *realNodes) writers(vol *objects.Volume) (data, detail string, err error) {
	written, err := n.driver.Stamps(vol.Handle)
	if err != nil {
		return "", "", err
	}
	overlaps := stamps.Overlaps(written)
	if len(overlaps) == 0 {
		writers := stamps.Writers(written)
		return n.alone(), fmt.Sprintf("%d pods wrote to the volume, each after the end of the one before", len(writers)), nil
	}
	o := overlaps[0]
	return n.together(), fmt.Sprintf("TWO WRITERS: the pod on %s wrote %d times after the first write on %s, for %v",
		o.First.Node, o.Late, o.Second.Node, o.For.Round(time.Millisecond)), nil
}

func (n *realNodes) alone() string    { return "one at a time" }
func (n *realNodes) together() string { return "two writers" }

func (n *realNodes) stop() error {
	err := n.pool.Stop()
	if n.driver != nil {
		err = errors.Join(err, n.driver.Stop())
	}
	if n.agents != nil {
		err = errors.Join(err, n.agents.Close())
	}
	return err
}
