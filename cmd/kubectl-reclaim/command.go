package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const long = `Explains what happens to PersistentVolumes, claims, pods and nodes, and why; and what scaling or deleting a
StatefulSet does to them.

It reads the cluster of your kubeconfig, and decides with the functions of csi-reclaimer and volume-guard. It reports
what you may not read, and continues. Only "release", "settle", "delete-pod", "fence", "unfence", "confirm", and
"leaks" with --adopt or --reclaim, write to the cluster. They ask first, but for "delete-pod" without --force, which
deletes as "kubectl delete pod" does.`

// shared is what all commands have in common.
type shared struct {
	genericiooptions.IOStreams
	cluster *genericclioptions.ConfigFlags
	role    string
	// isTerminal reports whether somebody can answer there. It is replaced in tests.
	isTerminal func(any) bool
}

// newCommand returns the plugin with all its commands.
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
		// The logs of libraries are not for a terminal; errors are returned.
		cmd.SetContext(klog.NewContext(cmd.Context(), logr.Discard()))
	}
	s.cluster.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&s.role, "role", "",
		"Role of csi-reclaimer beside the driver: owner, companion or observer. Default: guessed from the finalizers of "+
			"the driver's PVs.")
	mustComplete(root, "role", roleNames())
	root.AddCommand(explainCommand(s), statusCommand(s), releaseCommand(s), settleCommand(s), leaksCommand(s),
		podsCommand(s), deletePodCommand(s), previewCommand(s), fenceCommand(s), unfenceCommand(s), confirmCommand(s),
		fencesCommand(s), locksCommand(s), webCommand(s))
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

// claimReader returns what reads the claims of StatefulSets.
func (s *shared) claimReader() (*claims.Reader, error) {
	role, err := s.asRole()
	if err != nil {
		return nil, err
	}
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	return claims.New(config, explain.Config{Role: role})
}

// podReader returns what reads pods.
func (s *shared) podReader() (*pods.Reader, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	return pods.New(config, pods.Config{})
}

// lockReader returns what reads the locks of claims.
func (s *shared) lockReader() (*locks.Reader, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	return locks.New(config, pods.Config{})
}

// nodeReader returns what reads nodes and their fences.
func (s *shared) nodeReader() (*nodes.Reader, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	return nodes.New(config, nodes.Config{})
}

// answer asks a question and returns the answer, without the spaces around it. No answer is an empty one.
func (s *shared) answer(ctx context.Context, question string) string {
	fmt.Fprint(s.ErrOut, question+" ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n') // the end of the input is no answer
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ""
	case said := <-answer:
		return said
	}
}

// confirm asks for confirmation. No answer means no.
func (s *shared) confirm(ctx context.Context, question string) error {
	switch strings.ToLower(s.answer(ctx, question+" [y/N]")) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// errNotConfirmed: the answer was no, or there was none.
var errNotConfirmed = errors.New("not confirmed: nothing was changed")
