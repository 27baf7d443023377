package main

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

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
		var out, complaints bytes.Buffer
		o := &locksOptions{shared: &shared{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &complaints}},
			out: output{format: c.format}, allNamespaces: c.all}
		if err := o.out.prepare(); err != nil {
			t.Fatal(err)
		}
		namespace := "shop"
		if c.all {
			namespace = metav1.NamespaceAll
		}
		if err := o.show(c.list, time.Unix(3600, 0), namespace); err != nil {
			t.Fatal(err)
		}
		if got, want := trimmed(out.String()), strings.TrimPrefix(c.out, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		if complaints.String() != c.complain {
			t.Errorf("%s: %q, want %q", name, complaints.String(), c.complain)
		}
	}
}

// lockServer serves the pod of a podServer, and its claim with a lock.
type lockServer struct {
	*podServer
	lock string
}

func (s *lockServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	home, list := "/api/v1/namespaces/shop/", metav1.TypeMeta{APIVersion: "v1", Kind: "List"}
	switch r.URL.Path {
	case home + "persistentvolumeclaims":
		claim := v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c",
			Finalizers: []string{"csi-reclaimer.io/single-node"}}}
		if s.lock != "" {
			claim.Annotations = map[string]string{"csi-reclaimer.io/used-by": s.lock}
		}
		list.Kind = "PersistentVolumeClaimList"
		answer(w, v1.PersistentVolumeClaimList{TypeMeta: list, Items: []v1.PersistentVolumeClaim{claim}})
	case home + "pods":
		s.mu.Lock()
		defer s.mu.Unlock()
		list.Kind = "PodList"
		answer(w, v1.PodList{TypeMeta: list, Items: []v1.Pod{*s.pod}})
	default:
		s.podServer.ServeHTTP(w, r)
	}
}

// terminating deletes the pod with the lock, on a node that is down.
func terminating(s *lockServer) {
	s.pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-time.Minute)}
	s.pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
}

func TestConfirmLock(t *testing.T) {
	for sentence, c := range map[string]struct {
		args   []string
		types  string // empty means no terminal
		change func(*lockServer)
		typing func(*lockServer) // called before the answer
		writes []string
		err    string
		next   string
		want   []string
	}{
		"the name of the pod is a confirmation": {types: "db-0\n", writes: []string{writesConfirmation, writesForce},
			want: []string{"Pod db-0 has the lock of claim data.", "Force risks", "Node n1 is not Ready",
				"type the name of the pod (db-0)", "was confirmed and force-deleted"}},
		"the name of the claim is none": {types: "data\n", err: errNotConfirmed.Error(), next: "answer as the question says"},
		"a script confirms": {args: []string{"--yes"}, writes: []string{writesConfirmation, writesForce},
			want: []string{"Force risks", "!type the name"}},
		"without a terminal nothing is confirmed": {err: errNoTerminal.Error(), next: "add --yes",
			want: []string{"Force risks"}},
		"a trial": {args: []string{"--dry-run"}, writes: []string{writesConfirmation + " dry", writesForce + " dry"},
			want: []string{"would be confirmed and force-deleted (server dry run)"}},
		"the pod is replaced while it is asked": {types: "db-0\n", typing: func(s *lockServer) { s.replace() },
			err: errReplaced.Error(), next: "kubectl get pod"},
		"pod not deleted": {args: []string{"--yes"}, change: func(s *lockServer) { s.pod.DeletionTimestamp = nil },
			err:  "claim shop/data: pod db-0 has its lock, and is not being deleted",
			next: "kubectl delete pod db-0 -n shop"},
		"the lock is of a pod that is gone": {args: []string{"--yes"}, change: func(s *lockServer) { s.lock = "x other" },
			err: "volume-guard frees its lock by itself", next: "kubectl reclaim locks -n shop"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := &lockServer{newPodServer(), "u db-0"}
			terminating(s)
			if c.change != nil {
				c.change(s)
			}
			typed := &typing{}
			if c.types != "" {
				typed.text = strings.NewReader(c.types)
			}
			if c.typing != nil {
				typed.before = func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					c.typing(s)
				}
			}
			out, err := runIn(t, s, typed, append([]string{"confirm", "pvc/data"}, c.args...)...)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("it ends with %v, want %q", err, c.err)
			}
			if err != nil && !strings.Contains(withNextStep(err), c.next) {
				t.Errorf("the next step is %q, want %q", withNextStep(err), c.next)
			}
			if !slices.Equal(s.writes, c.writes) {
				t.Errorf("it writes %q, want %q", s.writes, c.writes)
			}
			for _, words := range c.want {
				words, not := strings.CutPrefix(words, "!")
				if strings.Contains(out, words) == not {
					t.Errorf("%q is said: %v, in\n%s", words, !not, out)
				}
			}
		})
	}
}

func TestExplainLock(t *testing.T) {
	s := &lockServer{newPodServer(), "u db-0"}
	terminating(s)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"locks"}, "data    db-0     n1     HolderTerminating"},
		{[]string{"locks"}, "Not read: Nodes: "},
		{[]string{"explain", "pod/db-0"}, "Pod shop/db-0 has been terminating"},
	} {
		if out, err := runIn(t, s, &typing{}, c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%q: %v, want %q in\n%s", c.args, err, c.want, out)
		}
	}
	s.pod = nil
	_, err := runIn(t, s.podServer, &typing{}, "locks")
	if err == nil || !strings.Contains(err.Error(), "list claims: ") ||
		!strings.Contains(withNextStep(err), "ask for the permission") {
		t.Errorf("claims may not be listed, and it says %v", err)
	}
}
