// Command lean is a control plane without kube-controller-manager and kube-scheduler, whose code costs a fifth of the
// compilation. In their place it runs Kubernetes' own controllers of PVs, claims and service accounts. As in
// components, the first argument chooses the component that the process becomes.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/components/etcd"
)

const usage = "usage: lean etcd DATADIR CLIENT_PORT PEER_PORT | kube-apiserver FLAGS | kube-controller-manager FLAGS"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	component := os.Args[1]
	// The API server reads os.Args itself, and must see its own name first.
	os.Args = append([]string{component}, os.Args[2:]...)
	switch component {
	case "etcd":
		exit("etcd", etcd.Run(os.Args[1:]))
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		exit(component, runControllers(os.Args[1:]))
	default:
		fmt.Fprintf(os.Stderr, "unknown component %q\n%s\n", component, usage)
		os.Exit(2)
	}
}

func exit(component string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", component, err)
		os.Exit(1)
	}
}
