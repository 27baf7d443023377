// Package app is the frame of the programs: command line, signals, log, memory, access to the cluster, permission
// checks, and the operation of controllers as the leader.
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
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // makes --logging-format=json known
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
)

const helpColumns = 100

type Options interface {
	// Flags returns the flags that set the options, in the groups of --help.
	Flags() cliflag.NamedFlagSets
	// Validate returns an error that names all invalid settings, or nil.
	Validate() error
	// Run runs the program until ctx ends or an error occurs that waiting cannot fix. It writes results to stdout.
	Run(ctx context.Context, stdout io.Writer) error
}

// Main runs a program until it ends, or receives SIGINT or SIGTERM, and returns its exit status.
func Main(about *cobra.Command, o Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer logs.FlushLogs()
	if saveMemory(os.Getenv, cgroupLimits) {
		afterEachCollection(new(pacer).adjust)
	}
	if err := command(about, o).ExecuteContext(ctx); err != nil {
		// The error is printed in one line, even if it joins several, so that an operator finds it in the log.
		fmt.Fprintln(os.Stderr, about.Name()+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// Flags returns all flags of a program: its own, and the common ones of every program.
func Flags(o Options) cliflag.NamedFlagSets { return new(common).flags(o) }

// errInterrupted means that a task was not completed.
var errInterrupted = errors.New("interrupted: run the command again")

// AtEnd returns the result of Run, given the error of its work. A signal ends a daemon without an error, even during
// its start. It interrupts a task, such as a release, which therefore fails.
func AtEnd(ctx context.Context, task bool, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case task:
		return errors.Join(err, errInterrupted)
	}
	return ignoreEnd(ctx, err)
}

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

// command adds the flags and the behavior to the description of a program.
func command(cmd *cobra.Command, o Options) *cobra.Command {
	var c common
	groups := c.flags(o)
	cmd.Args = cobra.NoArgs
	// Main prints errors, once and without the usage, which would bury them.
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.version {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Name(), version.Get())
			return err
		}
		if err := o.Validate(); err != nil {
			return err
		}
		ctx := klog.NewContext(cmd.Context(), klog.Background())
		if err := c.logs.apply(ctx); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Starting "+cmd.Name(), "version", version.Get())
		return o.Run(ctx, cmd.OutOrStdout())
	}
	for _, group := range groups.FlagSets {
		cmd.Flags().AddFlagSet(group)
	}
	cliflag.SetUsageAndHelpFunc(cmd, groups, helpColumns)
	return cmd
}

// maxVerbosity is the highest allowed log level. From level 8 on, client-go logs the bodies of its calls (logBody in
// k8s.io/client-go/rest), which contain Secrets and the attributes of volumes.
const maxVerbosity logsapi.VerbosityLevel = 7

type logging struct{ *logs.Options }

func (l *logging) flags(fs *pflag.FlagSet) {
	l.Options = logs.NewOptions()
	logsapi.AddFlags(l.Options, fs)
	fs.Lookup("v").Usage = fmt.Sprintf("Number for the log level verbosity. Levels above %d are lowered to %d, because "+
		"they log Secrets and the attributes of volumes.", maxVerbosity, maxVerbosity)
}

// limit bounds the levels of -v and --vmodule, and reports whether one of them was higher.
func (l *logging) limit() (limited bool) {
	limit := func(level *logsapi.VerbosityLevel) {
		limited = limited || *level > maxVerbosity
		*level = min(*level, maxVerbosity)
	}
	limit(&l.Verbosity)
	for i := range l.VModule {
		limit(&l.VModule[i].Verbosity)
	}
	return limited
}

// apply configures the log from the flags, after limiting its level.
func (l *logging) apply(ctx context.Context) error {
	limited := l.limit()
	if err := logsapi.ValidateAndApply(l.Options, nil); err != nil {
		return fmt.Errorf("logging flags: %w", err)
	}
	if limited {
		klog.FromContext(ctx).Info("Lowered the log level: above this level client-go logs Secrets", "v", maxVerbosity)
	}
	return nil
}
