package podsafety

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

func TestConditionListReadsWatchCache(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("fieldSelector")+" "+r.URL.Query().Get("resourceVersion"))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}})
	}))
	defer server.Close()
	clients, err := kube.NewClients(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	a := apiServer{clients, nil, apiTimeout}
	for _, node := range []string{"", "node-1"} {
		if err := a.eachPod(t.Context(), "", node, func(*v1.Pod) {}); err != nil {
			t.Error(err)
		}
	}
	if want := []string{" ", "spec.nodeName=node-1 0"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

// TestMissingObjectNeedsAPIServerAnswer checks that the 404 of a proxy that cannot find the API server is no evidence.
func TestMissingObjectNeedsAPIServerAnswer(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) }
	status := func(w http.ResponseWriter, r *http.Request) {
		path := strings.Split(r.URL.Path, "/")
		group := ""
		if strings.HasPrefix(r.URL.Path, "/apis/") {
			group = path[2]
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
			Details: &metav1.StatusDetails{Group: group, Kind: path[len(path)-2], Name: path[len(path)-1]}})
	}
	reads := map[string]func(apiServer) (found bool, err error){
		"pod": func(a apiServer) (bool, error) {
			_, found, err := a.readPod(t.Context(), "ns", "db-0")
			return found, err
		},
		"node": func(a apiServer) (bool, error) {
			node, err := a.readNode(t.Context(), "node-1")
			return node.Found, err
		},
		"Lease": func(a apiServer) (bool, error) {
			lease, err := a.readLease(t.Context(), "node-1")
			return lease.Found, err
		},
		"volume of a claim": func(a apiServer) (bool, error) {
			v, err := a.readVolume(t.Context(), "ns", "data")
			return v.name != "", err
		},
		"NodeFence": func(a apiServer) (bool, error) {
			fence, err := a.readFence(t.Context(), "node-1", "uid-1")
			return fence.InForce, err
		},
	}
	for what, read := range reads {
		for by, c := range map[string]struct {
			answer http.HandlerFunc
			fails  bool
		}{"an API server": {status, false}, "a proxy": {page, true}} {
			t.Run(fmt.Sprintf("%s by %s", what, by), func(t *testing.T) {
				server := httptest.NewServer(c.answer)
				defer server.Close()
				clients, err := kube.NewClients(&rest.Config{Host: server.URL})
				if err != nil {
					t.Fatal(err)
				}
				fences, err := client.New(&rest.Config{Host: server.URL})
				if err != nil {
					t.Fatal(err)
				}
				if found, err := read(apiServer{clients, fences, apiTimeout}); found || (err != nil) != c.fails {
					t.Errorf("found %v, error %v", found, err)
				}
			})
		}
	}
}

// TestVolumeOfClaimIsBoundToIt expects no volume for a claim that only names a PV, as everybody can.
func TestVolumeOfClaimIsBoundToIt(t *testing.T) {
	for sentence, c := range map[string]struct {
		ref  *v1.ObjectReference
		want string
	}{
		"bound to the claim":     {&v1.ObjectReference{Namespace: "ns", Name: "data", UID: "claim"}, "pv"},
		"bound to another claim": {&v1.ObjectReference{Namespace: "victim", Name: "data", UID: "other"}, ""},
		"of a former claim":      {&v1.ObjectReference{Namespace: "ns", Name: "data", UID: "former"}, ""},
		"reserved by name":       {&v1.ObjectReference{Namespace: "ns", Name: "data"}, ""},
		"bound to none":          {nil, ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.Contains(r.URL.Path, "persistentvolumeclaims") {
				_ = json.NewEncoder(w).Encode(v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "claim"},
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
					Spec:     v1.PersistentVolumeClaimSpec{VolumeName: "pv"}})
				return
			}
			_ = json.NewEncoder(w).Encode(v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
				Spec:     v1.PersistentVolumeSpec{ClaimRef: c.ref}})
		}))
		clients, err := kube.NewClients(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		v, err := apiServer{clients, nil, apiTimeout}.readVolume(t.Context(), "ns", "data")
		if err != nil || v.name != c.want {
			t.Errorf("a PV %s: %q, error %v", sentence, v.name, err)
		}
		server.Close()
	}
}
