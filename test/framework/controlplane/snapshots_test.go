//go:build unix

package controlplane

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestSnapshotAPIsAreServedOnRequest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version Version
		options Options
		want    []string
	}{
		"not by default": {version: Newest, options: Options{NoControllerManager: true}},
		"on the newest version": {version: Newest, options: Options{NoControllerManager: true, Snapshots: true},
			want: snapshotResources()},
		"on the oldest, with all there": {version: V1_30, options: Options{Snapshots: true}, want: snapshotResources()},
	} {
		t.Run(name, func(t *testing.T) {
			cp := start(t, tc.version, tc.options)
			wantSnapshots(t, clientFor(t, cp.Admin()).Discovery(), tc.want)
			if err := cp.InstallSnapshots(t.Context()); err != nil {
				t.Errorf("later, or again: %v", err)
			}
			wantSnapshots(t, clientFor(t, cp.Admin()).Discovery(), snapshotResources())
		})
	}
}

// wantSnapshots checks the served kinds of the snapshot API, without subresources.
func wantSnapshots(t *testing.T, api discovery.DiscoveryInterface, want []string) {
	t.Helper()
	_, groups, err := api.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, group := range groups {
		for _, resource := range group.APIResources {
			if group.GroupVersion == snapshotGroup+"/v1" {
				got[resource.Name] = true
			}
		}
	}
	for _, resource := range want {
		if !got[resource] {
			t.Errorf("%s is not served: %v", resource, got)
		}
	}
	if len(want) == 0 && len(got) > 0 {
		t.Errorf("served, and not asked for: %v", got)
	}
}

// A loaded API server answers a LIST of a new kind some time before its discovery names the kind, first in the document
// of the group's version and then in the document of all groups.
func TestInstallSnapshotsWaitsForDiscovery(t *testing.T) {
	t.Parallel()
	const groupVersion = snapshotGroup + "/v1"
	var askedOne, askedAll, named atomic.Int32
	answer := func(w http.ResponseWriter, object any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
		case path == "/api":
			answer(w, metav1.APIVersions{})
		case path == "/apis":
			groups := metav1.APIGroupList{}
			if askedAll.Add(1) > 2 {
				version := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: "v1"}
				groups.Groups = []metav1.APIGroup{{Name: snapshotGroup, Versions: []metav1.GroupVersionForDiscovery{version},
					PreferredVersion: version}}
			}
			answer(w, groups)
		case path == "/apis/"+groupVersion:
			list := metav1.APIResourceList{GroupVersion: groupVersion}
			for i, resource := range snapshotResources() {
				if int(askedOne.Load()) > i {
					list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource})
				}
			}
			askedOne.Add(1)
			named.Store(int32(len(list.APIResources)))
			answer(w, list)
		case strings.HasPrefix(path, "/apis/"+groupVersion+"/"):
			answer(w, map[string]any{"items": []any{}}) // a LIST is answered from the beginning
		default:
			t.Errorf("%s %s was not expected", r.Method, path)
		}
	}))
	t.Cleanup(server.Close)
	cp := &ControlPlane{admin: &rest.Config{Host: server.URL}}
	must.OK(t, cp.InstallSnapshots(t.Context()))
	if int(named.Load()) < len(snapshotResources()) || askedAll.Load() < 3 {
		t.Errorf("returned while the discovery named %d kinds, and all groups were asked for %d times", named.Load(),
			askedAll.Load())
	}
}
