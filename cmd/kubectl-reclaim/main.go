// Command kubectl-reclaim is a kubectl plugin ("kubectl reclaim"): it explains what happens to a PV, a claim, a pod
// or a node and why, summarizes the PVs of each driver, lists the pods that are held or on a node that is down and the
// locks of claims, shows suspected leaks, previews what scaling or deleting a StatefulSet does to its claims, deletes
// pods, asks for nodes to be fenced and lists their fences, and removes csi-reclaimer's finalizers from a driver's PVs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const name = "kubectl-reclaim"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := newCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: "+withNextStep(err))
		os.Exit(1)
	}
}
