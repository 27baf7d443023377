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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

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
