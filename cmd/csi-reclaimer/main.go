// Command csi-reclaimer is a sidecar of a CSI driver: it has the driver make a volume for each
// claim, and delete it when, and only when, the reclaim policy of its PersistentVolume says so,
// whichever of PersistentVolume and claim is deleted first.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

const long = `csi-reclaimer runs beside a CSI driver and keeps the promise of the reclaim policy:
a volume is deleted when, and only when, its PersistentVolume says Delete and its
claim is gone, whichever of the two is deleted first.

It puts a finalizer on the driver's PersistentVolumes, proves with live reads that
a volume may go, has the driver delete it, and only then lets the object go.

In role owner it also makes the volumes of claims, in place of the external-provisioner,
and leaves none behind: a claim is held while its volume is made.`

const example = `  # beside an external-provisioner 5 or newer, which goes on to make and delete volumes
  csi-reclaimer --csi-address=/csi/csi.sock --role=observer

  # a first look: what would be done, without doing it
  csi-reclaimer --csi-address=/csi/csi.sock --dry-run --http-endpoint=:8080

  # beside an external-provisioner 4.x, which goes on to delete the volumes of released PVs
  csi-reclaimer --csi-address=/csi/csi.sock --role=companion --leader-election

  # before csi-reclaimer is removed: take its finalizers off
  csi-reclaimer --csi-address=/csi/csi.sock --release-finalizers

  # beside the driver, in its pod
  csi-reclaimer --csi-address=/csi/csi.sock --leader-election --http-endpoint=:8080

  # from a shell, against the cluster of a kubeconfig file
  csi-reclaimer --csi-address=unix:///tmp/csi.sock --kubeconfig=$HOME/.kube/config -v=4`

// helpColumns is where --help wraps its lines.
const helpColumns = 100

func main() { os.Exit(runMain()) }

func runMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer logs.FlushLogs()
	saveMemory(os.Getenv, cgroupLimit)
	cmd, err := newCommand()
	if err == nil {
		err = cmd.ExecuteContext(ctx)
	}
	if err != nil {
		// One line, whatever the error joins: it is what an operator finds in the log.
		fmt.Fprintln(os.Stderr, "csi-reclaimer: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// programVersion returns the version that the build was given. One that was not given is
// "unknown", not the template that component-base holds then.
func programVersion() string {
	v := version.Get().GitVersion
	if strings.Contains(v, "$Format") {
		return "unknown"
	}
	return v
}

func newCommand() (*cobra.Command, error) {
	o, err := newOptions()
	if err != nil {
		return nil, fmt.Errorf("set up the flags: %w", err)
	}
	groups := o.flags()
	cmd := &cobra.Command{
		Use:     "csi-reclaimer [flags]",
		Short:   "Deletes CSI volumes when, and only when, their reclaim policy says so",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		// Errors are printed once, by runMain; usage would bury them.
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.version {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "csi-reclaimer", programVersion())
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			limited := o.limitVerbosity()
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			ctx := klog.NewContext(cmd.Context(), klog.Background())
			if limited {
				klog.FromContext(ctx).Info("Logging less than was asked for: above this level client-go logs Secrets", "v", maxVerbosity)
			}
			err := run(ctx, o, cmd.OutOrStdout())
			if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
				return nil // told to end while it was starting
			}
			return err
		},
	}
	for _, group := range groups.FlagSets {
		cmd.Flags().AddFlagSet(group)
	}
	cliflag.SetUsageAndHelpFunc(cmd, groups, helpColumns)
	return cmd, nil
}
