package fencing

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// lists counts the lists of a resource.
func lists(c *fake.Clientset, resource string) (n int) {
	for _, a := range c.Actions() {
		if a.Matches("list", resource) {
			n++
		}
	}
	return n
}

func TestVolumeAttachmentListsAreShared(t *testing.T) {
	at := metav1.Now()
	leaving := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "leaving", DeletionTimestamp: &at,
		Finalizers: []string{"example.com/attacher"}}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-1"}}
	stays := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-2"}}
	api, clock := fake.NewClientset(leaving, stays), testclock.NewFakePassiveClock(time.Now())
	server := apiServer{clients: clients{Clients: kube.Clients{Core: api.CoreV1(), Storage: api.StorageV1()}},
		detaching: &detaching{clock: clock}}
	list := func(ask fencing.Ask, want fencing.RemainingFacts, all int) {
		t.Helper()
		got, err := server.listRemaining(t.Context(), ask)
		if err != nil || got.All != want.All || got.Leaving != want.Leaving || !slices.Equal(got.Held, want.Held) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if n := lists(api, "volumeattachments"); n != all {
			t.Errorf("%d lists of VolumeAttachments, want %d", n, all)
		}
	}
	one, two := fencing.Ask{Node: "node-1"}, fencing.Ask{Node: "node-2"}
	volume := fencing.Remains{VolumeAttachments: 1}
	list(fencing.Ask{Node: "node-1", PodsOnly: true}, fencing.RemainingFacts{}, 0)
	list(one, fencing.RemainingFacts{All: volume, Leaving: volume}, 1)
	list(two, fencing.RemainingFacts{All: volume}, 2)
	list(one, fencing.RemainingFacts{All: volume, Leaving: volume}, 2) // as the list for the other node has shown
	if err := api.StorageV1().VolumeAttachments().Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	list(one, fencing.RemainingFacts{All: volume, Leaving: volume}, 2)
	clock.SetTime(clock.Now().Add(shareFor))
	list(one, fencing.RemainingFacts{}, 3)
	list(one, fencing.RemainingFacts{}, 4) // an empty result is always live

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "pod", DeletionTimestamp: &at,
		Finalizers: []string{objects.RunningFinalizer}}, Spec: v1.PodSpec{NodeName: "node-1"}}
	if err := api.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	held := fencing.Remains{Pods: 1}
	list(fencing.Ask{Node: "node-1", PodsOnly: true}, fencing.RemainingFacts{All: held, Leaving: held,
		Held: []types.UID{"pod"}}, 4)
	// The pod may wait for the end of the fence: it does not make the others unknown.
	list(one, fencing.RemainingFacts{All: held, Leaving: held, Held: []types.UID{"pod"}}, 5)
}

// TestInstalled expects the error to name the manifest. An API server that does not answer proves no absence.
func TestInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		kinds  []string
		absent bool
		fails  bool
	}{
		"both kinds":                  {http.StatusOK, []string{"nodefences", "fencepolicies"}, false, false},
		"the group has another kind":  {http.StatusOK, []string{"volumelocks"}, true, true},
		"one of them":                 {http.StatusOK, []string{"nodefences"}, true, true},
		"no group":                    {http.StatusNotFound, nil, true, true},
		"the API server is not ready": {http.StatusServiceUnavailable, nil, false, true},
		"it is forbidden":             {http.StatusForbidden, nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)
				list := metav1.APIResourceList{GroupVersion: "csi-reclaimer.io/v1alpha1"}
				for _, kind := range c.kinds {
					list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind})
				}
				_ = json.NewEncoder(w).Encode(list)
			}))
			defer server.Close()
			fences, err := New(&rest.Config{Host: server.URL}, Config{})
			if err != nil {
				t.Fatal(err)
			}
			err = fences.Installed(t.Context())
			if errors.Is(err, ErrNotInstalled) != c.absent || (err != nil) != c.fails {
				t.Errorf("%v", err)
			}
			if c.absent && !strings.Contains(err.Error(), "node-fencing-crd.yaml") {
				t.Errorf("%v does not name the manifest", err)
			}
		})
	}
}

func TestPermissions(t *testing.T) {
	writes := func(c Config) (verbs []string) {
		for _, p := range c.permissions() {
			if !slices.Contains([]string{"get", "list", "watch"}, p.Verb) {
				verbs = append(verbs, p.Verb+" "+p.Resource)
			}
			if p.Without == "" {
				t.Errorf("%s %s: without what?", p.Verb, p.Resource)
			}
		}
		return verbs
	}
	if all := writes(Config{Settings: controllers.Settings{DryRun: true}}); len(all) > 0 {
		t.Errorf("a dry run asks for %q", all)
	}
	if all := writes(Config{}); !slices.Contains(all, "patch nodes") || !slices.Contains(all, "update nodefences/status") {
		t.Errorf("it asks for %q", all)
	}
}

func TestSilenceBelowMinimumNeedsTestClock(t *testing.T) {
	ofTest := controllers.Settings{Clock: testclock.NewFakeClock(time.Now())}
	for name, c := range map[string]struct {
		cfg  Config
		want bool
	}{
		"the default":                 {Config{}, true},
		"longer":                      {Config{SilentAfter: time.Minute}, true},
		"shorter":                     {Config{SilentAfter: 39 * time.Second}, false},
		"shorter, with another clock": {Config{Settings: ofTest, SilentAfter: time.Second}, true},
		"negative":                    {Config{Settings: ofTest, SilentAfter: -1}, false},
	} {
		if err := c.cfg.Validate(); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
