package fencing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func api(t *testing.T, s *kubetest.Server) apiServer {
	t.Helper()
	clients := must.Get(newClients(s.Config(), Config{}))(t)
	return apiServer{clients, &attachments{clock: testclock.NewFakePassiveClock(time.Now())}}
}

const notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,` +
	`"details":{"name":"a","group":"csi-reclaimer.io","kind":"nodefences"}}`

// versions are the API versions of kinds.
var versions = map[string]string{"NodeFence": "csi-reclaimer.io/v1alpha1", "FencePolicy": "csi-reclaimer.io/v1alpha1",
	"Node": "v1", "Pod": "v1", "Namespace": "v1", "Lease": "coordination.k8s.io/v1", "PodDisruptionBudget": "policy/v1",
	"VolumeAttachment": "storage.k8s.io/v1"}

// objectOf returns an object with the name a.
func objectOf(kind, metadata, rest string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","resourceVersion":"7"%s}%s}`, versions[kind],
		kind, metadata, rest)
}

// The finalizers of other programs survive, and each write is bound to the object that was read.
func TestFinalizerOfFence(t *testing.T) {
	t.Parallel()
	const none = `,"uid":"uid","finalizers":["other"]`
	const both = `,"uid":"uid","finalizers":["other","` + fencing.Finalizer + `"]`
	const deleted = `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
	is := func(metadata string) string { return objectOf("NodeFence", metadata, "") }
	for sentence, c := range map[string]struct {
		has          bool
		read, answer string
		writes       string
		err          error
	}{
		"it is added":                   {true, is(none), is(both), `["other","` + fencing.Finalizer + `"]`, nil},
		"it is there":                   {true, is(both), "", "", nil},
		"it is removed":                 {false, is(both), is(none), `["other"]`, nil},
		"it is not there":               {false, is(none), "", "", nil},
		"the fence is deleted":          {true, is(none + deleted), "", "", kube.ErrChanged},
		"a deleted fence is released":   {false, is(both + deleted), is(none), `["other"]`, nil},
		"the fence is another":          {true, is(`,"uid":"other"`), is(both), "", kube.ErrGone},
		"the fence is gone":             {false, notFound, is(none), "", kube.ErrGone},
		"an admission policy undoes it": {true, is(none), is(none), `["other","` + fencing.Finalizer + `"]`, kube.ErrUndone},
	} {
		s := kubetest.NewServer(t, map[string]string{"GET /nodefences/a": c.read, "PATCH /nodefences/a": c.answer})
		err := api(t, s).setFinalizer(t.Context(), fencing.Ask{Node: "a", UID: "uid"}, c.has)
		if !errors.Is(err, c.err) || (err != nil) != (c.err != nil) {
			t.Errorf("%s: %v, want %v", sentence, err, c.err)
		}
		if wrote := strings.HasPrefix(s.Last(), "PATCH"); wrote != (c.writes != "") ||
			wrote && !s.Has(`"uid":"uid"`, `"resourceVersion":"7"`, `"finalizers":`+c.writes) {
			t.Errorf("%s: %s", sentence, s.Last())
		}
	}
	for _, answers := range []map[string]string{{}, {"GET /a": is(none)}} {
		s := kubetest.NewServer(t, answers)
		err := api(t, s).setFinalizer(t.Context(), fencing.Ask{Node: "a", UID: "uid"}, true)
		if err == nil || errors.Is(err, kube.ErrGone) {
			t.Errorf("a refused call is no error: %s", s.Last())
		}
	}
}

// The taints of other programs survive, and the Node is the one that was decided about.
func TestTaintOfNode(t *testing.T) {
	t.Parallel()
	taint := func(key, value, effect string) string {
		return fmt.Sprintf(`{"key":%q,"value":%q,"effect":%q}`, key, value, effect)
	}
	const uid, key, volumes = `,"uid":"uid"`, v1.TaintNodeOutOfService, objects.VolumesFencedTaint
	is := func(metadata string, taints ...string) string {
		return objectOf("Node", metadata, `,"spec":{"taints":[`+strings.Join(taints, ",")+`]}`)
	}
	other, ours := taint("other", "", "NoSchedule"), taint(key, objects.OwnTaintValue, "NoExecute")
	theirs := []string{taint(key, "x", "NoExecute"), taint(key, "x", "NoSchedule")}
	shun := taint(volumes, "", "NoSchedule")
	for sentence, c := range map[string]struct {
		taint        fencing.Taint
		version      string
		read, answer string
		writes       []string
		err          error
	}{
		"out of service": {fencing.OutOfService, "7", is(uid, other), is(uid, other, ours), []string{`"other"`, key},
			nil},
		"no volumes":        {fencing.VolumesFenced, "7", is(uid, ours), is(uid, shun), []string{volumes}, nil},
		"none":              {fencing.NoTaint, "7", is(uid, ours), is(uid), []string{`"taints":[]`}, nil},
		"none is left":      {fencing.NoTaint, "7", is(uid), is(uid), []string{`"taints":[]`}, nil},
		"none was there":    {fencing.NoTaint, "7", objectOf("Node", uid, ""), is(uid), []string{`"taints":[]`}, nil},
		"the node changed":  {fencing.NoTaint, "6", is(uid, ours), is(uid), nil, kube.ErrChanged},
		"it has no UID":     {fencing.NoTaint, "7", is("", ours), is(uid), nil, errAny},
		"others have both":  {fencing.OutOfService, "7", is(uid, theirs...), is(uid, ours), nil, errTaken},
		"it is undone":      {fencing.OutOfService, "7", is(uid), is(uid, other), []string{key}, kube.ErrUndone},
		"it cannot be read": {fencing.NoTaint, "7", "", is(uid), nil, errAny},
		"the write fails":   {fencing.NoTaint, "7", is(uid, ours), "", []string{`"taints":[]`}, errAny},
		"a worse one stays": {fencing.VolumesFenced, "7", is(uid, ours), is(uid, ours, shun), []string{volumes},
			kube.ErrUndone},
		"it is still there": {fencing.NoTaint, "7", is(uid, shun), is(uid, shun), []string{`"taints":[]`}, kube.ErrUndone},
	} {
		answers := map[string]string{}
		for method, answer := range map[string]string{"GET": c.read, "PATCH": c.answer} {
			if answer != "" {
				answers[method+" /nodes/a"] = answer
			}
		}
		s := kubetest.NewServer(t, answers)
		err := api(t, s).setTaint(t.Context(), fencing.Ask{Node: "a", NodeVersion: c.version, Taint: c.taint})
		if unread := errors.Is(c.err, errAny); (err != nil) != (c.err != nil) || !unread && !errors.Is(err, c.err) ||
			unread && errors.Is(err, kube.ErrChanged) {
			t.Errorf("%s: %v, want %v", sentence, err, c.err)
		}
		if wrote := strings.HasPrefix(s.Last(), "PATCH"); wrote != (c.writes != nil) ||
			wrote && !s.Has(append(c.writes, `"uid":"uid"`, `"resourceVersion":"7"`)...) {
			t.Errorf("%s: %s", sentence, s.Last())
		}
	}
	for _, o := range []v1.Node{{ObjectMeta: metav1.ObjectMeta{UID: "uid"}},
		{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}} {
		if _, err := taintPatch(&o, nil); err == nil {
			t.Errorf("a write that is bound to nothing: %+v", o.ObjectMeta)
		}
	}
}

var errAny = errors.New("any")

// Each write is bound to the object that was read, and a refused one fails.
func TestWritesAreBound(t *testing.T) {
	t.Parallel()
	ask := fencing.Ask{Node: "a", UID: "uid", ResourceVersion: "7", Status: &v1alpha1.NodeFenceStatus{}}
	for what, write := range map[string]func(a apiServer) error{
		"DELETE /apis/csi-reclaimer.io/v1alpha1/nodefences/a": func(a apiServer) error {
			return a.deleteFence(t.Context(), ask)
		},
		"PUT": func(a apiServer) error { return a.writeStatus(t.Context(), ask) },
		"PUT /apis/csi-reclaimer.io/v1alpha1/fencepolicies/a/status": func(a apiServer) error {
			p := policyNamed("a", "uid")
			p.ResourceVersion = "7"
			return a.writePolicyStatus(t.Context(), p, v1alpha1.FencePolicyStatus{})
		},
	} {
		s := kubetest.NewServer(t, map[string]string{"/a": objectOf("NodeFence", "", ""),
			"/nodefences/a/status":    objectOf("NodeFence", "", ""),
			"/fencepolicies/a/status": objectOf("FencePolicy", "", "")})
		if err := write(api(t, s)); err != nil || !s.Has(what, `"uid":"uid"`, `"resourceVersion":"7"`) {
			t.Errorf("%s: %s, %v", what, s.Last(), err)
		}
		if err := write(api(t, kubetest.NewServer(t, nil))); err == nil {
			t.Errorf("%s: a refused write is no error", what)
		}
	}
	const exists = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`
	for answer, want := range map[string]error{objectOf("NodeFence", "", ""): nil, exists: kube.ErrChanged} {
		s := kubetest.NewServer(t, map[string]string{"/nodefences": answer})
		if err := api(t, s).createFence(t.Context(), &v1alpha1.NodeFence{}); !errors.Is(err, want) {
			t.Errorf("create: %v, want %v", err, want)
		}
	}
	err := api(t, kubetest.NewServer(t, nil)).createFence(t.Context(), &v1alpha1.NodeFence{})
	if err == nil || errors.Is(err, kube.ErrChanged) {
		t.Errorf("a refused creation: %v", err)
	}
}

// The kind of an earlier release does not keep all fields.
func TestStatusIsKeptWhole(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	ask := fencing.Ask{Node: "a", UID: "uid", ResourceVersion: "7", Status: &v1alpha1.NodeFenceStatus{
		Attempts: []v1alpha1.Attempt{{Number: 1, Agent: "off", UndoTry: 1, UndoTriedAt: &at}}}}
	for attempt, want := range map[string]error{
		`"undoTry":1,"undoTriedAt":"2026-01-02T03:04:05Z"`: nil,
		`"undoTriedAt":"2026-01-02T03:04:05Z"`:             errOldKind,
	} {
		s := kubetest.NewServer(t, map[string]string{"/nodefences/a/status": objectOf("NodeFence", "",
			`,"status":{"attempts":[{"number":1,"agent":"off",`+attempt+`}]}`)})
		if err := api(t, s).writeStatus(t.Context(), ask); !errors.Is(err, want) {
			t.Errorf("kept %s: %v, want %v", attempt, err, want)
		}
	}
}

// list is a list with these items.
func list(kind string, items ...string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"%sList","metadata":{},"items":[%s]}`, versions[kind], kind,
		strings.Join(items, ","))
}

// A refused list is not an empty one.
func TestLists(t *testing.T) {
	t.Parallel()
	pod := objectOf("Pod", `,"namespace":"ns"`, `,"spec":{"nodeName":"a","volumes":[{"persistentVolumeClaim":{}}]}`)
	tainted := objectOf("Node", "", `,"spec":{"taints":[{"key":"csi-reclaimer.io/volumes-fenced"}]}`)
	attached := objectOf("VolumeAttachment", "", `,"spec":{"nodeName":"a"}`)
	for end, c := range map[string]struct {
		answer string
		live   bool
		count  func(a apiServer) (int, error)
	}{
		"/leases": {list("Lease", objectOf("Lease", "", "")), false, func(a apiServer) (int, error) {
			leases, err := a.listLeases(t.Context())
			return len(leases), err
		}},
		"/pods": {list("Pod", pod, objectOf("Pod", "", "")), false, func(a apiServer) (int, error) {
			all, err := a.listWaiting(t.Context(), "a")
			return len(all), err
		}},
		"/poddisruptionbudgets": {list("PodDisruptionBudget", objectOf("PodDisruptionBudget", "", "")), false,
			func(a apiServer) (int, error) {
				all, err := a.listBudgets(t.Context(), "ns")
				return len(all), err
			}},
		"/namespaces/a": {objectOf("Namespace", `,"labels":{"x":"y"}`, ""), false,
			func(a apiServer) (int, error) {
				labels, err := a.readNamespace(t.Context(), "a")
				return len(labels), err
			}},
		"/nodefences": {list("NodeFence", objectOf("NodeFence", "", "")), true,
			func(a apiServer) (int, error) {
				all, err := a.listFences(t.Context())
				return len(all), err
			}},
		"/nodes": {list("Node", tainted, objectOf("Node", "", "")), true,
			func(a apiServer) (n int, err error) {
				err = a.eachTainted(t.Context(), func(string, objects.Node) { n++ })
				return n, err
			}},
		"/volumeattachments": {list("VolumeAttachment", attached), true,
			func(a apiServer) (int, error) {
				nodes, err := a.listAttachments(t.Context())
				return nodes["a"].all, err
			}},
	} {
		s := kubetest.NewServer(t, map[string]string{end: c.answer})
		a := api(t, s)
		if n, err := c.count(a); n != 1 || err != nil ||
			s.Has("resourceVersion=0") == c.live {
			t.Errorf("%s: %d, %v, %s", end, n, err, s.Last())
		}
		if _, err := c.count(api(t, kubetest.NewServer(t, nil))); err == nil {
			t.Errorf("%s: a refused list is empty", end)
		}
	}
	s := kubetest.NewServer(t, map[string]string{"/namespaces/a": strings.NewReplacer("csi-reclaimer.io", "",
		"nodefences", "namespaces").Replace(notFound)})
	if labels, err := api(t, s).readNamespace(t.Context(), "a"); labels != nil || err != nil {
		t.Errorf("a namespace that is gone: %v, %v", labels, err)
	}
	_, err := api(t, kubetest.NewServer(t, nil)).listRemaining(t.Context(), fencing.Ask{Node: "a", PodsOnly: true})
	if err == nil {
		t.Error("a node whose pods cannot be listed is empty")
	}
	broken := list("PodDisruptionBudget", objectOf("PodDisruptionBudget", "",
		`,"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"?"}]}}`))
	s = kubetest.NewServer(t, map[string]string{"/poddisruptionbudgets": broken})
	if all, err := api(t, s).listBudgets(t.Context(), "ns"); err == nil {
		t.Errorf("a selector that is not valid: %v", all)
	}
}

// Only a current status counts, and a budget of no pods protects none.
func TestBudgetOf(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		alter func(*policyv1.PodDisruptionBudgetStatus)
		want  bool
	}{
		"enough are healthy":     {func(*policyv1.PodDisruptionBudgetStatus) {}, true},
		"one is missing":         {func(s *policyv1.PodDisruptionBudgetStatus) { s.CurrentHealthy = 1 }, false},
		"of an older generation": {func(s *policyv1.PodDisruptionBudgetStatus) { s.ObservedGeneration = 1 }, false},
		"no pods":                {func(s *policyv1.PodDisruptionBudgetStatus) { s.ExpectedPods = 0 }, false},
	} {
		o := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 2},
			Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, ExpectedPods: 3, CurrentHealthy: 2,
				DesiredHealthy: 2}}
		c.alter(&o.Status)
		if got, err := budgetOf(o); err != nil || got.healthy != c.want {
			t.Errorf("%s: %t, %v", sentence, got.healthy, err)
		}
	}
}
