// Command csi-reclaimer is a sidecar of a CSI driver. It has the driver create a volume for each claim, and delete
// the volume when, and only when, the reclaim policy of its PersistentVolume says so, whether PersistentVolume or
// claim is deleted first.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
)

const name = "csi-reclaimer"

const long = `csi-reclaimer runs beside a CSI driver and keeps the promise of the reclaim policy:
a volume is deleted when, and only when, its PersistentVolume says Delete and its
claim is gone, whichever of the two is deleted first.

It adds a finalizer to the driver's PersistentVolumes, proves with live reads that
a volume may be deleted, has the driver delete it, and only then removes the finalizer.

In role owner it also provisions volumes, in place of the external-provisioner, and
leaves none behind: it writes each volume to an in-flight log before CreateVolume.`

const example = `  # beside an external-provisioner 5 or newer, which continues to create and delete volumes
  csi-reclaimer --csi-address=/csi/csi.sock --role=observer

  # a dry run: log decisions without carrying them out
  csi-reclaimer --csi-address=/csi/csi.sock --dry-run --http-endpoint=:8080

  # beside an external-provisioner 4.x, which continues to delete the volumes of released PVs
  csi-reclaimer --csi-address=/csi/csi.sock --role=companion --leader-election

  # before csi-reclaimer is removed: remove its finalizers
  csi-reclaimer --csi-address=/csi/csi.sock --release-finalizers

  # beside the driver, in its pod
  csi-reclaimer --csi-address=/csi/csi.sock --leader-election --http-endpoint=:8080

  # from a shell, against the cluster of a kubeconfig file
  csi-reclaimer --csi-address=unix:///tmp/csi.sock --kubeconfig=$HOME/.kube/config -v=4`

func main() { os.Exit(runMain()) }

func runMain() int {
	o, err := newOptions()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: set up the flags: %v\n", name, err)
		return 1
	}
	return app.Main(&cobra.Command{
		Use:     name + " [flags]",
		Short:   "Deletes CSI volumes when, and only when, their reclaim policy says so",
		Long:    long,
		Example: example,
	}, o)
}
