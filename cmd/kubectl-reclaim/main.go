// Command kubectl-reclaim is a kubectl plugin ("kubectl reclaim"). It explains the state and next steps of a PV,
// claim, pod or node, lists what waits, summarizes the PVs of each driver, lists the locks of claims and the pods that
// are held or on a node that is down, shows suspected leaks, and previews the effect of scaling or deleting a
// StatefulSet on its claims. It also deletes pods, requests and lists fences of nodes, and removes csi-reclaimer's
// finalizers from a driver's PVs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/confirm"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/driver"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/tables"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/waiting"
)

// newCommand creates the command with all of its groups.
var newCommand = cli.Root(waiting.Commands, tables.Commands, driver.Commands, confirm.Commands, own)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := newCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, printers.IsTerminal).
		ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: "+cli.ErrorText(err))
		os.Exit(1)
	}
}
