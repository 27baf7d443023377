package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// emptyCluster answers lists of all kinds that volume-guard watches, and counts them by resource.
type emptyCluster struct {
	mu    sync.Mutex
	lists map[string]int
}

var listKinds = map[string]string{
	"pods": "PodList", "persistentvolumeclaims": "PersistentVolumeClaimList", "persistentvolumes": "PersistentVolumeList",
	"nodes": "NodeList", "namespaces": "NamespaceList", "storageclasses": "StorageClassList",
	"statefulsets": "StatefulSetList", "nodefences": "NodeFenceList", "fencepolicies": "FencePolicyList",
}

func (c *emptyCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	resource := path.Base(r.URL.Path)
	c.mu.Lock()
	c.lists[resource]++
	c.mu.Unlock()
	version := strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), "/api/")
	_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`,
		listKinds[resource], version)
}

// Only without node-fencing can a NodeFence be left that nothing ends. The answer is waited for.
func TestLeftFences(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"nodefences"}]}`)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	for _, c := range []struct {
		controllers string
		want        bool
		asked       int32
	}{
		{"*", false, 0}, {"pod-safety,node-fencing", false, 0}, {"pod-safety", true, 2}, {"pod-safety,single-node", true, 3},
	} {
		o := must.Get(parse(t, "--controllers="+c.controllers))(t)
		got, err := o.leftFences(t.Context(), config)
		if got != c.want || err != nil || asked.Load() != c.asked {
			t.Errorf("%s: %t, %v, after %d questions", c.controllers, got, err, asked.Load())
		}
		o.watchFences = got
		all := o.configs(nil, nil)
		if all.podSafety.WatchFences != got || all.singleNode.WatchFences != got {
			t.Errorf("%s: pod-safety and single-node watch NodeFences: %t, %t", c.controllers, all.podSafety.WatchFences,
				all.singleNode.WatchFences)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	o := must.Get(parse(t, "--controllers=pod-safety"))(t)
	if _, err := o.leftFences(ended, &rest.Config{Host: "http://127.0.0.1:1"}); err == nil {
		t.Error("nothing is known of NodeFences, and that is no error")
	}
}

// Each object is sent once, however many controllers need it. The two lists of namespaces have different labels.
func TestControllersShareTheirWatches(t *testing.T) {
	t.Parallel()
	cluster := &emptyCluster{lists: map[string]int{}}
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	var lists map[string]int
	watchAll(t, server.URL, func() { // the end of one watcher may have the others list again
		cluster.mu.Lock()
		defer cluster.mu.Unlock()
		lists = maps.Clone(cluster.lists)
	})
	for _, resource := range slices.Sorted(maps.Keys(listKinds)) {
		want := 1
		if resource == "namespaces" {
			want = 2
		}
		if got := lists[resource]; got != want {
			t.Errorf("%d lists of %s, want %d", got, resource, want)
		}
	}
}

// watchAll runs the watches of all controllers until they are synced, and calls synced before it ends them.
func watchAll(t testing.TB, host string, synced func()) {
	t.Helper()
	o := &options{controllers: slices.Concat(onByDefault(), offByDefault())}
	all := must.Get(o.guards(&rest.Config{Host: host}, nil, nil))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	for _, one := range all {
		watching.Go(func() { one.Watch(ctx) })
		t.Cleanup(one.Stop)
	}
	must.OK(t, all.waitSynced(ctx))
	synced()
}

// filledCluster has pods of 5 KB, each with a claim, in a namespace without labels.
type filledCluster struct {
	emptyCluster
	pods int
	sent atomic.Int64
}

var padding = map[string]string{"padding": strings.Repeat("x", 4500)}

func (c *filledCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if path.Base(r.URL.Path) != "pods" || query.Get("watch") != "" {
		c.emptyCluster.ServeHTTP(w, r)
		return
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	to := min(from+limit, c.pods)
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	if to < c.pods {
		list.Continue = strconv.Itoa(to)
	}
	for i := from; i < to; i++ {
		name := fmt.Sprintf("web-%036d", i)
		list.Items = append(list.Items, v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "plain", Name: name, UID: types.UID(name), ResourceVersion: "1",
				Annotations: padding},
			Spec: v1.PodSpec{NodeName: "node", Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}}}}},
		})
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, counting{w, &c.sent})
}

// counting counts the bytes that it writes.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counting) Write(data []byte) (int, error) {
	c.n.Add(int64(len(data)))
	return c.ResponseWriter.Write(data)
}

// BenchmarkStart measures the start beside 10,000 pods in a namespace without labels, with all controllers: the bytes
// received for each pod, and the memory that is kept for it.
func BenchmarkStart(b *testing.B) {
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for range b.N {
		cluster := &filledCluster{emptyCluster: emptyCluster{lists: map[string]int{}}, pods: 10_000}
		server := httptest.NewServer(cluster)
		before := heap()
		watchAll(b, server.URL, func() {
			b.ReportMetric((heap()-before)/float64(cluster.pods), "B-kept/pod")
			b.ReportMetric(float64(cluster.sent.Load())/float64(cluster.pods), "B-received/pod")
		})
		server.Close()
	}
}
