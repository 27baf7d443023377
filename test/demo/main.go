//go:build unix

// Command demo shows the main jobs on real objects: a real API server and its controllers, a real CSI driver with its
// volumes on disk, and csi-reclaimer between them. Its scenarios are in scenarios; test/tour shows the rest.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/scenarios"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

const usage = `Shows what csi-reclaimer does, on a real control plane and a real CSI driver.

It starts etcd, kube-apiserver and Kubernetes' controllers of PVs and claims, a CSI driver
that keeps its volumes as folders on disk, and csi-reclaimer. Then it deletes claims and
PersistentVolumes in both orders, with policy Delete and Retain, and once without
csi-reclaimer, which leaks a volume. make tour goes on from there.

It judges by the API server, the driver's record of calls and the disk, never by what
csi-reclaimer says of itself.

It needs Go, and neither root nor containers. The first run compiles Kubernetes, which takes
minutes; later ones take seconds.

Usage:
  go run ./test/demo [--keep] [--no-color]
  make demo [KEEP=1]

Flags:
`

const costs = "Needs Go; neither root nor containers. The first run compiles Kubernetes: 7 minutes on two\n" +
	"slow cores, and 3.5 GB of Go's caches. Later ones take seconds."

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout *os.File, stderr io.Writer) int {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	keep := flags.Bool("keep", false, "Leave a cluster up afterwards, until Ctrl-C, with objects that wait for each "+
		"common reason, and say how to ask why.")
	return stage.Command{Flags: flags, Usage: usage, Show: func(ctx context.Context, p *stage.Printer) error {
		return show(ctx, p, *keep)
	}}.Run(args, stdout, stderr)
}

// show plays the scenarios and prints the verdicts. Then it leaves the cluster up, or names what there is beside.
func show(ctx context.Context, p *stage.Printer, keep bool) error {
	p.Intro([]stage.Act{scenarios.Act()}, costs)
	// Four scenarios need no other controllers. Compiling all of them takes a fifth longer.
	return scenarios.Show(ctx, p, controlplane.Options{Lean: !keep}, func(ctx context.Context, c *cluster.CSI) error {
		if keep {
			return keepUp(ctx, c)
		}
		more(p)
		return nil
	})
}

// more names the tour and the tutorial.
func more(p *stage.Printer) {
	p.Head("make tour shows all the rest: a leak of external-provisioner, Kubernetes 1.30, nodes, fences, locks")
	p.Say("make demo KEEP=1 leaves a cluster up, and says how to ask it why an object is still there.")
	p.Say("docs/tutorials/demo.md is the tutorial.")
}
