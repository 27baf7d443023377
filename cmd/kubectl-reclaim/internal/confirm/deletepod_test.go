package confirm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/tables"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/waiting"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

var root = commandline.Root(cli.Root(Commands, tables.Commands, waiting.Commands))

// podServer serves one pod, its namespace and its node, which has no fence, and forbids everything else.
type podServer struct {
	mu        sync.Mutex
	pod       *v1.Pod // nil means that the pod is gone
	node      *v1.Node
	namespace *v1.Namespace
	// refuse maps a method to the status code of requests for the pod.
	refuse map[string]int
	// before is called before a write.
	before func(*podServer, string)
	// interrupt maps the method of a write to a function that is called instead. The write gets no answer.
	interrupt map[string]func()
	// writes lists the method and content of each write.
	writes []string
}

// newPodServer serves a held pod on a node that is down.
func newPodServer() *podServer {
	return &podServer{
		pod: &v1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "7",
				Finalizers: []string{"csi-reclaimer.io/running"}},
			Spec: v1.PodSpec{NodeName: "n1"}, Status: v1.PodStatus{Phase: v1.PodRunning},
		},
		node: &v1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}},
		},
		namespace: &v1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		},
		refuse: map[string]int{}, before: func(*podServer, string) {},
	}
}

// replace gives the pod's name to a new pod.
func (s *podServer) replace() {
	s.pod = s.pod.DeepCopy()
	s.pod.UID, s.pod.Annotations, s.pod.DeletionTimestamp, s.pod.ResourceVersion = "new", nil, nil, "100"
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path == "/api/v1/nodes/n1":
		commandline.Answer(w, s.node)
	case r.URL.Path == "/api/v1/namespaces/shop":
		commandline.Answer(w, s.namespace)
	case strings.HasSuffix(r.URL.Path, "/nodefences/n1"):
		notFound(w, "nodefences", "n1")
	case r.URL.Path != "/api/v1/namespaces/shop/pods/db-0":
		commandline.Refuse(w, http.StatusForbidden)
	case r.Method == http.MethodGet && s.refuse[http.MethodGet] != 0:
		commandline.Refuse(w, s.refuse[http.MethodGet])
	case r.Method == http.MethodGet && s.pod == nil:
		notFound(w, "pods", "db-0")
	case r.Method == http.MethodGet:
		commandline.Answer(w, s.pod)
	default:
		s.write(w, r)
	}
}

func (s *podServer) write(w http.ResponseWriter, r *http.Request) {
	s.before(s, r.Method)
	body, _ := io.ReadAll(r.Body)
	var asked struct {
		metav1.DeleteOptions
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	err := json.Unmarshal(body, &asked)
	if r.Method == http.MethodDelete { // its body is protobuf
		err = runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, &asked.DeleteOptions)
	}
	if err != nil {
		commandline.Refuse(w, http.StatusBadRequest)
		return
	}
	uid, dry := asked.Metadata.UID, r.URL.Query().Has("dryRun")
	said := r.Method
	if r.Method == http.MethodDelete {
		uid, dry = *asked.Preconditions.UID, len(asked.DryRun) > 0
		if asked.GracePeriodSeconds != nil {
			said += " grace " + strconv.FormatInt(*asked.GracePeriodSeconds, 10)
		}
	} else {
		said += " version " + asked.Metadata.ResourceVersion + " confirms " +
			asked.Metadata.Annotations[pods.ConfirmAnnotation]
	}
	if said += " uid " + string(uid); dry {
		said += " dry"
	}
	s.writes = append(s.writes, said)
	version := asked.Metadata.ResourceVersion
	if interrupt := s.interrupt[r.Method]; interrupt != nil {
		interrupt()
		<-r.Context().Done() // until the client's request ends
		return
	}
	switch code := s.refuse[r.Method]; {
	case code != 0:
		commandline.Refuse(w, code)
	case s.pod == nil:
		notFound(w, "pods", "db-0")
	case s.pod.UID != uid, version != "" && version != s.pod.ResourceVersion:
		commandline.Refuse(w, http.StatusConflict)
	case dry:
		commandline.Answer(w, s.pod)
	case r.Method == http.MethodDelete:
		s.pod.DeletionTimestamp, s.pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, asked.GracePeriodSeconds
		commandline.Answer(w, s.pod)
	default:
		s.pod.Annotations, s.pod.ResourceVersion = asked.Metadata.Annotations, "8"
		commandline.Answer(w, s.pod)
	}
}

// deletePod runs delete-pod db-0 with typed as input. A write of the method interrupted, if set, interrupts it.
func (s *podServer) deletePod(t *testing.T, typed *commandline.Typing, interrupted string, args ...string) (string,
	error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root.Command(t, &out, s, typed, append([]string{"delete-pod", "db-0"}, args...)...)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	s.interrupt = map[string]func(){interrupted: interrupt}
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// cluster is the line about the cluster of a change.
const cluster = "\nCluster prod-eu (http://127.0.0.1:"

// Writes of a force deletion.
const (
	writesConfirmation = "PATCH version 7 confirms u uid u"
	writesForce        = "DELETE grace 0 uid u"
)

func TestDeletePod(t *testing.T) {
	for sentence, c := range map[string]struct {
		args   []string
		types  string // empty means no terminal
		change func(*podServer)
		typing func(*podServer) // called before the answer
		writes []string
		err    error
		want   []string
	}{
		"a normal deletion is one with its UID": {
			writes: []string{"DELETE uid u"}, want: []string{"Pod shop/db-0 was deleted. It is still there:",
				" and waits (NodeUnreachable)"}},
		"a normal deletion, tried": {args: []string{"--dry-run"}, writes: []string{"DELETE uid u dry"},
			want: []string{"would be deleted (server dry run)"}},
		"a pod that is terminating is not deleted again": {
			change: func(s *podServer) { s.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
			want:   []string{"was deleted before. Nothing was changed.", "(NodeUnreachable)"}},
		"a normal deletion of a pod that was replaced": {
			change: func(s *podServer) { s.before = func(s *podServer, _ string) { s.replace() } },
			writes: []string{"DELETE uid u"}, err: errReplaced},
		"without a terminal nothing is confirmed": {args: []string{"--force"}, err: cli.ErrNoTerminal,
			want: []string{"Node n1 is not Ready: nothing shows whether the processes run there"}},
		"another answer is no confirmation":  {args: []string{"--force"}, types: "y\n", err: cli.ErrNotConfirmed},
		"another name is no confirmation":    {args: []string{"--force"}, types: "db-1\n", err: cli.ErrNotConfirmed},
		"an empty answer is no confirmation": {args: []string{"--force"}, types: "\n", err: cli.ErrNotConfirmed},
		"its name is a confirmation": {args: []string{"--force"}, types: "db-0\n",
			writes: []string{writesConfirmation, writesForce}, want: []string{"Force risks", cluster,
				").\nTo force-delete it, type the name of the pod (db-0): ",
				"was confirmed and force-deleted. It is still there", "(Confirmed)"}},
		"a script confirms": {args: []string{"--force", "--yes"}, writes: []string{writesConfirmation, writesForce},
			want: []string{"Force risks", "!type the name", cluster,
				"A force deletion does not wait for the processes", "!risks nothing"}},
		"a pod that is not held is gone": {args: []string{"--force", "--yes"},
			change: func(s *podServer) {
				s.before = func(s *podServer, method string) {
					if method == http.MethodDelete {
						s.pod = nil
					}
				}
			}, writes: []string{writesConfirmation, writesForce}, want: []string{"and is gone"}},
		"it was confirmed before": {args: []string{"--force", "--yes"},
			change: func(s *podServer) { s.pod.Annotations = map[string]string{pods.ConfirmAnnotation: "u"} },
			writes: []string{writesForce}},
		"it was replaced while it was asked": {args: []string{"--force"}, types: "db-0\n",
			typing: (*podServer).replace, err: errReplaced},
		"it went while it was asked": {args: []string{"--force"}, types: "db-0\n",
			typing: func(s *podServer) { s.pod = nil }, err: errReplaced},
		"its node came back while it was asked": {args: []string{"--force"}, types: "db-0\n",
			typing: func(s *podServer) { s.node.Status.Conditions[0].Status = v1.ConditionTrue }, err: errChanged},
		"deleted during the question": {args: []string{"--force"}, types: "db-0\n",
			typing: func(s *podServer) { s.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, err: errChanged},
		"it was written while it was asked": {args: []string{"--force"}, types: "db-0\n",
			typing: func(s *podServer) { s.pod.ResourceVersion = "9" },
			writes: []string{"PATCH version 9 confirms u uid u", writesForce}},
		"it was written before it is confirmed": {args: []string{"--force", "--yes"},
			change: func(s *podServer) {
				s.before = func(s *podServer, _ string) {
					if len(s.writes) == 0 {
						s.pod.ResourceVersion = "9"
					}
				}
			}, writes: []string{writesConfirmation, "PATCH version 9 confirms u uid u", writesForce}},
		"its node came back before it is confirmed": {args: []string{"--force", "--yes"},
			change: func(s *podServer) {
				s.before = func(s *podServer, _ string) {
					s.pod.ResourceVersion, s.node.Status.Conditions[0].Status = "9", v1.ConditionTrue
				}
			}, writes: []string{writesConfirmation}, err: errChanged},
		"it was replaced before it is confirmed": {args: []string{"--force", "--yes"},
			change: func(s *podServer) { s.before = func(s *podServer, _ string) { s.replace() } },
			writes: []string{writesConfirmation}, err: errReplaced},
		"it was replaced before it is deleted": {args: []string{"--force", "--yes"},
			change: func(s *podServer) {
				s.before = func(s *podServer, method string) {
					if method == http.MethodDelete {
						s.replace()
					}
				}
			}, writes: []string{writesConfirmation, writesForce}, want: []string{"and is gone"}},
		"both are tried": {args: []string{"--force", "--dry-run=server"},
			writes: []string{writesConfirmation + " dry", writesForce + " dry"},
			want:   []string{cluster, "would be confirmed and force-deleted (server dry run). Nothing was changed."}},
		"where it is refused, the confirmation is tried": {args: []string{"--force", "--dry-run=server"},
			change: func(s *podServer) { s.namespace.Labels = map[string]string{"csi-reclaimer.io/pod-safety": "enforce"} },
			writes: []string{writesConfirmation + " dry"}, want: []string{"The deletion was not tried"}},
		"an ended pod has no risks": {args: []string{"--force", "--yes"},
			change: func(s *podServer) { s.pod.Spec.NodeName = "" },
			writes: []string{writesConfirmation, writesForce}, want: []string{"risks nothing that is known", "!Force risks"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newPodServer()
			if c.change != nil {
				c.change(s)
			}
			typed := commandline.Person(c.types, s, &s.mu, c.typing)
			out, err := s.deletePod(t, typed, "", c.args...)
			if !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
			if !slices.Equal(s.writes, c.writes) {
				t.Errorf("it writes %q, want %q", s.writes, c.writes)
			}
			if s.pod != nil && s.pod.UID == "new" && (s.pod.DeletionTimestamp != nil || len(s.pod.Annotations) > 0) {
				t.Errorf("the new pod was touched: %+v", s.pod)
			}
			explained.Expect(t, out, c.want...)
		})
	}
}

// The command returns the error of a refused request, and makes no request after it.
func TestRefusedRequests(t *testing.T) {
	for sentence, c := range map[string]struct {
		args   []string
		method string
		types  string
		writes []string
	}{
		"the deletion": {nil, http.MethodDelete, "", []string{"DELETE uid u"}},
		"the dry run's confirmation": {[]string{"--force", "--dry-run=server"}, http.MethodPatch, "", []string{
			writesConfirmation + " dry"}},
		"the dry run's deletion": {[]string{"--force", "--dry-run=server"}, http.MethodDelete, "", []string{
			writesConfirmation + " dry", writesForce + " dry"}},
		"the second read": {[]string{"--force"}, http.MethodGet, "db-0\n", nil},
	} {
		s := newPodServer()
		refuses := func(s *podServer) { s.refuse[c.method] = http.StatusForbidden }
		if c.types == "" {
			refuses(s)
		}
		typed := commandline.Person(c.types, s, &s.mu, refuses)
		_, err := s.deletePod(t, typed, "", c.args...)
		if !apierrors.IsForbidden(err) || !slices.Equal(s.writes, c.writes) {
			t.Errorf("%s: %v, after %q", sentence, err, s.writes)
		}
	}
}

// The error names the steps done and the way to undo them.
func TestUnfinishedForceDeletion(t *testing.T) {
	for sentence, c := range map[string]struct {
		refuse    map[string]int
		interrupt string
		writes    []string
		want      string
		undo      bool
	}{
		"the confirmation is refused": {map[string]int{http.MethodPatch: http.StatusForbidden}, "",
			[]string{writesConfirmation}, `confirm pod "shop/db-0": refused`, false},
		"the confirmation has no clear answer": {map[string]int{http.MethodPatch: http.StatusInternalServerError}, "",
			[]string{writesConfirmation}, "it may be confirmed, and was not deleted", true},
		"the confirmation is for another UID all the time": {
			map[string]int{http.MethodPatch: http.StatusUnprocessableEntity}, "",
			slices.Repeat([]string{writesConfirmation}, maxConfirmTries), `confirm pod "shop/db-0": refused`, false},
		"the pod changes all the time": {map[string]int{http.MethodPatch: http.StatusConflict}, "",
			slices.Repeat([]string{writesConfirmation}, maxConfirmTries), `confirm pod "shop/db-0": refused`, false},
		"the deletion is refused": {map[string]int{http.MethodDelete: http.StatusForbidden}, "",
			[]string{writesConfirmation, writesForce}, "it is confirmed, and the deletion failed", true},
		"a proxy answers the deletion": {map[string]int{http.MethodDelete: http.StatusNotFound}, "",
			[]string{writesConfirmation, writesForce}, "it is confirmed, and the deletion failed", true},
		"interrupted while it is confirmed": {nil, http.MethodPatch, []string{writesConfirmation},
			"it may be confirmed, and was not deleted", true},
		"interrupted while it is deleted": {nil, http.MethodDelete, []string{writesConfirmation, writesForce},
			"it is confirmed, and the deletion failed", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newPodServer()
			s.refuse = c.refuse
			_, err := s.deletePod(t, &commandline.Typing{}, c.interrupt, "--force", "--yes")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.writes, c.writes) {
				t.Errorf("it writes %q, want %q", s.writes, c.writes)
			}
			const undo = "to undo: kubectl annotate pod db-0 -n shop csi-reclaimer.io/confirm-force-delete-"
			if text := cli.ErrorText(err); strings.Contains(text, undo) != c.undo {
				t.Errorf("it says how to undo it: %v, in %s", !c.undo, text)
			}
		})
	}
}
