package tables

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
)

// someLocks has two locks, one with a value in each column, and a pod that waits for another condition.
func someLocks() locks.List {
	at := metav1.Unix(0, 0)
	waiting := []locks.Waiting{{Pod: "w1", UID: "1", Since: at}, {Pod: "w2", UID: "2", Since: at},
		{Pod: "w3", UID: "3", Since: at}, {Pod: "w4", UID: "4", Since: at}}
	return locks.List{
		Locks: []locks.Lock{{Namespace: "shop", Claim: "data", ClaimUID: "c", Holder: "db-0", HolderUID: "u", Node: "n1",
			Reason: "HolderUnreachable", Text: "It is away.", WaitsFor: "node n1 to return", Since: &at, Waiting: waiting},
			{Namespace: "shop", Claim: "b\x1b[2J", ClaimUID: "d", Reason: "LockDamaged", Text: "It is x."}},
		GatedPods: []locks.GatedPod{{Namespace: "shop", Name: "w1", UID: "1", Since: at, Reason: "ClaimInUse"},
			{Namespace: "shop", Name: "web", UID: "v", Since: at, Reason: "ClaimMissing", Text: "It is not there.",
				WaitsFor: "claim a to be created"}},
		Warnings: []string{"Nobody frees them."}, Unread: []string{"Nodes"},
	}
}

func TestPrintLocks(t *testing.T) {
	for name, c := range map[string]struct {
		list          locks.List
		format        string
		all           bool
		out, complain string
	}{
		"table": {list: someLocks(), format: "table", out: `
CLAIM    HOLDER   NODE   REASON              SINCE   WAITING PODS                              WAITS FOR
data     db-0     n1     HolderUnreachable   60m     w1 (60m), w2 (60m), w3 (60m) and 1 more   node n1 to return
b^[[2J   -        -      LockDamaged         -       -                                         -

POD   REASON         SINCE   WAITS FOR
web   ClaimMissing   60m     claim a to be created
! Nobody frees them.
Not read: Nodes
`},
		"wide, all namespaces": {list: locks.List{Locks: someLocks().Locks[1:], GatedPods: someLocks().GatedPods}, all: true,
			format: "wide", out: `
NAMESPACE   CLAIM    HOLDER   NODE   REASON        SINCE   WAITING PODS   WAITS FOR   HOLDER UID   CLAIM UID   MEANING
shop        b^[[2J   -        -      LockDamaged   -       -              -           -            d           It is x.

NAMESPACE   POD   REASON         SINCE   WAITS FOR               UID   MEANING
shop        web   ClaimMissing   60m     claim a to be created   v     It is not there.
`},
		"nothing":      {format: "table", complain: "No claim in namespace shop has a lock.\n"},
		"nothing, all": {format: "table", all: true, complain: "No claim in any namespace has a lock.\n"},
		"only a pod": {list: locks.List{GatedPods: someLocks().GatedPods}, format: "table", out: `
POD   REASON         SINCE   WAITS FOR
web   ClaimMissing   60m     claim a to be created
`, complain: "No claim in namespace shop has a lock.\n"},
		"yaml": {list: locks.List{Locks: someLocks().Locks[:1], GatedPods: someLocks().GatedPods[1:]}, format: "yaml", out: `
apiVersion: csi-reclaimer.io/v1alpha1
gatedPods:
- name: web
  namespace: shop
  reason: ClaimMissing
  since: "1970-01-01T00:00:00Z"
  text: It is not there.
  uid: v
  waitsFor: claim a to be created
kind: Locks
locks:
- claim: data
  claimUID: c
  holder: db-0
  holderUID: u
  namespace: shop
  node: n1
  reason: HolderUnreachable
  since: "1970-01-01T00:00:00Z"
  text: It is away.
  waiting:
  - pod: w1
    since: "1970-01-01T00:00:00Z"
    uid: "1"
  - pod: w2
    since: "1970-01-01T00:00:00Z"
    uid: "2"
  - pod: w3
    since: "1970-01-01T00:00:00Z"
    uid: "3"
  - pod: w4
    since: "1970-01-01T00:00:00Z"
    uid: "4"
  waitsFor: node n1 to return
`},
	} {
		expect(t, name, c.format, c.out, c.complain, func(out cli.Output) error {
			o := &locksOptions{Output: out, allNamespaces: c.all}
			return o.show(c.list, time.Unix(3600, 0), namespaceOr(c.all))
		})
	}
}
