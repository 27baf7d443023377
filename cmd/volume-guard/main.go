// Command volume-guard runs once per cluster: it honors the reclaim policy of in-tree volumes, protects claims and
// PersistentVolumes in use where Kubernetes' own controllers do not, holds pods until their processes have ended,
// keeps volumes on one node at a time, carries out the claim retention of StatefulSets, and fences nodes.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
)

const name = "volume-guard"

const long = `volume-guard runs once per cluster and protects its volumes where Kubernetes does not:

intree           deletes the volumes of in-tree plugins when, and only when, their reclaim policy
                 says so, also where kube-controller-manager (before 1.31) leaks them.
pvc-protection   keeps claims that pods use, where kube-controller-manager's own controller is off.
pv-protection    keeps PersistentVolumes that are bound, where kube-controller-manager's own
                 controller is off.
pod-safety       holds pods with claims until their processes have ended, in namespaces with the
                 label csi-reclaimer.io/pod-safety=enforce. It needs the manifests pod-safety-*.yaml.
single-node      lets only one pod at a time use a claim, for volumes that nothing attaches, in
                 namespaces with the label csi-reclaimer.io/single-node. It needs pod-safety and the
                 manifests single-node-*.yaml.
statefulset-claims  deletes claims of StatefulSets that whenScaled: Delete condemns and Kubernetes leaves, and
                 carries out the whole retention policy where the API server does not have it.
node-fencing     fences nodes as NodeFences and FencePolicies ask for, and releases their pods and
                 volumes once it is proven that nothing on the node writes. It needs node-fencing-crd.yaml.

Where volume-guard observes that Kubernetes does the same, it writes nothing.`

const example = `  # a dry run: log decisions without carrying them out
  volume-guard --dry-run --http-endpoint=:8080

  # where kube-controller-manager runs without its protection controllers
  volume-guard --controllers=*,pvc-protection,pv-protection --http-endpoint=:8080

  # from a shell, against the cluster of a kubeconfig file
  volume-guard --kubeconfig=$HOME/.kube/config --leader-election-namespace=kube-system -v=4`

func main() {
	os.Exit(app.Main(&cobra.Command{
		Use:     name + " [flags]",
		Short:   "Protects a cluster's volumes where Kubernetes does not",
		Long:    long,
		Example: example,
	}, &options{}))
}
