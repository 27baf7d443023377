package tables

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
)

// somePods has a pod with a value in each column, and a pod with as few values as possible.
func somePods() pods.List {
	at := metav1.Unix(0, 0)
	return pods.List{
		Pods: []pods.Row{{
			Namespace: "shop", Name: "db-0", UID: "u", Node: "n1", Status: "Terminating,NodeDown", NodeDownSince: &at,
			TerminatingSince: &at, Held: true, Reason: "NodeUnreachable", WaitsFor: "node n1 to return",
			Claims: []string{"a", "b"}, Finalizers: []string{"x"},
		}, {Namespace: "shop", Name: "web", UID: "v", Node: "n\x1b[2J", Status: "NodeDown"}},
		HeldRunning: 2, Unread: []string{"Nodes"},
	}
}

func TestPrintPods(t *testing.T) {
	const nothing = " are held while they terminate, or are on a node that is down.\n"
	for name, c := range map[string]struct {
		list          pods.List
		format        string
		all, running  bool
		out, complain string
	}{
		"table": {list: somePods(), format: "table", all: true, out: `
NAMESPACE   NAME   NODE     STATUS                 SINCE   WAITS FOR           CLAIMS
shop        db-0   n1       Terminating,NodeDown   60m     node n1 to return   a,b
shop        web    n^[[2J   NodeDown               -       -                   -
Not read: Nodes
`, complain: "2 more pods are held while running: --include-running lists them.\n"},
		"wide, one namespace": {list: somePods(), format: "wide", running: true, out: `
NAME   NODE     STATUS                 SINCE   WAITS FOR           CLAIMS   REASON            OTHER FINALIZERS   UID
db-0   n1       Terminating,NodeDown   60m     node n1 to return   a,b      NodeUnreachable   x                  u
web    n^[[2J   NodeDown               -       -                   -        -                 -                  v
Not read: Nodes
`},
		"nothing":      {format: "table", complain: "No pods in namespace shop" + nothing},
		"nothing, all": {format: "table", all: true, complain: "No pods in any namespace" + nothing},
		"none but one": {list: pods.List{HeldRunning: 1}, format: "table", all: true,
			complain: "No pods in any namespace" + nothing +
				"1 more pod is held while running: --include-running lists them.\n"},
		"json": {list: pods.List{Pods: somePods().Pods[:1]}, format: "json", out: `
{
    "apiVersion": "csi-reclaimer.io/v1alpha1",
    "heldRunning": 0,
    "kind": "Pods",
    "pods": [
        {
            "claims": [
                "a",
                "b"
            ],
            "finalizers": [
                "x"
            ],
            "held": true,
            "name": "db-0",
            "namespace": "shop",
            "node": "n1",
            "nodeDownSince": "1970-01-01T00:00:00Z",
            "reason": "NodeUnreachable",
            "status": "Terminating,NodeDown",
            "terminatingSince": "1970-01-01T00:00:00Z",
            "uid": "u",
            "waitsFor": "node n1 to return"
        }
    ]
}
`},
	} {
		expect(t, name, c.format, c.out, c.complain, func(out cli.Output) error {
			o := &podsOptions{Output: out, allNamespaces: c.all, running: c.running}
			return o.show(c.list, time.Unix(3600, 0), namespaceOr(c.all))
		})
	}
}
