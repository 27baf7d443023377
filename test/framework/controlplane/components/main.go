// Command components is one Kubernetes control plane in one binary: its first argument
// chooses which component the process becomes, the rest are that component's own flags.
// The module of each version compiles it with that version, for package
// test/framework/controlplane, which runs it.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/components/etcd"
)

const usage = "usage: components etcd DATADIR CLIENT_PORT PEER_PORT | " +
	"kube-apiserver|kube-controller-manager|kube-scheduler FLAGS"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	component := os.Args[1]
	// The components read os.Args themselves; each must see its own name first.
	os.Args = append([]string{component}, os.Args[2:]...)
	switch component {
	case "etcd":
		if err := etcd.Run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		fmt.Fprintf(os.Stderr, "unknown component %q\n%s\n", component, usage)
		os.Exit(2)
	}
}
