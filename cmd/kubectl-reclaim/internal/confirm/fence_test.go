package confirm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// fenceServer serves node n1, which is down, a policy, and the NodeFence if it is set. All other lists are empty.
type fenceServer struct {
	mu     sync.Mutex
	node   *v1.Node
	fence  *v1alpha1.NodeFence // nil means that the node has no fence
	policy *v1alpha1.FencePolicy
	// without: the API server does not serve the fencing API.
	without bool
	// refuse maps the method of a write to the status code of its answer, and GET to the one of reads after a write.
	refuse map[string]int
	// before is called before a write, and after is called after a successful one.
	before, after func(*fenceServer, string)
	// writes lists the method and content of each write.
	writes []string
}

func newFenceServer() *fenceServer {
	version := v1alpha1.GroupVersion.String()
	agent := v1alpha1.Agent{Name: "ipmi", Covers: v1alpha1.CoversUntilUnfenced,
		Job: &v1alpha1.JobAgent{Namespace: "ops", PodTemplateName: "power-off", Undo: true}}
	nothing := func(*fenceServer, string) {}
	return &fenceServer{
		node: &v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}}},
		policy: &v1alpha1.FencePolicy{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "FencePolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.FencePolicySpec{Agents: []v1alpha1.Agent{agent}}},
		refuse: map[string]int{}, before: nothing, after: nothing,
	}
}

// exists gives the node a fence with an agent at work.
func (s *fenceServer) exists() {
	s.fence = &v1alpha1.NodeFence{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeFence"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "f", ResourceVersion: "7", Finalizers: []string{"x"}},
		Spec: v1alpha1.NodeFenceSpec{Reason: "r", Agents: s.policy.Spec.Agents,
			Unfence: v1alpha1.UnfenceWhenReturned},
		Status: v1alpha1.NodeFenceStatus{Phase: v1alpha1.PhaseFencing,
			Attempts: []v1alpha1.Attempt{{Number: 1, Agent: "ipmi", StartedAt: metav1.Now()}}},
	}
}

// ended gives the node a fence that has ended.
func (s *fenceServer) ended() {
	s.exists()
	s.fence.Status = v1alpha1.NodeFenceStatus{Phase: v1alpha1.PhaseReturned, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReturned, Status: metav1.ConditionTrue}}}
}

func (s *fenceServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, isFencing := strings.CutPrefix(r.URL.Path, "/apis/csi-reclaimer.io/v1alpha1/")
	switch {
	case isFencing && s.without:
		http.NotFound(w, r)
	case isFencing && r.Method != http.MethodGet:
		s.write(w, r)
	case path == "nodefences/n1" && len(s.writes) > 0 && s.refuse[http.MethodGet] != 0:
		commandline.Refuse(w, s.refuse[http.MethodGet])
	case path == "nodefences/n1" && s.fence == nil:
		notFound(w, "nodefences", "n1")
	case path == "nodefences/n1":
		commandline.Answer(w, s.fence)
	case path == "fencepolicies/default":
		commandline.Answer(w, s.policy)
	case path == "fencepolicies":
		commandline.Answer(w, &v1alpha1.FencePolicyList{Items: []v1alpha1.FencePolicy{*s.policy}})
	case path == "nodefences":
		commandline.Answer(w, &v1alpha1.NodeFenceList{})
	case isFencing:
		notFound(w, "fencepolicies", filepath.Base(path))
	case path == "/api/v1/nodes/n1":
		commandline.Answer(w, s.node)
	default:
		s.list(w, path)
	}
}

// list answers lists of other kinds.
func (s *fenceServer) list(w http.ResponseWriter, path string) {
	list := func(version, kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: version, Kind: kind} }
	switch filepath.Base(path) {
	case "pods":
		commandline.Answer(w, &v1.PodList{TypeMeta: list("v1", "PodList")})
	case "volumeattachments":
		commandline.Answer(w, &storagev1.VolumeAttachmentList{TypeMeta: list("storage.k8s.io/v1", "VolumeAttachmentList")})
	case "leases":
		commandline.Answer(w, &coordinationv1.LeaseList{TypeMeta: list("coordination.k8s.io/v1", "LeaseList")})
	default:
		commandline.Refuse(w, http.StatusForbidden)
	}
}

func notFound(w http.ResponseWriter, resource, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Details: &metav1.StatusDetails{Group: "csi-reclaimer.io", Kind: resource, Name: name}})
}

func (s *fenceServer) write(w http.ResponseWriter, r *http.Request) {
	s.before(s, r.Method)
	body, _ := io.ReadAll(r.Body)
	var sent struct {
		Metadata      metav1.ObjectMeta      `json:"metadata"`
		Spec          v1alpha1.NodeFenceSpec `json:"spec"`
		Preconditions metav1.Preconditions   `json:"preconditions"`
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		commandline.Refuse(w, http.StatusBadRequest)
		return
	}
	said := r.Method
	switch r.Method {
	case http.MethodPost:
		said += " " + sent.Spec.Reason + " by " + sent.Spec.Agents[0].Name
		if sent.Metadata.Labels["velero.io/exclude-from-backup"] != "true" {
			said += " in backups"
		}
		if sent.Spec.AllowControlPlane {
			said += " control plane"
		}
	case http.MethodDelete:
		said += " uid " + string(*sent.Preconditions.UID)
	default:
		said += " version " + sent.Metadata.ResourceVersion + " uid " + string(sent.Metadata.UID) + " " +
			string(sent.Spec.Unfence) + sent.Spec.Confirmation
		if of := sent.Spec.ConfirmationUID; of != "" {
			said += " of " + string(of)
		}
	}
	dry := r.URL.Query().Has("dryRun")
	if dry {
		said += " dry"
	}
	s.writes = append(s.writes, said)
	switch code := s.refuse[r.Method]; {
	case code != 0:
		commandline.Refuse(w, code)
	case r.Method == http.MethodPost && s.fence != nil, r.Method == http.MethodPatch &&
		(s.fence == nil || s.fence.ResourceVersion != sent.Metadata.ResourceVersion):
		commandline.Refuse(w, http.StatusConflict)
	case dry:
		commandline.Answer(w, &v1alpha1.NodeFence{})
	case r.Method == http.MethodPost:
		s.exists()
		s.fence.UID = "new"
		commandline.Answer(w, s.fence)
	case r.Method == http.MethodDelete:
		s.fence = nil
		commandline.Answer(w, &metav1.Status{Status: metav1.StatusSuccess})
	default:
		commandline.Answer(w, s.fence)
	}
	s.after(s, r.Method)
}

// fenceCase is one run of a command that changes a fence.
type fenceCase struct {
	args   string
	types  string // empty means no terminal
	change func(*fenceServer)
	typing func(*fenceServer) // called before the answer
	writes []string
	err    error
	next   string // is in the text of the error
	want   []string
}

func (c fenceCase) run(t *testing.T) {
	t.Helper()
	s := newFenceServer()
	if c.change != nil {
		c.change(s)
	}
	typed := commandline.Person(c.types, s, &s.mu, c.typing)
	out, err := root.Against(t, s, typed, strings.Split(c.args, " ")...)
	var named wordsError
	is := errors.Is(err, c.err)
	if errors.As(c.err, &named) {
		is = err != nil && strings.Contains(err.Error(), named.words)
	}
	if !is {
		t.Errorf("%v, want %v", err, c.err)
	}
	if err != nil && !strings.Contains(cli.ErrorText(err), c.next) {
		t.Errorf("%s, want %q", cli.ErrorText(err), c.next)
	}
	if !slices.Equal(s.writes, c.writes) {
		t.Errorf("it writes %q, want %q", s.writes, c.writes)
	}
	explained.Expect(t, out, c.want...)
}

// refusing returns a change after which the API server answers a method with a status code.
func refusing(state func(*fenceServer), method string, code int) func(*fenceServer) {
	return func(s *fenceServer) {
		state(s)
		s.refuse[method] = code
	}
}

const seeFence = "\nnext: see the fence: kubectl reclaim explain node/n1; to end it: kubectl reclaim unfence n1"

func TestFence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.yaml")
	must.OK(t, os.WriteFile(file, []byte("- {name: plug, covers: UntilUnfenced, manual: {}}"), 0o600))
	const fence = "fence n1 --reason=r"
	created, none := []string{"POST r by ipmi"}, func(*fenceServer) {}
	isReady := func(s *fenceServer) { s.node.Status.Conditions[0].Status = v1.ConditionTrue }
	isControlPlane := func(s *fenceServer) {
		s.node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		s.policy.Spec.AllowControlPlane = true
	}
	proven := func(s *fenceServer, method string) {
		if s.fence != nil && method == http.MethodPost {
			s.fence.Status.Phase = v1alpha1.PhaseFenced
			s.fence.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue}}
		}
	}
	for sentence, c := range map[string]fenceCase{
		"a script": {args: fence + " --yes", writes: created, want: []string{"Node n1 is NotReady",
			"Agents of FencePolicy default", "- Agent ipmi is tried first", "The report of an agent is not verified",
			"NodeFence n1 was created", "!type the name", cluster}},
		"a person": {args: fence, types: "n1\n", writes: created,
			want: []string{cluster, ").\nTo do this, type the name of the node (n1): "}},
		"another answer is none":             {args: fence, types: "y\n", err: cli.ErrNotConfirmed},
		"without a terminal nothing is done": {args: fence, err: cli.ErrNoTerminal, want: []string{"- Agent ipmi"}},
		"a dry run": {args: fence + " --dry-run", writes: []string{"POST r by ipmi dry"},
			want: []string{cluster, "would be fenced"}},
		"by the agents of a policy": {args: fence + " --yes --agents-of=default", writes: created},
		"by the agents of a policy of no name": {args: fence + " --yes --agents-of=other",
			err: wordsError{"read FencePolicy \"other\""}},
		"by agents of a file":  {args: fence + " --yes -f " + file, writes: []string{"POST r by plug"}},
		"by agents of no file": {args: fence + " --yes -f " + file + "x", err: os.ErrNotExist},
		"by a person": {args: fence + " --yes --manual", writes: []string{"POST r by manual"},
			want: []string{"It waits for you: kubectl reclaim confirm node/n1 --because=TEXT"}},
		"a node that is Ready": {args: fence + " --yes", change: isReady, err: nodes.ErrReady,
			want: []string{"!- Agent"}},
		"a node that is Ready, on purpose": {args: fence + " --yes --even-if-ready", change: isReady, writes: created},
		"it became Ready while it was asked": {args: fence, types: "n1\n", typing: isReady,
			err: errNodeChanged},
		"the control plane": {args: fence + " --yes", change: isControlPlane, err: nodes.ErrControlPlane},
		"the control plane, on purpose": {args: fence + " --yes --allow-control-plane", change: isControlPlane,
			writes: []string{"POST r by ipmi control plane"}},
		"it has a fence": {args: fence + " --yes", change: (*fenceServer).exists, err: nodes.ErrFenced},
		"fenced during the question": {args: fence, types: "n1\n", typing: (*fenceServer).exists,
			err: errNodeChanged},
		"fenced before the creation": {args: fence + " --yes", writes: created, err: wordsError{"refused"},
			change: func(s *fenceServer) { s.before = func(s *fenceServer, _ string) { s.exists() } }},
		"it has a fence that has ended": {args: fence + " --yes", change: (*fenceServer).ended,
			writes: []string{"DELETE uid f", "POST r by ipmi"},
			want:   []string{"- The previous NodeFence, which has ended, is deleted"}},
		"it has a fence that has ended, in a dry run": {args: fence + " --dry-run", change: (*fenceServer).ended,
			want: []string{"would be replaced. It was not tried"}},
		"the fence that has ended may not be deleted": {args: fence + " --yes", writes: []string{"DELETE uid f"},
			change: refusing((*fenceServer).ended, http.MethodDelete, http.StatusForbidden),
			err:    wordsError{`delete NodeFence "n1", which has ended: refused`},
			next:   "refused\nnext: ask for the permission"},
		"its deletion has no clear answer": {args: fence + " --yes", writes: []string{"DELETE uid f"},
			change: refusing((*fenceServer).ended, http.MethodDelete, http.StatusGatewayTimeout),
			err:    wordsError{"refused; the previous NodeFence may have been deleted: run the same command again"}},
		"it is deleted, and the new one is not allowed": {args: fence + " --yes",
			writes: []string{"DELETE uid f", "POST r by ipmi"},
			change: refusing((*fenceServer).ended, http.MethodPost, http.StatusForbidden),
			err: wordsError{`create NodeFence "n1": refused; the previous NodeFence was deleted: run the same command ` +
				"again"}},
		"no fencing in this cluster": {args: fence + " --yes", change: func(s *fenceServer) { s.without = true },
			err: explain.ErrNoFencing},
		"it is not allowed": {args: fence + " --yes", writes: created, err: wordsError{`create NodeFence "n1": refused`},
			change: refusing(none, http.MethodPost, http.StatusForbidden)},
		"it has no clear answer": {args: fence + " --yes", writes: created, next: seeFence,
			err:    wordsError{`create NodeFence "n1": it may have been written: refused`},
			change: refusing(none, http.MethodPost, http.StatusGatewayTimeout)},
		"its dry run has no clear answer": {args: fence + " --dry-run", writes: []string{"POST r by ipmi dry"},
			err:    wordsError{`create NodeFence "n1": refused`},
			change: refusing(none, http.MethodPost, http.StatusGatewayTimeout)},
		"it waits for the proof": {args: fence + " --yes --wait", writes: created, want: []string{"Node n1: Fenced"},
			change: func(s *fenceServer) { s.after = proven }},
		"it waits, and all agents fail": {args: fence + " --yes --wait", writes: created, err: errNotProven,
			change: func(s *fenceServer) {
				s.after = func(s *fenceServer, _ string) { s.fence.Status.Phase = v1alpha1.PhaseFailed }
			}},
		"it waits for too long": {args: fence + " --yes --wait --timeout=1ms", writes: created, err: errWaitOver},
		"it waits, and may not read the fence": {args: fence + " --yes --wait", writes: created,
			err: wordsError{"which goes on: "}, change: refusing(none, http.MethodGet, http.StatusForbidden)},
		"it waits, and the fence is deleted": {args: fence + " --yes --wait", writes: created, err: errFenceOver,
			change: func(s *fenceServer) { s.after = func(s *fenceServer, _ string) { s.fence = nil } }},
		"it waits, and the fence is replaced": {args: fence + " --yes --wait", writes: created, err: errFenceOver,
			change: func(s *fenceServer) { s.after = func(s *fenceServer, _ string) { s.fence.UID = "other" } }},
	} {
		t.Run(sentence, c.run)
	}
}

// TestWaitForUnreadFence checks that a failed read is not taken for a missing proof.
func TestWaitForUnreadFence(t *testing.T) {
	over, cancel := context.WithTimeoutCause(t.Context(), 0, errWaitOver)
	defer cancel()
	if err := waitEnded(over, "n1", errors.New("away")); !errors.Is(err, errUnread) || errors.Is(err, errWaitOver) {
		t.Errorf("the last read failed: %v", err)
	}
	if err := waitEnded(over, "n1", nil); !errors.Is(err, errWaitOver) {
		t.Errorf("it was read: %v", err)
	}
}

// wordsError stands for any error that contains these words.
type wordsError struct{ words string }

func (e wordsError) Error() string { return e.words }

func TestUnfenceAndConfirm(t *testing.T) {
	const patch = "PATCH version 7 uid f "
	exists := (*fenceServer).exists
	written := func(s *fenceServer) { s.fence.ResourceVersion = "8" }
	for sentence, c := range map[string]fenceCase{
		"it ends now": {args: "unfence n1 --yes", change: exists, writes: []string{patch + "Now"}, want: []string{
			"- Agent ipmi is stopped", "- The fence is undone by agent ipmi", "was changed"}},
		"a person ends it": {args: "unfence n1", types: "n1\n", change: exists, writes: []string{patch + "Now"},
			want: []string{cluster, ").\nTo do this, type the name of the node (n1): "}},
		"another answer": {args: "unfence n1", types: "yes\n", change: exists, err: cli.ErrNotConfirmed},
		"no terminal":    {args: "unfence n1", change: exists, err: cli.ErrNoTerminal},
		"it ends when released": {args: "unfence n1 --yes --when-released", change: exists,
			writes: []string{patch + "WhenReleased"}},
		"abandoned":     {args: "unfence n1 --yes --abandon", change: exists, writes: []string{patch + "Abandon"}},
		"a dry run":     {args: "unfence n1 --dry-run=server", change: exists, writes: []string{patch + "Now dry"}},
		"there is none": {args: "unfence n1 --yes", err: nodes.ErrNotFenced},
		"it has ended":  {args: "unfence n1 --yes", change: (*fenceServer).ended, err: nodes.ErrNotFenced},
		"no fencing in this cluster": {args: "unfence n1", change: func(s *fenceServer) { s.without = true },
			err: explain.ErrNoFencing},
		"it was asked for": {args: "unfence n1",
			change: func(s *fenceServer) { s.exists(); s.fence.Spec.Unfence = "Now" },
			want:   []string{"the fence already matches the request"}},
		"it was written": {args: "unfence n1", types: "n1\n", change: exists, typing: written,
			writes: []string{"PATCH version 8 uid f Now"}},
		"it was replaced": {args: "unfence n1", types: "n1\n", change: exists,
			typing: func(s *fenceServer) { s.fence.UID = "x" }, err: errNodeChanged},
		"it ended while asked": {args: "unfence n1", types: "n1\n", change: exists, typing: (*fenceServer).ended,
			err: errNodeChanged},
		"an agent was confirmed": {args: "confirm node/n1 --yes --because=off", change: exists,
			writes: []string{patch + "off of f"}, want: []string{"Your confirmation is not verified."}},
		"a person confirms": {args: "confirm no/n1 --because=off", types: "n1\n", change: exists,
			writes: []string{patch + "off of f"}, want: []string{cluster, "(n1): "}},
		"no confirmation":    {args: "confirm node/n1 --because=off", change: exists, err: cli.ErrNoTerminal},
		"nothing to confirm": {args: "confirm node/n1 --because=off --yes", err: nodes.ErrNotFenced},
		"it changes in between": {args: "unfence n1 --yes", writes: []string{patch + "Now", "PATCH version 8 uid f Now"},
			change: func(s *fenceServer) {
				s.exists()
				s.before = func(s *fenceServer, _ string) { s.fence.ResourceVersion = "8" }
			}},
		"it means something else in between": {args: "unfence n1 --yes", writes: []string{patch + "Now"},
			err: errNodeChanged,
			change: func(s *fenceServer) {
				s.exists()
				s.before = func(s *fenceServer, _ string) {
					s.fence.ResourceVersion, s.fence.Status.Attempts = "8", nil
				}
			}},
		"it changes all the time": {args: "unfence n1 --yes", err: wordsError{`change NodeFence "n1": refused`},
			writes: []string{patch + "Now", patch + "Now", patch + "Now", patch + "Now", patch + "Now"},
			change: refusing(exists, http.MethodPatch, http.StatusConflict)},
		"it is not allowed": {args: "unfence n1 --yes", writes: []string{patch + "Now"},
			err:    wordsError{`change NodeFence "n1": refused`},
			change: refusing(exists, http.MethodPatch, http.StatusForbidden)},
		"it has no clear answer": {args: "unfence n1 --yes", writes: []string{patch + "Now"}, next: seeFence,
			err:    wordsError{`change NodeFence "n1": it may have been written: refused`},
			change: refusing(exists, http.MethodPatch, http.StatusGatewayTimeout)},
		"the node is Ready": {args: "confirm node/n1 --because=off --yes", err: nodes.ErrReady,
			change: func(s *fenceServer) { s.exists(); s.node.Status.Conditions[0].Status = v1.ConditionTrue }},
		"the node is Ready, on purpose": {args: "confirm node/n1 --because=off --yes --even-if-ready",
			change: func(s *fenceServer) { s.exists(); s.node.Status.Conditions[0].Status = v1.ConditionTrue },
			writes: []string{patch + "off of f"}},
	} {
		t.Run(sentence, c.run)
	}
}

// TestInterruptedFence interrupts a command while it waits for the answer to a request that the API server carries out:
// the first one with this method, or the first GET after a write.
func TestInterruptedFence(t *testing.T) {
	const fence = "fence n1 --reason=r --yes"
	for args, c := range map[string]struct {
		method string
		change func(*fenceServer)
		want   string
	}{
		"confirm node/n1 --because=off --yes": {http.MethodPatch, (*fenceServer).exists,
			`confirm node "n1": change NodeFence "n1": it may have been written: `},
		fence: {http.MethodPost, func(*fenceServer) {}, `create NodeFence "n1": it may have been written: `},
		fence + " --wait": {http.MethodGet, func(*fenceServer) {},
			`wait for the fence of node "n1": interrupted: the fence goes on` + seeFence},
		fence + " --manual": {http.MethodGet, (*fenceServer).ended,
			"; the previous NodeFence was deleted: run the same command again"},
	} {
		t.Run(args, func(t *testing.T) {
			s := newFenceServer()
			c.change(s)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.mu.Lock()
				awaited := r.Method == c.method && (c.method != http.MethodGet || len(s.writes) > 0)
				s.mu.Unlock()
				if !awaited {
					s.ServeHTTP(w, r)
					return
				}
				s.ServeHTTP(httptest.NewRecorder(), r)
				interrupt()
				<-r.Context().Done() // until the client's request ends
			})
			err := root.Command(t, io.Discard, handler, &commandline.Typing{}, strings.Split(args, " ")...).ExecuteContext(ctx)
			if err == nil || !strings.Contains(cli.ErrorText(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if s.mu.Lock(); len(s.writes) != 1 {
				t.Errorf("it writes %q", s.writes)
			}
			s.mu.Unlock()
		})
	}
}

// The finalizer keeps the ended NodeFence for some time after its deletion.
func TestReplaceWaitsForDeletion(t *testing.T) {
	s := newFenceServer()
	s.ended()
	gets := 0
	kept := s.fence
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/nodefences/n1") {
			s.mu.Lock()
			if gets++; gets == 2 {
				s.fence = nil
			}
			s.mu.Unlock()
		}
		s.ServeHTTP(w, r)
		if r.Method == http.MethodDelete {
			s.mu.Lock()
			s.fence = kept // the finalizer keeps it
			s.mu.Unlock()
		}
	}))
	t.Cleanup(server.Close)
	flags := genericclioptions.NewConfigFlags(false)
	flags.APIServer = &server.URL
	c := newFenceChange(&cli.Plugin{Kubeconfig: flags})
	var err error
	if c.Cluster, err = c.Live(); err != nil {
		t.Fatal(err)
	}
	if err := c.replace(t.Context(), "n1", types.UID("f")); err != nil || gets != 2 {
		t.Errorf("%v after %d reads", err, gets)
	}
}
