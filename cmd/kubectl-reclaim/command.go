package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const long = `Explains what happens to PersistentVolumes and claims, and why.

It reads the cluster of your kubeconfig, and decides with the functions of csi-reclaimer and volume-guard. It reports
what you may not read, and continues. Only "release", and "leaks" with --adopt or --reclaim, write to the cluster; they
ask first.`

// shared is what all commands have in common.
type shared struct {
	genericiooptions.IOStreams
	cluster *genericclioptions.ConfigFlags
	role    string
}

// newCommand returns the plugin with all its commands.
func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &shared{IOStreams: streams, cluster: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use: name, Short: "Explain what happens to PersistentVolumes and claims, and why", Long: long,
		Version: app.Version(),
		// kubectl shows the command as "kubectl reclaim".
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl reclaim"},
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		// The logs of libraries are not for a terminal; errors are returned.
		cmd.SetContext(klog.NewContext(cmd.Context(), logr.Discard()))
	}
	s.cluster.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&s.role, "role", "",
		"Role of csi-reclaimer beside the driver: owner, companion or observer. Default: guessed from the finalizers of "+
			"the driver's PVs.")
	mustComplete(root, "role", roleNames())
	root.AddCommand(explainCommand(s), statusCommand(s), releaseCommand(s), leaksCommand(s))
	return root
}

func roleNames() []string {
	return []string{volume.RoleOwner.String(), volume.RoleCompanion.String(), volume.RoleObserver.String()}
}

// mustComplete adds shell completion for a flag of the command.
func mustComplete(cmd *cobra.Command, flag string, words []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words,
		cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is not there: a mistake in this program
	}
}

// asRole returns the value of --role, RoleUnknown for none.
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

// config returns how to reach the cluster.
func (s *shared) config() (*rest.Config, error) {
	config, err := s.cluster.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return rest.AddUserAgent(config, name), nil
}

// reader returns what reads the cluster.
func (s *shared) reader() (*explain.Reader, error) {
	role, err := s.asRole()
	if err != nil {
		return nil, err
	}
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	return explain.New(config, explain.Config{Role: role})
}

// errNotConfirmed: the answer was no, or there was none.
var errNotConfirmed = errors.New("not confirmed: nothing was changed")
