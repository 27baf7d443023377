package confirm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

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
		commandline.Answer(w, v1.PersistentVolumeClaimList{TypeMeta: list, Items: []v1.PersistentVolumeClaim{claim}})
	case home + "pods":
		s.mu.Lock()
		defer s.mu.Unlock()
		list.Kind = "PodList"
		commandline.Answer(w, v1.PodList{TypeMeta: list, Items: []v1.Pod{*s.pod}})
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
				cluster, "type the name of the pod (db-0)", "was confirmed and force-deleted"}},
		"the name of the claim is none": {types: "data\n", err: cli.ErrNotConfirmed.Error(),
			next: "answer as the question says"},
		"a script confirms": {args: []string{"--yes"}, writes: []string{writesConfirmation, writesForce},
			want: []string{"Force risks", "!type the name"}},
		"without a terminal nothing is confirmed": {err: cli.ErrNoTerminal.Error(), next: "add --yes",
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
			typed := commandline.Person(c.types, s, &s.mu, c.typing)
			out, err := root.Against(t, s, typed, append([]string{"confirm", "pvc/data"}, c.args...)...)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("it ends with %v, want %q", err, c.err)
			}
			if err != nil && !strings.Contains(cli.ErrorText(err), c.next) {
				t.Errorf("the next step is %q, want %q", cli.ErrorText(err), c.next)
			}
			if !slices.Equal(s.writes, c.writes) {
				t.Errorf("it writes %q, want %q", s.writes, c.writes)
			}
			explained.Expect(t, out, c.want...)
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
		if out, err := root.Against(t, s, &commandline.Typing{}, c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%q: %v, want %q in\n%s", c.args, err, c.want, out)
		}
	}
	s.pod = nil
	_, err := root.Against(t, s.podServer, &commandline.Typing{}, "locks")
	if err == nil || !strings.Contains(err.Error(), "list claims: ") ||
		!strings.Contains(cli.ErrorText(err), "ask for the permission") {
		t.Errorf("claims may not be listed, and it says %v", err)
	}
}

func TestErrorsNameNextStep(t *testing.T) {
	t.Parallel()
	half := unfinished(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}}, "x", context.Canceled)
	for err, want := range map[error]string{
		errNotGone: "volume-guard runs", errNotProven: "kubectl reclaim explain", errWaitOver: "kubectl reclaim explain",
		errFenceOver: "kubectl reclaim explain", errNodeChanged: "run the same command again",
		errReplaced: "kubectl get pod", errChanged: "run the same command again",
		half: "to undo: kubectl annotate pod db-0 -n shop csi-reclaimer.io/confirm-force-delete-",
	} {
		if got := cli.ErrorText(fmt.Errorf("x: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
