// Package cli is the frame of kubectl-reclaim: the root command, the cluster of the command line, questions, output and
// shell completion.
package cli

import (
	"flag"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
)

// Name is the name of the program, and of its writes as a field manager.
const Name = "kubectl-reclaim"

const long = `Explains what happens to PersistentVolumes, claims, pods and nodes, and why. It also previews the effect of
scaling or deleting a StatefulSet on them.

It reads the cluster of your kubeconfig, and decides with the functions of csi-reclaimer and volume-guard. It reports
missing permissions, and continues. Only "release", "settle", "delete-pod", "fence", "unfence", "confirm", and "leaks"
with --adopt or --reclaim write to the cluster. They ask first, except "delete-pod" without --force, which deletes like
"kubectl delete pod".`

// Group returns some of the commands.
type Group func(*Plugin) []*cobra.Command

// Root returns a function that creates the command kubectl-reclaim with these groups of commands. isTerminal reports
// whether a stream is a terminal, so that a person can answer there.
func Root(groups ...Group) func(streams genericiooptions.IOStreams, isTerminal func(any) bool) *cobra.Command {
	return func(streams genericiooptions.IOStreams, isTerminal func(any) bool) *cobra.Command {
		s := &Plugin{IOStreams: streams, Kubeconfig: genericclioptions.NewConfigFlags(true), isTerminal: isTerminal}
		root := newRoot(s)
		for _, commands := range groups {
			root.AddCommand(commands(s)...)
		}
		return root
	}
}

func newRoot(s *Plugin) *cobra.Command {
	root := &cobra.Command{
		Use: Name, Short: "Explain what happens to PersistentVolumes, claims, pods and nodes, and why", Long: long,
		Version: version.Get(),
		// kubectl shows the command as "kubectl reclaim".
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl reclaim"},
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if !klog.V(1).Enabled() { // logs of libraries do not belong in a terminal; errors are returned
			cmd.SetContext(klog.NewContext(cmd.Context(), logr.Discard()))
		}
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return WithStep(err, "see its flags: "+cmd.CommandPath()+" --help")
	})
	root.SetUsageTemplate(usageTemplate)
	s.Kubeconfig.AddFlags(root.PersistentFlags())
	root.PersistentFlags().AddFlag(verbosity())
	root.PersistentFlags().StringVar(&s.role, "role", "",
		"Role of csi-reclaimer beside the driver: owner, companion or observer. Default: guessed from the finalizers of "+
			"the driver's PVs.")
	MustComplete(root, "role", Words(roleNames()...))
	return root
}

// verbosity returns klog's flag -v with the meaning that it has in kubectl.
func verbosity() *pflag.Flag {
	logs := flag.NewFlagSet(Name, flag.ContinueOnError)
	klog.InitFlags(logs)
	v := pflag.PFlagFromGoFlag(logs.Lookup("v"))
	v.Shorthand, v.Usage = "v", "Log level: 0 logs nothing, 6 logs the requests to the API server, 8 also their contents."
	return v
}

// usageTemplate is cobra's, with the flags of all commands in a group below the command's own.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .Aliases}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Available Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .LocalNonPersistentFlags.HasAvailableFlags}}

Flags:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Flags of all commands, for the cluster as in kubectl:
{{.Root.PersistentFlags.FlagUsages | trimTrailingWhitespaces}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more information about a command.{{end}}
`
