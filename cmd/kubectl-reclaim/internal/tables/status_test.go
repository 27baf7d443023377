package tables

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var root = commandline.Root(cli.Root(Commands))

// printed returns the output and the complaints of show, which prints in a format.
func printed(t *testing.T, format string, show func(cli.Output) error) (out, said string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	output := cli.Output{Plugin: &cli.Plugin{IOStreams: streams}}
	cmd := &cobra.Command{}
	output.AddOutput(cmd)
	must.OK(t, cmd.ParseFlags([]string{"--output=" + format}))
	if err := output.Run(func(context.Context, []string) error {
		return show(output)
	})(cmd, nil); err != nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String()
}

// expect prints in a format, and compares the output and the complaints.
func expect(t *testing.T, name, format, out, said string, show func(cli.Output) error) {
	t.Helper()
	got, complaints := printed(t, format, show)
	if got, want := trimmed(got), strings.TrimPrefix(out, "\n"); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
	if complaints != said {
		t.Errorf("%s: %q, want %q", name, complaints, said)
	}
}

// namespaceOr is the namespace of a list.
func namespaceOr(all bool) string {
	if all {
		return metav1.NamespaceAll
	}
	return "shop"
}

// trimmed removes the spaces at the ends of lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// some is a status with a value in each column.
func some() volumes.Status {
	return volumes.Status{
		Drivers: []volumes.DriverStatus{{
			Driver: "d", Role: "owner", PVs: 4, Protected: 2, Unprotected: 1, Terminating: 1, Waiting: map[string]int{
				"Held": 1},
			Oldest: &volumes.Oldest{PV: "old", Since: metav1.Unix(0, 0)},
		}, {Driver: "idle"}},
		Warnings: []string{"look\x1b[2J"}, Unread: []string{"Leases"},
	}
}

func TestPrintStatus(t *testing.T) {
	for format, want := range map[string][]string{
		"table": {"DRIVER", "OLDEST TERMINATING", "Held 1", "60m, old", "\n! look^[[2J\n", "Not read: Leases", "idle"},
		"wide":  {"ROLE", "ADMISSION", "owner"},
		"json": {`"apiVersion": "csi-reclaimer.io/v1alpha1"`, `"kind": "Status"`, `"pvs": 4`,
			`"since": "1970-01-01T00:00:00Z"`},
		"yaml": {"kind: Status", "pvs: 4", "Held: 1"},
	} {
		text, _ := printed(t, format, func(out cli.Output) error {
			return (&statusOptions{Output: out}).show(some(), time.Unix(3600, 0), false)
		})
		explained.Expect(t, text, want...)
		if format == "table" && strings.Contains(text, "ROLE") {
			t.Errorf("-o table is wide:\n%s", text)
		}
	}
}
