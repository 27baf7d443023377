package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const long = `Explains what happens to PersistentVolumes, claims, pods and nodes, and why. It also previews the effect of
scaling or deleting a StatefulSet on them.

It reads the cluster of your kubeconfig, and decides with the functions of csi-reclaimer and volume-guard. It reports
missing permissions, and continues. Only "release", "settle", "delete-pod", "fence", "unfence", "confirm", and "leaks"
with --adopt or --reclaim write to the cluster. They ask first, except "delete-pod" without --force, which deletes like
"kubectl delete pod".`

type shared struct {
	genericiooptions.IOStreams
	cluster *genericclioptions.ConfigFlags
	role    string
	// isTerminal reports whether a stream is a terminal, so that a person can answer there; tests replace it.
	isTerminal func(any) bool
}

func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return commandOf(&shared{IOStreams: streams, cluster: genericclioptions.NewConfigFlags(true),
		isTerminal: printers.IsTerminal})
}

func commandOf(s *shared) *cobra.Command {
	root := &cobra.Command{
		Use: name, Short: "Explain what happens to PersistentVolumes, claims, pods and nodes, and why", Long: long,
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
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &flagError{err, cmd.CommandPath()} })
	root.SetUsageTemplate(usageTemplate)
	s.cluster.AddFlags(root.PersistentFlags())
	root.PersistentFlags().AddFlag(verbosity())
	root.PersistentFlags().StringVar(&s.role, "role", "",
		"Role of csi-reclaimer beside the driver: owner, companion or observer. Default: guessed from the finalizers of "+
			"the driver's PVs.")
	mustComplete(root, "role", roleNames())
	root.AddCommand(explainCommand(s), listCommand(s), statusCommand(s), releaseCommand(s), settleCommand(s),
		leaksCommand(s), podsCommand(s), deletePodCommand(s), previewCommand(s), fenceCommand(s), unfenceCommand(s),
		confirmCommand(s), fencesCommand(s), locksCommand(s), webCommand(s), versionCommand(s), manCommand())
	return root
}

// verbosity returns klog's flag -v with the meaning that it has in kubectl.
func verbosity() *pflag.Flag {
	logs := flag.NewFlagSet(name, flag.ContinueOnError)
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

func roleNames() []string {
	return []string{volume.RoleOwner.String(), volume.RoleCompanion.String(), volume.RoleObserver.String()}
}

func mustComplete(cmd *cobra.Command, flag string, words []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words,
		cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist, which is a bug in this program
	}
}

// asRole returns the value of --role, RoleUnknown if it is not set.
func (s *shared) asRole() (volume.Role, error) {
	at := slices.Index(roleNames(), s.role)
	switch {
	case s.role == "":
		return volume.RoleUnknown, nil
	case at < 0:
		return volume.RoleUnknown, fmt.Errorf("--role=%s: must be one of %s", s.role, strings.Join(roleNames(), ", "))
	}
	return []volume.Role{volume.RoleOwner, volume.RoleCompanion, volume.RoleObserver}[at], nil
}

// config returns the cluster's client configuration, with the plugin's user agent.
func (s *shared) config() (*rest.Config, error) {
	config, err := s.cluster.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return rest.AddUserAgent(config, name), nil
}

// live returns the cluster, all of whose reads are live.
func (s *shared) live() (explain.Cluster, error) {
	role, err := s.asRole()
	if err != nil {
		return explain.Cluster{}, err
	}
	config, err := s.config()
	if err != nil {
		return explain.Cluster{}, err
	}
	return explain.Live(config, role)
}

// checkDriver returns an error if nothing in the cluster names a driver. What cannot be read is no error here.
func (s *shared) checkDriver(ctx context.Context, driver string) error {
	if driver == "" {
		return nil
	}
	c, err := s.live()
	if err != nil {
		return err
	}
	return volumes.CheckDriver(ctx, c, driver)
}

// answer asks a question and returns the trimmed answer. It is empty if ctx or the input ends first.
func (s *shared) answer(ctx context.Context, question string) string {
	fmt.Fprint(s.ErrOut, question+" ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n') // an error means the end of the input, which is no answer
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ""
	case said := <-answer:
		return said
	}
}

// confirm asks a question, which only the answers y and yes confirm.
func (s *shared) confirm(ctx context.Context, question string) error {
	switch strings.ToLower(s.answer(ctx, question+" [y/N]")) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// errNotConfirmed means that the answer was no, or missing.
var errNotConfirmed = errors.New("not confirmed: nothing was changed")
