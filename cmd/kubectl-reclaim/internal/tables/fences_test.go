package tables

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
)

// someFences has a fence with a value in each column, and a fence with as few values as possible.
func someFences() nodes.List {
	return nodes.List{
		Fences: []nodes.Row{{Node: "n1", UID: "u", Phase: "Fenced", Reason: "Fenced", WaitsFor: "the node to boot again",
			Agent: "net", Attempts: 2, Covers: "Volumes", Drivers: []string{"disk.csi"}, Held: ptr.To(1), Detaching: ptr.To(0),
			AskedBy: "FencePolicy p", Because: "unreachable\x1b[2J", Since: metav1.Unix(0, 0)},
			{Node: "n2", Phase: "Requested", Reason: "Requested", AskedBy: "kubectl", Because: "r", Since: metav1.Unix(0, 0)}},
		Unread: []string{"Pods"},
	}
}

func TestPrintFences(t *testing.T) {
	for name, c := range map[string]struct {
		list     nodes.List
		format   string
		out, err string
	}{
		"table": {list: someFences(), format: "table", out: `
NODE   PHASE       AGENT   COVERS                HELD PODS   AGE   WAITS FOR
n1     Fenced      net     Volumes of disk.csi   1           60m   the node to boot again
n2     Requested   -       -                     ?           60m   -
Not read: Pods
`},
		"wide": {list: someFences(), format: "wide", out: `
NODE   PHASE       AGENT   COVERS                HELD PODS   AGE   WAITS FOR                REASON      ATTEMPTS   ` +
			`ASKED BY        BECAUSE
n1     Fenced      net     Volumes of disk.csi   1           60m   the node to boot again   Fenced      2          ` +
			`FencePolicy p   unreachable^[[2J
n2     Requested   -       -                     ?           60m   -                        Requested   0          ` +
			`kubectl         r
Not read: Pods
`},
		"nothing": {format: "table", err: "No node has a fence.\n"},
		"yaml": {list: nodes.List{Fences: someFences().Fences[1:]}, format: "yaml", out: `
apiVersion: csi-reclaimer.io/v1alpha1
fences:
- askedBy: kubectl
  attempts: 0
  because: r
  node: n2
  phase: Requested
  reason: Requested
  since: "1970-01-01T00:00:00Z"
  uid: ""
kind: Fences
`},
	} {
		expect(t, name, c.format, c.out, c.err, func(out cli.Output) error {
			return (&fencesOptions{Output: out}).show(c.list, time.Unix(3600, 0), false)
		})
	}
}

func TestFencesWithAndWithoutAPI(t *testing.T) {
	s := commandline.SomethingWaits(t)
	if _, err := root.Against(t, s, &commandline.Typing{}, "fences"); err != nil {
		t.Error(err)
	}
	s.Unserved = []string{"nodefences", "fencepolicies"}
	_, err := root.Against(t, s, &commandline.Typing{}, "fences")
	if step := cli.ErrorText(err); !strings.Contains(step, explain.ErrNoFencing.Error()) ||
		!strings.Contains(step, "node-fencing-crd.yaml") {
		t.Errorf("without the kinds: %s", step)
	}
	again, _ := printed(t, "table", func(out cli.Output) error {
		return (&fencesOptions{Output: out}).show(nodes.List{}, time.Unix(0, 0), true)
	})
	if again != "\n" {
		t.Errorf("printed again: %q", again)
	}
}
