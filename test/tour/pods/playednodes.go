//go:build unix

package pods

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// playedNodes have no processes.
type playedNodes struct{ *cluster.Nodes }

func startPlayedNodes(ctx context.Context, c *cluster.Cluster) (podNodes, error) {
	nodes := &playedNodes{c.PlayNodes()}
	for _, name := range []string{cluster.Node1, cluster.Node2} {
		if err := nodes.Start(ctx, name); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func (n *playedNodes) describe() string {
	return "two nodes that are played: their pods are objects alone, and write nothing"
}

func (n *playedNodes) real() bool { return false }

func (n *playedNodes) cutOff(node string) error { return n.Silence(node) }

func (n *playedNodes) heal(node string) error { return n.Start(context.Background(), node) }

func (n *playedNodes) boot(ctx context.Context, node string) error { return n.Boot(ctx, node) }

// agent is a pod that does nothing: a node that is cut off has no processes.
func (n *playedNodes) agent() v1.PodSpec {
	spec := n.pod("")
	spec.Volumes, spec.RestartPolicy = nil, v1.RestartPolicyNever
	return spec
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
