//go:build unix

// Command tour shows on real objects all that the project does: first the scenarios of test/demo, then a crash of
// external-provisioner and of csi-reclaimer, then volume-guard. Each act has a folder.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/scenarios"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/crash"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/intree"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/pods"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/sets"
)

const usage = `Shows what csi-reclaimer and volume-guard do, on real control planes and a real CSI driver.

It begins with the scenarios of the demo: claims and PersistentVolumes are deleted in both
orders. Then the stock external-provisioner is killed while it makes a volume, and
csi-reclaimer, too. On Kubernetes 1.30, volume-guard reclaims volumes of an in-tree plugin, and
keeps a claim that a pod uses. A node is cut off and its pod deleted by force, without
volume-guard and with it, and volume-guard fences such a node, which takes a minute. Two
Deployments write to a volume that nobody attaches, without a lock and with one. Then StatefulSets
are scaled down, and their policy deletes the claims of removed replicas.

It judges by the API server, the driver's record of calls and the disk, never by what
csi-reclaimer and volume-guard say of themselves.

It needs Go, and neither root nor containers: where it is root, and containerd, runc and
containernetworking-plugins are there, the nodes of the tour are real, else they are played.
The first run compiles Kubernetes in two versions, and external-provisioner, which takes minutes;
later ones take seconds to start.

Usage:
  go run ./test/tour [--no-color]
  make tour

Flags:
`

const costs = "Needs Go and about 8 GB of Go's caches; neither root nor containers, with which the nodes\n" +
	"that are cut off are real. The first run compiles Kubernetes, twice, which takes minutes."

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout *os.File, stderr io.Writer) int {
	flags := pflag.NewFlagSet("tour", pflag.ContinueOnError)
	return stage.Command{Flags: flags, Usage: usage, Show: show}.Run(args, stdout, stderr)
}

// acts are all acts, in their order.
func acts() []stage.Act {
	return []stage.Act{scenarios.Act(), crash.Act(), intree.Act(), pods.Act(), pods.LockAct(), sets.Act()}
}

// show plays the scenarios of the demo, and then the further acts, until one comes to no verdict.
func show(ctx context.Context, p *stage.Printer) error {
	p.Intro(acts(), costs)
	return scenarios.Show(ctx, p, controlplane.Options{}, func(ctx context.Context, c *cluster.CSI) (err error) {
		for _, next := range []func() error{
			func() error { return crash.Show(ctx, c) },
			func() error { return intree.Show(ctx, p) },
			func() error { return pods.Show(ctx, p) },
			func() error { return sets.Show(ctx, c) },
		} {
			failure := next()
			err = errors.Join(err, failure)
			if !stage.Judged(failure) {
				break
			}
		}
		return err
	})
}
