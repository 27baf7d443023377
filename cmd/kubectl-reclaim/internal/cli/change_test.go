package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

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
		var said bytes.Buffer
		kubeconfig := genericclioptions.NewConfigFlags(false)
		kubeconfig.KubeConfig = ptr.To(twoClusters(t))
		change := Change{Plugin: &Plugin{Kubeconfig: kubeconfig, IOStreams: genericiooptions.IOStreams{ErrOut: &said},
			isTerminal: func(any) bool { return c.terminal }}}
		cmd := &cobra.Command{}
		change.AddFlags(cmd, "Do not ask.", "requests")
		must.OK(t, errors.Join(cmd.ParseFlags(strings.Fields(c.flags)), change.Validate()))
		if asks, err := change.MustAsk(); asks != c.asks || !errors.Is(err, c.err) {
			t.Errorf("%s: asks %t, %v", name, asks, err)
		}
		if said.String() != "\nCluster prod (https://c1).\n" {
			t.Errorf("%s: it says %q", name, said.String())
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

// twoClusters returns a kubeconfig file with the contexts prod, which is the current one, and test.
func twoClusters(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	const text = `{"apiVersion":"v1","kind":"Config","current-context":"prod","contexts":[
		{"name":"prod","context":{"cluster":"c1","user":"u"}},{"name":"test","context":{"cluster":"c2","user":"u"}}],
		"clusters":[{"name":"c1","cluster":{"server":"https://c1"}},{"name":"c2","cluster":{"server":"https://c2"}}]}`
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestNoteCluster checks that a person learns which flags the printed commands need, and a program does not.
func TestNoteCluster(t *testing.T) {
	t.Parallel()
	const note = "To run a command from above in this cluster, add --context=test --server=https://c.\n"
	for name, c := range map[string]struct {
		context, format string
		terminal        bool
		want            string
	}{
		"a person":            {"test", formatTable, true, note},
		"the current context": {"", formatTable, true, ""},
		"a program":           {"test", formatTable, false, ""},
		"a program's format":  {"test", "json", true, ""},
		"names":               {"test", FormatName, true, ""},
	} {
		flags := genericclioptions.NewConfigFlags(false)
		if c.context != "" {
			flags.Context, flags.APIServer = &c.context, ptr.To("https://c")
		}
		var said bytes.Buffer
		o := &Output{Plugin: &Plugin{Kubeconfig: flags, IOStreams: genericiooptions.IOStreams{ErrOut: &said},
			isTerminal: func(any) bool { return c.terminal }}, Format: c.format, own: []string{FormatName}}
		cmd := &cobra.Command{}
		must.OK(t, o.Run(func(context.Context, []string) error { return nil })(cmd, nil))
		if said.String() != c.want {
			t.Errorf("%s: %q, want %q", name, said.String(), c.want)
		}
	}
}

func TestShowCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*genericclioptions.ConfigFlags)
		want   string
	}{
		"the current context": {func(*genericclioptions.ConfigFlags) {}, "prod (https://c1)"},
		"another context": {func(f *genericclioptions.ConfigFlags) { f.Context = ptr.To("test") },
			"test (https://c2)"},
		"a server": {func(f *genericclioptions.ConfigFlags) {
			f.Context, f.APIServer = ptr.To("test"), ptr.To("https://other")
		}, "https://other"},
		"a cluster": {func(f *genericclioptions.ConfigFlags) { f.ClusterName = ptr.To("c2") }, "c2 (https://c2)"},
		"no kubeconfig": {func(f *genericclioptions.ConfigFlags) {
			f.KubeConfig, f.APIServer = ptr.To(os.DevNull), ptr.To("https://other")
		}, "https://other"},
	} {
		flags := genericclioptions.NewConfigFlags(false)
		flags.KubeConfig = ptr.To(twoClusters(t))
		c.change(flags)
		var said bytes.Buffer
		s := &Plugin{Kubeconfig: flags, IOStreams: genericiooptions.IOStreams{ErrOut: &said}}
		if err := s.ShowCluster(); err != nil || said.String() != "\nCluster "+c.want+".\n" {
			t.Errorf("%s: %q, %v, want %s", name, said.String(), err, c.want)
		}
	}
}
