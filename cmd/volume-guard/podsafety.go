package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

type podSafetyOptions struct {
	unmountGrace  time.Duration
	deleteOrphans bool
	volumeLocks   bool
	nodeCondition bool
}

func (o *podSafetyOptions) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.unmountGrace, "unmount-grace", podsafety.DefaultUnmountGrace,
		"How long to hold a pod after its processes have ended, where nothing shows that its volumes are unmounted: after "+
			"a force deletion, after the pod garbage collector, and while no policy refuses force deletions. A guess: a "+
			"kubelet unmounts within seconds, and retries for as long as that fails. single-node frees the lock of a claim "+
			"that long after its pod has completed, too.")
	fs.BoolVar(&o.deleteOrphans, "delete-orphaned-pods", false,
		"Delete held pods whose Node no longer exists, once the Lease of the node was not renewed for 40s. Only for "+
			"clusters whose kube-controller-manager runs without its controller pod-garbage-collector-controller, which "+
			"does that.")
	fs.BoolVar(&o.volumeLocks, "volume-locks", true,
		"While a held pod is terminating on a node that is not Ready, have the VolumeLock of the node name its volumes: "+
			"the policy csi-reclaimer-attach-lock then refuses to attach them to another node. Needs "+
			"pod-safety-crd.yaml. Run kube-controller-manager with --disable-force-detach-on-timeout, too, so that volumes "+
			"are not detached from such a node after 6 minutes. --volume-locks=false removes all VolumeLocks.")
	fs.BoolVar(&o.nodeCondition, "node-unreachable-condition", true,
		"Set the condition "+string(objects.NodeUnreachable)+" of pods on a node whose condition Ready is Unknown, and "+
			"remove it when the node is back: of held pods, and of all pods in namespaces with the label "+
			podsafety.NamespaceLabel+". --node-unreachable-condition=false removes it from all pods.")
}
