package nodefence

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestServed(t *testing.T) {
	for name, c := range map[string]struct {
		status        int
		kinds         []string
		served, fails bool
	}{
		"it is there":                 {http.StatusOK, []string{"volumelocks", "nodefences"}, true, false},
		"the group has another kind":  {http.StatusOK, []string{"volumelocks"}, false, false},
		"no group":                    {http.StatusNotFound, nil, false, false},
		"the API server is not ready": {http.StatusServiceUnavailable, nil, false, true},
		"it is forbidden":             {http.StatusForbidden, nil, false, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			list := metav1.APIResourceList{GroupVersion: v1alpha1.GroupVersion.String()}
			for _, kind := range c.kinds {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind})
			}
			_ = json.NewEncoder(w).Encode(list)
		}))
		api := must.Get(discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL}))(t)
		if served, err := Served(api); served != c.served || (err != nil) != c.fails {
			t.Errorf("%s: %t, %v", name, served, err)
		}
		server.Close()
	}
}

// fence is a NodeFence with a proof of volumes, which is in force.
func fence(alter ...func(*v1alpha1.NodeFence)) *v1alpha1.NodeFence {
	const agent = "storage"
	o := &v1alpha1.NodeFence{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeFence"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "fence", Finalizers: []string{fencing.Finalizer}},
		Spec:       v1alpha1.NodeFenceSpec{Agents: []v1alpha1.Agent{{Name: agent, Covers: v1alpha1.CoversVolumes}}},
		Status: v1alpha1.NodeFenceStatus{
			Attempts: []v1alpha1.Attempt{{Number: 1, Agent: agent, TerminatingPods: []types.UID{"pod"}}},
			Proof: &v1alpha1.Proof{Attempt: 1, Agent: agent, Covers: v1alpha1.CoversVolumes,
				Volumes: []v1alpha1.CoveredVolumes{{Agent: agent, Driver: "driver"}}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue}},
		},
	}
	for _, a := range alter {
		a(o)
	}
	return o
}

func TestFenceOf(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		alter func(*v1alpha1.NodeFence)
		want  Fence
	}{
		"in force": {func(*v1alpha1.NodeFence) {}, Fence{"a", true, 1, true, "fence", 1}},
		"in force, by a later proof": {func(o *v1alpha1.NodeFence) {
			o.Status.Attempts[0].Number, o.Status.Proof.Attempt = 2, 2
		}, Fence{"a", true, 1, true, "fence", 2}},
		"in force, of another object": {func(o *v1alpha1.NodeFence) { o.UID = "later" },
			Fence{"a", true, 1, true, "later", 1}},
		"ending": {func(o *v1alpha1.NodeFence) { o.Spec.Unfence = v1alpha1.UnfenceNow },
			Fence{Node: "a", KeepsVolumes: true}},
		"requested": {func(o *v1alpha1.NodeFence) { o.Status = v1alpha1.NodeFenceStatus{} }, Fence{Node: "a"}},
	} {
		if got := FenceOf(fence(c.alter)); got != c.want {
			t.Errorf("%s: %+v, want %+v", sentence, got, c.want)
		}
	}
}

// After its deletion a fence counts as none, whatever it proved.
func TestChanges(t *testing.T) {
	t.Parallel()
	open, shut := Fence{Node: "a"}, Fence{Node: "a", InForce: true, Covers: 1, KeepsVolumes: true}
	var got []Fence
	changes := Changes(func(f Fence) { got = append(got, f) })
	for sentence, c := range map[string]struct {
		happens func()
		want    []Fence
	}{
		"it is new":     {func() { changes.Added(shut) }, []Fence{shut}},
		"it changes":    {func() { changes.Updated(open, shut) }, []Fence{shut}},
		"it is as ever": {func() { changes.Updated(shut, shut) }, nil},
		"it is deleted": {func() { changes.Deleted(shut, false) }, []Fence{open}},
	} {
		got = nil
		if c.happens(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", sentence, got, c.want)
		}
	}
}

// The evidence is about the asked pod, and a proxy that cannot find the API server gives none.
func TestRead(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		answer any
		code   int
		pod    types.UID
		want   func(objects.Fence) bool
		fails  bool
	}{
		"a terminating pod": {fence(), http.StatusOK, "pod",
			func(f objects.Fence) bool { return f.InForce && f.SinceTerminating && len(f.Volumes) == 1 }, false},
		"another pod": {fence(), http.StatusOK, "other",
			func(f objects.Fence) bool { return f.InForce && !f.SinceTerminating }, false},
		"no fence": {metav1.Status{Status: metav1.StatusFailure, TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Details: &metav1.StatusDetails{Name: "a",
				Group: Kind.Resource.Group, Kind: Kind.Resource.Resource}}, http.StatusNotFound, "pod",
			func(f objects.Fence) bool { return !f.InForce }, false},
		"a proxy": {"404 page not found", http.StatusNotFound, "pod",
			func(f objects.Fence) bool { return !f.InForce }, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			_ = json.NewEncoder(w).Encode(c.answer)
		}))
		fences := must.Get(client.New(&rest.Config{Host: server.URL}))(t)
		got, err := Read(t.Context(), fences, "a")
		if !c.want(got(c.pod)) || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", sentence, got(c.pod), err)
		}
		server.Close()
	}
}
