package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// reason is one of any package.
type reason interface {
	~string
	Sentence() string
	EventType() string
}

func TestEventReferencesAreCurrent(t *testing.T) {
	sidecar := eventPage("csi-reclaimer", "[Events of volume-guard](events-volume-guard.md)",
		"[respond to alerts](../how-to/respond-to-alerts.md)", "[concepts](../explanation/concepts.md)")
	table(sidecar, "Deletion",
		"On the PV; `DeletionsPaused` on the Lease too, and `TooLateToKeep` on the claim too.\n"+
			"`TerminatingBound` and `TerminatingUnbound` have an Event once they have lasted a minute.", reclaim.Reasons())
	table(sidecar, "Provisioning",
		"On the claim. `Provisioning`, `ProvisioningSucceeded` and `ProvisioningFailed` are the Events "+
			"of\nexternal-provisioner, with the driver's message. Each failure has one Event. A message that\n"+
			"changes is a new Event, at most one each minute; one that stays is recorded again every 20 to 30\n"+
			"minutes, so that the last answer stands on the claim. Where the claim is gone, its Events are on the\n"+
			"Lease of the in-flight log, and begin with the names of claim and volume.", provision.Reasons())
	CheckPage(t, "events.md", sidecar.String())

	guard := eventPage("volume-guard", "[Events of csi-reclaimer](events.md)",
		"[respond to alerts](../how-to/respond-to-alerts-volume-guard.md)", "[volume-guard](../explanation/volume-guard.md)")
	table(guard, "Volumes of in-tree plugins", "On the PV; `TooLateToKeep` on the claim too. "+
		"`TerminatingBound` and\n`TerminatingUnbound` have an Event once they have lasted a minute.", intree.Reasons())
	table(guard, "Claims and PVs in use", "On the claim or the PV.", inuse.Reasons())
	table(guard, "Pods held until their processes have ended", "On the pod.", podsafety.Reasons())
	table(guard, "Locks of claims", "On the pod that waits, or on the claim that has the lock.", singlenode.Reasons())
	table(guard, "Claims of StatefulSets",
		"On the claim or the StatefulSet; `ScaledDown`, `PodUsesOldClaim`, `PodUsesTerminatingClaim` and\n"+
			"`ConflictingController` on both.", statefulset.Reasons())
	table(guard, "Fences of nodes", "On the NodeFence or the FencePolicy, and on the Node.", fencing.Reasons())
	CheckPage(t, "events-volume-guard.md", guard.String())
}

// eventPage begins the page of a program, with links to the other program's page, the runbook and an explanation.
func eventPage(program, other, runbook, explanation string) *strings.Builder {
	var text strings.Builder
	fmt.Fprintf(&text, "# Events and reasons of %s\n\nGenerated from the code by `make docs`.\n", program)
	text.WriteString(`
A decision has one reason. That word is the reason of the Event, the value of the label
` + "`reason` in the [metrics](metrics.md), and the word in parentheses in\n" +
		"[`kubectl reclaim explain`](kubectl-reclaim-explain.md)." + ` An Event is recorded once for each change.
A reason without a type has no Event: it is the normal course of things, which the log has at
` + "`-v=4`.\n\n")
	fmt.Fprintf(&text, "- Responses to alerts: %s\n- How they follow each other: %s\n- %s\n", runbook,
		explanation, other)
	return &text
}

func table[R reason](to *strings.Builder, title, about string, reasons []R) {
	fmt.Fprintf(to, "\n## %s\n\n%s\n\n| reason | Event | meaning |\n|---|---|---|\n", title, about)
	for _, r := range reasons {
		kind := r.EventType()
		if kind == "" {
			kind = "–"
		}
		fmt.Fprintf(to, "| `%s` | %s | %s |\n", string(r), kind, cell(r.Sentence()))
	}
}

func words[R reason](reasons []R) []string {
	all := make([]string, len(reasons))
	for i, r := range reasons {
		all[i] = string(r)
	}
	return all
}

// cell is a text as the cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
