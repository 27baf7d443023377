package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

const (
	dryRunNone   = "none"
	dryRunServer = "server"
)

// Change has the flags of a command that changes the cluster and asks before it does.
type Change struct {
	*Plugin
	Yes bool
	// Cluster is set by Begin.
	Cluster explain.Cluster
	dryRun  string
}

// AddFlags adds --yes and --dry-run. unasked describes --yes, and requests are checked by the API server.
func (c *Change) AddFlags(cmd *cobra.Command, unasked, requests string) {
	fs := cmd.Flags()
	fs.BoolVarP(&c.Yes, "yes", "y", false, unasked+" Required where the input is no terminal.")
	fs.StringVar(&c.dryRun, "dry-run", dryRunNone,
		"none, or server: the API server checks the "+requests+", and changes nothing.")
	fs.Lookup("dry-run").NoOptDefVal = dryRunServer
	MustComplete(cmd, "dry-run", Words(dryRunNone, dryRunServer))
}

// Validate checks the flags.
func (c *Change) Validate() error {
	if !slices.Contains([]string{dryRunNone, dryRunServer}, c.dryRun) {
		return fmt.Errorf("--dry-run=%s: must be %s or %s", c.dryRun, dryRunNone, dryRunServer)
	}
	return nil
}

// Begin checks the flags, and connects to the cluster.
func (c *Change) Begin() (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	c.Cluster, err = c.Live()
	return err
}

// Tries reports whether the API server only checks the requests.
func (c *Change) Tries() bool { return c.dryRun == dryRunServer }

// Dry returns the option dryRun of each write.
func (c *Change) Dry() []string {
	if c.Tries() {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// MustAsk names the cluster of the shown change, and reports whether a person has to confirm the change: not with
// --yes, nor in a dry run.
func (c *Change) MustAsk() (bool, error) {
	if err := c.ShowCluster(); err != nil {
		return false, err
	}
	switch {
	case c.Tries(), c.Yes:
		return false, nil
	case !c.isTerminal(c.In):
		return false, ErrNoTerminal
	}
	return true, nil
}

// MustType asks a question, which only this answer confirms.
func (c *Change) MustType(ctx context.Context, question, answer string) error {
	if c.answer(ctx, question) != answer {
		return ErrNotConfirmed
	}
	return nil
}

// Confirm asks a question, which only the answers y and yes confirm.
func (s *Plugin) Confirm(ctx context.Context, question string) error {
	switch strings.ToLower(s.answer(ctx, question+" [y/N]")) {
	case "y", "yes":
		return nil
	}
	return ErrNotConfirmed
}

var (
	// ErrNotConfirmed means that the answer was no, or missing.
	ErrNotConfirmed = NewError("not confirmed: nothing was changed",
		"answer as the question says, or add --yes; --dry-run changes nothing")
	// ErrNoTerminal means that no person can be asked.
	ErrNoTerminal = NewError("this needs a confirmation, and the input is no terminal: nothing was changed",
		"run it in a terminal, or add --yes; --dry-run=server only tries it")
)
