//go:build unix

package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// playedNodes exist only in the API: their reports stand for running processes.
type playedNodes struct {
	cluster *controlplane.ControlPlane
	silence map[string]func() error
	boots   map[string]int // of nodes that were booted again
}

func startPlayedNodes(ctx context.Context, cluster *controlplane.ControlPlane) (podNodes, error) {
	nodes := &playedNodes{cluster: cluster, silence: map[string]func() error{}}
	for _, name := range []string{podNode1, podNode2} {
		if err := nodes.start(ctx, name); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// start plays a node until it is silenced.
func (n *playedNodes) start(ctx context.Context, name string) error {
	user, err := n.cluster.ConfigFor(fakenode.User(name), fakenode.Group)
	if err != nil {
		return err
	}
	node, err := fakenode.New(user, name, fakenode.Config{BootID: fmt.Sprintf("%s-%d", name, n.boots[name])})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- node.Run(running) }()
	n.silence[name] = func() error {
		cancel()
		return <-ended
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	select {
	case <-node.Registered():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("play node %q: %w", name, ctx.Err())
	}
}

func (n *playedNodes) describe() string {
	return "two nodes that are played: their pods are objects alone, and write nothing"
}

func (n *playedNodes) real() bool { return false }

func (n *playedNodes) cutOff(node string) error {
	silence := n.silence[node]
	delete(n.silence, node)
	return silence()
}

func (n *playedNodes) heal(node string) error { return n.start(context.Background(), node) }

// agent is a pod that does nothing: a node that is cut off has no processes.
func (n *playedNodes) agent() v1.PodSpec {
	spec := n.pod("")
	spec.Volumes, spec.RestartPolicy = nil, v1.RestartPolicyNever
	return spec
}

func (n *playedNodes) boot(ctx context.Context, node string) error {
	if n.boots == nil {
		n.boots = map[string]int{}
	}
	n.boots[node]++
	return n.start(ctx, node)
}

// volume creates a PV that no kubelet mounts.
func (n *playedNodes) volume(ctx context.Context, maker objects.Maker, name string) (*objects.Volume, error) {
	return maker.Make(ctx, objects.Spec{Name: name, Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
}

func (n *playedNodes) pod(claim string) v1.PodSpec {
	return v1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](5), AutomountServiceAccountToken: ptr.To(false),
		Containers: []v1.Container{{Name: "writer", Image: "none"}},
		Volumes: []v1.Volume{{Name: "volume-0", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
	}
}

func (n *playedNodes) waitWritten(context.Context, *objects.Volume, types.UID) error { return nil }

const noData = "nothing written"

func (n *playedNodes) writers(*objects.Volume) (data, detail string, err error) {
	return noData, "", nil
}
func (n *playedNodes) alone() string    { return noData }
func (n *playedNodes) together() string { return noData }

func (n *playedNodes) stop() (err error) {
	for _, silence := range n.silence {
		err = silence()
	}
	return err
}
