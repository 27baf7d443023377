package podsafety

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func api(t *testing.T, config *rest.Config) apiServer {
	t.Helper()
	clients := must.Get(kube.NewClients(config))(t)
	fences := must.Get(client.New(config))(t)
	return apiServer{clients, fences}
}

func locksOf(t *testing.T, s *kubetest.Server) lockClient {
	t.Helper()
	locks := must.Get(newLockClient(s.Config()))(t)
	return locks
}

// An admission policy may revert a change in the same write.
func TestRevertedWriteFails(t *testing.T) {
	t.Parallel()
	const finalizers = `["other","csi-reclaimer.io/running"]`
	ask := podsafety.Ask{Namespace: "ns", Name: "db", UID: "uid", ResourceVersion: "7"}
	for sentence, c := range map[string]struct {
		add    bool
		after  string
		undone bool
	}{
		"it is added":      {true, finalizers, false},
		"it is not added":  {true, `["other"]`, true},
		"it is removed":    {false, `["other"]`, false},
		"it is still here": {false, finalizers, true},
	} {
		for kind, patch := range map[string]func(a apiServer) error{
			"Pod": func(a apiServer) error { return a.patchPod(t.Context(), ask, c.add) },
			"PersistentVolumeClaim": func(a apiServer) error {
				return a.patchClaim(t.Context(), podsafety.Claim{Namespace: "ns", Name: "db", UID: "uid"}, c.add)
			},
		} {
			s := kubetest.NewServer(t, map[string]string{"/db": fmt.Sprintf(
				`{"kind":%q,"apiVersion":"v1","metadata":{"name":"db","finalizers":%s}}`, kind, c.after)})
			err := patch(api(t, s.Config()))
			if errors.Is(err, kube.ErrUndone) != c.undone || (err != nil) != c.undone {
				t.Errorf("%s, %s: %v", kind, sentence, err)
			}
			if !s.Has("PATCH", `"uid":"uid"`, objects.RunningFinalizer) || s.Has("deleteFromPrimitiveList") == c.add ||
				s.Has(`"resourceVersion":"7"`) != (kind == "Pod") {
				t.Errorf("%s, %s: %q", kind, sentence, s.Last())
			}
		}
	}
}

func TestRefusedCallsFail(t *testing.T) {
	t.Parallel()
	lock := volumeLock{node: "a", object: "uid", version: "7"}
	for what, call := range map[string]func(s *kubetest.Server) error{
		"list pods": func(s *kubetest.Server) error {
			return api(t, s.Config()).eachPod(t.Context(), "", "", func(*v1.Pod) {})
		},
		"list one pod": func(s *kubetest.Server) error {
			_, err := api(t, s.Config()).podsVersion(t.Context())
			return err
		},
		"list claims": func(s *kubetest.Server) error {
			return api(t, s.Config()).eachClaim(t.Context(), func(podsafety.Claim) {})
		},
		"patch finalizers of": func(s *kubetest.Server) error {
			return api(t, s.Config()).patchPod(t.Context(), podsafety.Ask{Name: "db", UID: "uid"}, false)
		},
		"read claim": func(s *kubetest.Server) error {
			_, err := api(t, s.Config()).readVolume(t.Context(), "ns", "data")
			return err
		},
		"list VolumeLocks": func(s *kubetest.Server) error {
			_, err := locksOf(t, s).list(t.Context())
			return err
		},
		"write the VolumeLock of": func(s *kubetest.Server) error {
			_, err := locksOf(t, s).put(t.Context(), lock)
			return err
		},
		"delete the VolumeLock of": func(s *kubetest.Server) error { return locksOf(t, s).delete(t.Context(), lock) },
	} {
		if err := call(kubetest.NewServer(t, nil)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPodsVersion(t *testing.T) {
	t.Parallel()
	s := kubetest.NewServer(t, map[string]string{
		"/pods": `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`})
	if version, err := api(t, s.Config()).podsVersion(t.Context()); err != nil || version != "7" {
		t.Errorf("%q, %v", version, err)
	}
}

// A lock of another writer must stay, so each write is bound to the object that was read.
func TestLockWrites(t *testing.T) {
	t.Parallel()
	const stored = `{"apiVersion":"csi-reclaimer.io/v1alpha1","kind":"VolumeLock","metadata":{"name":"a","uid":"uid",` +
		`"resourceVersion":"8"},"spec":{"volumes":{"pv":{"namespace":"ns","pod":"db","uid":"of-db"}}}}`
	read := volumeLock{node: "a", object: "uid", version: "7"}
	s := kubetest.NewServer(t, map[string]string{"/volumelocks": stored, "/volumelocks/a": stored})
	for method, l := range map[string]volumeLock{"POST": {node: "a"}, "PUT": read} {
		got, err := locksOf(t, s).put(t.Context(), l)
		if err != nil || got.version != "8" || got.volumes["pv"] != (holder{"ns", "db", "of-db"}) {
			t.Errorf("%+v, %v", got, err)
		}
		if !s.Has(method) || s.Has(`"resourceVersion":"7"`) != (method == "PUT") {
			t.Errorf("%s: %q", method, s.Last())
		}
	}
	err := locksOf(t, s).delete(t.Context(), read)
	if err != nil || !s.Has("DELETE", `"uid":"uid"`, `"resourceVersion":"7"`) {
		t.Errorf("%q, %v", s.Last(), err)
	}
	gone := kubetest.NewServer(t, map[string]string{"/a": `{"kind":"Status","apiVersion":"v1","reason":"NotFound"}`})
	if err := locksOf(t, gone).delete(t.Context(), read); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

// A claim without a PV has no volume, like a claim that only names a PV, as every claim can. A PV that allows several
// nodes needs no lock.
func TestReadVolume(t *testing.T) {
	t.Parallel()
	claim := func(volume string) string {
		return fmt.Sprintf(`{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data","uid":"claim"},`+
			`"spec":{"volumeName":%q}}`, volume)
	}
	of := func(ref, modes string) string {
		return `{"kind":"PersistentVolume","apiVersion":"v1","metadata":{"name":"pv"},"spec":{"claimRef":` + ref +
			`,"accessModes":[` + modes + `]}}`
	}
	pv := func(modes string) string { return of(`{"namespace":"ns","name":"data","uid":"claim"}`, modes) }
	for sentence, c := range map[string]struct {
		claim, pv string
		want      volume
	}{
		"no PV":                  {claim(""), "", volume{}},
		"one node":               {claim("pv"), pv(`"ReadWriteOnce"`), volume{name: "pv"}},
		"many nodes":             {claim("pv"), pv(`"ReadWriteOnce","ReadWriteMany"`), volume{name: "pv", shared: true}},
		"many nodes, reads":      {claim("pv"), pv(`"ReadOnlyMany"`), volume{name: "pv", shared: true}},
		"bound to another claim": {claim("pv"), of(`{"namespace":"victim","name":"data","uid":"other"}`, ""), volume{}},
		"of a former claim":      {claim("pv"), of(`{"namespace":"ns","name":"data","uid":"former"}`, ""), volume{}},
		"reserved by name":       {claim("pv"), of(`{"namespace":"ns","name":"data"}`, ""), volume{}},
		"bound to none":          {claim("pv"), of("null", ""), volume{}},
		"a PV that cannot exist": {claim("a/b"), "", volume{}},
	} {
		s := kubetest.NewServer(t, map[string]string{"/data": c.claim, "/pv": c.pv})
		got, err := api(t, s.Config()).readVolume(t.Context(), "ns", "data")
		if err != nil || got.name != c.want.name || got.shared != c.want.shared {
			t.Errorf("%s: %+v, %v", sentence, got, err)
		}
	}
}

// Without any of the objects, something may force a deletion. Each change of one changes the result.
func TestReadForcePolicy(t *testing.T) {
	t.Parallel()
	type objects = map[string]metav1.Object
	read := func(change func(objects)) (string, error) {
		all, texts := objects{}, map[string]string{}
		for _, name := range []string{forcePolicy, evictPolicy} {
			policy, binding := shipped(t, name)
			all[name], all[name+enforced] = &policy, &binding
		}
		change(all)
		for name, o := range all {
			texts["/"+name] = string(must.Get(json.Marshal(o))(t))
		}
		return api(t, kubetest.NewServer(t, texts).Config()).refusesForce(t.Context())
	}
	whole, err := read(func(objects) {})
	if whole == "" || err != nil {
		t.Errorf("as shipped: %q, %v", whole, err)
	}
	for _, name := range []string{forcePolicy, forcePolicy + enforced, evictPolicy, evictPolicy + enforced} {
		if by, err := read(func(o objects) { delete(o, name) }); by != "" || err == nil ||
			!strings.Contains(err.Error(), "read ValidatingAdmissionPolicy") {
			t.Errorf("without %s: %q, %v", name, by, err)
		}
		if by, err := read(func(o objects) { o[name].SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) }); by != "" ||
			err != nil {
			t.Errorf("%s is being deleted: %q, %v", name, by, err)
		}
		if by, err := read(func(o objects) { o[name].SetUID("new") }); by == "" || by == whole || err != nil {
			t.Errorf("%s is created again: %q, %v", name, by, err)
		}
		if by, err := read(func(o objects) { o[name].SetGeneration(7) }); by == "" || by == whole || err != nil {
			t.Errorf("%s is changed: %q, %v", name, by, err)
		}
	}
}

// A failed write of a condition is tried again. A pod that is gone, or another pod of its name, needs none.
func TestFailedConditionIsRetried(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		call   string
		err    error
		other  bool
		retry  bool
		marked bool
	}{
		"the pods cannot be listed": {call: "list pods", err: errNoAnswer, retry: true},
		"the write fails":           {call: "condition db remove=false", err: errNoAnswer, retry: true},
		"the pod is gone":           {call: "condition db remove=false", err: kube.ErrGone},
		"the condition is written":  {marked: true},
		"another pod has its name":  {other: true},
	} {
		w := newWorld(t, Config{NodeCondition: true})
		w.away()
		w.show(held())
		w.fail[c.call] = c.err
		if c.other {
			w.cluster = renamed{w}
		}
		got := w.mark(t.Context(), "a")
		retried := got == controller.Retries(w.cfg.Settings).Retry()
		if retried != c.retry || isMarked(w.live["ns/db"]) != c.marked {
			t.Errorf("%s: %+v, marked %t", sentence, got, isMarked(w.live["ns/db"]))
		}
	}
}

// renamed is a world in which another pod gets the name of a pod after the list.
type renamed struct{ *world }

func (r renamed) eachPod(ctx context.Context, ns, node string, visit func(*v1.Pod)) error {
	err := r.world.eachPod(ctx, ns, node, visit)
	for _, o := range r.live {
		o.UID = types.UID("other")
	}
	return err
}

func TestConditionListReadsWatchCache(t *testing.T) {
	s := kubetest.NewServer(t, map[string]string{"/pods": `{"kind":"PodList","apiVersion":"v1"}`})
	for node, cached := range map[string]bool{"": false, "node-1": true} {
		if err := api(t, s.Config()).eachPod(t.Context(), "", node, func(*v1.Pod) {}); err != nil {
			t.Error(err)
		}
		if s.Has("fieldSelector=spec.nodeName%3Dnode-1", "resourceVersion=0") != cached ||
			s.Has("resourceVersion") != cached {
			t.Errorf("node %q: asked for %s", node, s.Last())
		}
	}
}

// TestMissingObjectNeedsAPIServerAnswer checks that the 404 of a proxy that cannot find the API server is no evidence.
func TestMissingObjectNeedsAPIServerAnswer(t *testing.T) {
	kubetest.Absence(t, func(config *rest.Config, fails bool) {
		a := api(t, config)
		for what, read := range map[string]func() (found bool, err error){
			"pod":       func() (bool, error) { _, found, err := a.readPod(t.Context(), "ns", "db-0"); return found, err },
			"node":      func() (bool, error) { node, err := a.readNode(t.Context(), "node-1"); return node.Found, err },
			"Lease":     func() (bool, error) { lease, err := a.readLease(t.Context(), "node-1"); return lease.Found, err },
			"volume":    func() (bool, error) { v, err := a.readVolume(t.Context(), "ns", "data"); return v.name != "", err },
			"NodeFence": func() (bool, error) { f, err := a.readFence(t.Context(), "node-1"); return f("uid-1").InForce, err },
		} {
			if found, err := read(); found || (err != nil) != fails {
				t.Errorf("%s: found %v, error %v", what, found, err)
			}
		}
	})
}
