package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestConfirmNeedsYes(t *testing.T) {
	for input, want := range map[string]error{"y\n": nil, "Yes\n": nil, "y": nil, "n\n": ErrNotConfirmed,
		"\n": ErrNotConfirmed, "": ErrNotConfirmed, "yesterday\n": ErrNotConfirmed} {
		o := &Plugin{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(input),
			ErrOut: io.Discard}}
		if err := o.Confirm(t.Context(), "Sure?"); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", input, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, stop := io.Pipe()
	defer func() { _ = stop.Close() }()
	o := &Plugin{IOStreams: genericiooptions.IOStreams{In: in, ErrOut: io.Discard}}
	if err := o.Confirm(ctx, "Sure?"); !errors.Is(err, ErrNotConfirmed) {
		t.Errorf("interrupted while it waits for an answer: %v", err)
	}
}

func TestChangeIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags    string
		terminal bool
		asks     bool
		dry      []string
		err      error
	}{
		"a person":               {terminal: true, asks: true},
		"no person":              {err: ErrNoTerminal},
		"a script":               {flags: "--yes"},
		"a script in a terminal": {flags: "-y", terminal: true},
		"a dry run":              {flags: "--dry-run", dry: []string{metav1.DryRunAll}},
		"a dry run for a person": {flags: "--dry-run=server", terminal: true, dry: []string{metav1.DryRunAll}},
		"no dry run":             {flags: "--dry-run=none", terminal: true, asks: true},
	} {
		change := Change{Plugin: &Plugin{isTerminal: func(any) bool { return c.terminal }}}
		cmd := &cobra.Command{}
		change.AddFlags(cmd, "Do not ask.", "requests")
		must.OK(t, errors.Join(cmd.ParseFlags(strings.Fields(c.flags)), change.Validate()))
		if asks, err := change.MustAsk(); asks != c.asks || !errors.Is(err, c.err) {
			t.Errorf("%s: asks %t, %v", name, asks, err)
		}
		if dry := change.Dry(); !slices.Equal(dry, c.dry) || change.Tries() != (dry != nil) {
			t.Errorf("%s: dry %q, tries %t", name, dry, change.Tries())
		}
	}
	for input, want := range map[string]error{"db-0\n": nil, "db-0": nil, "y\n": ErrNotConfirmed, "\n": ErrNotConfirmed} {
		change := Change{Plugin: &Plugin{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(input),
			ErrOut: io.Discard}}}
		if err := change.MustType(t.Context(), "Which?", "db-0"); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", input, err, want)
		}
	}
}
