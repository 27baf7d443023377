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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// lists counts the lists of VolumeAttachments.
func lists(c *fake.Clientset) (n int) {
	for _, a := range c.Actions() {
		if a.Matches("list", "volumeattachments") {
			n++
		}
	}
	return n
}

// bare is an access to a fake API server with these objects.
func bare(objects ...runtime.Object) (apiServer, *fake.Clientset, *testclock.FakePassiveClock) {
	api, clock := fake.NewClientset(objects...), testclock.NewFakePassiveClock(time.Now())
	return apiServer{clients: clients{Clients: kube.Clients{Core: api.CoreV1(), Storage: api.StorageV1()}},
		attachments: &attachments{clock: clock}}, api, clock
}

func attachment(name, node string, alter ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	o := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}
	for _, a := range alter {
		a(o)
	}
	return o
}

func TestVolumeAttachmentListsAreShared(t *testing.T) {
	at := metav1.Now()
	server, api, clock := bare(attachment("stays", "node-2"), attachment("leaving", "node-1",
		func(o *storagev1.VolumeAttachment) {
			o.DeletionTimestamp, o.Finalizers = &at, []string{"example.com/attacher"}
		}))
	begin := clock.Now()
	list := func(node string, since time.Time, want fencing.RemainingFacts, all int) {
		t.Helper()
		got, err := server.listRemaining(t.Context(), fencing.Ask{Node: node, Since: since})
		if err != nil || got.All != want.All || got.Leaving != want.Leaving || !slices.Equal(got.Held, want.Held) ||
			got.AttachmentsListed != want.AttachmentsListed {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if n := lists(api); n != all {
			t.Errorf("%d lists of VolumeAttachments, want %d", n, all)
		}
	}
	pass := func() { clock.SetTime(clock.Now().Add(listEvery)) }
	volume := fencing.Remains{VolumeAttachments: 1}
	pods, err := server.listRemaining(t.Context(), fencing.Ask{Node: "node-1", PodsOnly: true})
	if err != nil || pods.AttachmentsListed || lists(api) != 0 {
		t.Errorf("a list of pods alone: %+v, %v", pods, err)
	}
	pass()
	known := fencing.RemainingFacts{All: volume, Leaving: volume, AttachmentsListed: true}
	list("node-1", clock.Now(), known, 1)
	list("node-1", begin, known, 1)
	list("node-2", begin, fencing.RemainingFacts{All: volume, AttachmentsListed: true}, 1)
	list("node-3", begin, fencing.RemainingFacts{AttachmentsListed: true}, 1)
	// The list shows neither later ends of attachments nor later attachments.
	list("node-1", clock.Now(), fencing.RemainingFacts{All: volume, Leaving: volume}, 1)
	list("node-3", clock.Now(), fencing.RemainingFacts{}, 1)
	list("node-3", time.Time{}, fencing.RemainingFacts{}, 1)
	must.OK(t, api.StorageV1().VolumeAttachments().Delete(t.Context(), "leaving", metav1.DeleteOptions{}))
	since := clock.Now()
	pass()
	list("node-1", since, fencing.RemainingFacts{AttachmentsListed: true}, 2)

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "pod", DeletionTimestamp: &at,
		Finalizers: []string{objects.RunningFinalizer}}, Spec: v1.PodSpec{NodeName: "node-1"}}
	must.OK(t, api.Tracker().Add(pod))
	held := fencing.Remains{Pods: 1}
	// The pod may wait for the end of the fence: it does not make the others unknown.
	list("node-1", since, fencing.RemainingFacts{All: held, Leaving: held, AttachmentsListed: true,
		Held: []fencing.HeldPod{{Namespace: "default", UID: "pod"}}}, 2)
}

// A list of all VolumeAttachments takes many seconds in a large cluster. One call makes it, the others do not wait for
// it, and the next one begins after a pause as long as the list.
func TestOneCallListsVolumeAttachments(t *testing.T) {
	server, api, clock := bare(attachment("a", "node-1"))
	begin := clock.Now()
	const takes = 15 * time.Second
	ask := func(since time.Time) fencing.RemainingFacts {
		f, err := server.listRemaining(t.Context(), fencing.Ask{Node: "node-1", Since: since})
		if err != nil {
			t.Error(err)
		}
		return f
	}
	api.PrependReactor("list", "volumeattachments", func(kubetesting.Action) (bool, runtime.Object, error) {
		clock.SetTime(clock.Now().Add(takes))
		beside := fencing.Ask{Node: "node-1", Since: clock.Now()}
		if left, listed, due := server.attachments.last(beside); listed || due {
			t.Errorf("a call beside the list: %+v, %t, %t", left, listed, due)
		}
		return false, nil, nil
	})
	clock.SetTime(clock.Now().Add(time.Second))
	if f := ask(begin); !f.AttachmentsListed || f.All.VolumeAttachments != 1 {
		t.Errorf("the call that lists: %+v", f)
	}
	clock.SetTime(clock.Now().Add(takes - 1))
	if f := ask(clock.Now()); f.AttachmentsListed || lists(api) != 1 {
		t.Errorf("within the pause: %+v", f)
	}
	if f := ask(begin); !f.AttachmentsListed {
		t.Errorf("for a fence that waited for the list: %+v", f)
	}
	clock.SetTime(clock.Now().Add(1))
	if f := ask(clock.Now()); !f.AttachmentsListed || lists(api) != 2 {
		t.Errorf("after the pause: %+v", f)
	}
}

// A list that fails shows nothing, and the next call makes another one.
func TestFailedListOfVolumeAttachments(t *testing.T) {
	server, api, clock := bare(attachment("a", "node-1"))
	fails := true
	api.PrependReactor("list", "volumeattachments", func(kubetesting.Action) (bool, runtime.Object, error) {
		return fails, nil, kube.ErrUndone
	})
	ask := fencing.Ask{Node: "node-1", Since: clock.Now()}
	if f, err := server.listRemaining(t.Context(), ask); !errors.Is(err, kube.ErrUndone) || f.AttachmentsListed {
		t.Errorf("%+v, %v", f, err)
	}
	fails = false
	if f, err := server.listRemaining(t.Context(), ask); err != nil || !f.AttachmentsListed {
		t.Errorf("%+v, %v", f, err)
	}
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
			fences := must.Get(New(&rest.Config{Host: server.URL}, Config{}))(t)
			err := fences.Installed(t.Context())
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
