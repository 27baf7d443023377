// Package app is what the programs have in common around their work: the command line, signals, the
// log and memory.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// helpColumns is where --help wraps its lines.
const helpColumns = 100

// Options is what the command line of one program says.
type Options interface {
	// Flags returns the flags that set them, in the groups that --help shows.
	Flags() cliflag.NamedFlagSets
	// Validate returns every setting that is wrong.
	Validate() error
	// Run is the whole life of the program: until ctx ends, or something is wrong that waiting does
	// not mend. What is for its caller goes to stdout.
	Run(ctx context.Context, stdout io.Writer) error
}

// Main runs a program until it ends, or is told to by SIGINT or SIGTERM, and returns its exit status.
func Main(about *cobra.Command, o Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer logs.FlushLogs()
	saveMemory(os.Getenv, cgroupLimit)
	if err := command(about, o).ExecuteContext(ctx); err != nil {
		// One line, whatever the error joins: it is what an operator finds in the log.
		fmt.Fprintln(os.Stderr, about.Name()+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// Version returns the version that the build was given. One that was not given is
// "unknown", not the template that component-base holds then.
func Version() string {
	v := version.Get().GitVersion
	if strings.Contains(v, "$Format") {
		return "unknown"
	}
	return v
}

// Flags returns the flags of a program: its own, and those that every program has.
func Flags(o Options) cliflag.NamedFlagSets { return new(common).flags(o) }

// common is what the command line of every program says.
type common struct {
	logs    logging
	version bool
}

func (c *common) flags(o Options) cliflag.NamedFlagSets {
	groups := o.Flags()
	c.logs.flags(groups.FlagSet("Logs"))
	groups.FlagSet("Other").BoolVar(&c.version, "version", false, "Print the version and exit.")
	return groups
}

// command completes what is said about a program by what it does.
func command(cmd *cobra.Command, o Options) *cobra.Command {
	var c common
	groups := c.flags(o)
	cmd.Args = cobra.NoArgs
	// Errors are printed once, by Main; usage would bury them.
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.version {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Name(), Version())
			return err
		}
		if err := o.Validate(); err != nil {
			return err
		}
		ctx := klog.NewContext(cmd.Context(), klog.Background())
		if err := c.logs.apply(ctx); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Starting "+cmd.Name(), "version", Version())
		err := o.Run(ctx, cmd.OutOrStdout())
		if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
			return nil // told to end while it was starting
		}
		return err
	}
	for _, group := range groups.FlagSets {
		cmd.Flags().AddFlagSet(group)
	}
	cliflag.SetUsageAndHelpFunc(cmd, groups, helpColumns)
	return cmd
}
