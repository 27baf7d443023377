package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestFailedReleaseKeepsProtectionOfPods answers the first question of node-fencing, which is whether its kinds are
// installed. Without an answer no binding is deleted. Otherwise the first deletion ends the test.
func TestFailedReleaseKeepsProtectionOfPods(t *testing.T) {
	for name, c := range map[string]struct {
		kinds   int
		deletes bool
	}{
		"another release fails":     {http.StatusForbidden, false},
		"all others have succeeded": {http.StatusNotFound, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			var deleted []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == http.MethodDelete:
					mu.Lock()
					defer mu.Unlock()
					deleted = append(deleted, r.URL.Path)
					cancel()
				case strings.HasPrefix(r.URL.Path, "/apis/csi-reclaimer.io"):
					w.WriteHeader(c.kinds)
				}
				_, _ = io.WriteString(w, "{}")
			}))
			defer server.Close()
			o := must.Get(parse(t, "--controllers=pod-safety,single-node,node-fencing"))(t)
			config := &rest.Config{Host: server.URL}
			all := must.Get(o.guards(config, nil, nil))(t)
			if err := o.releaseInOrder(ctx, config, all, printer{io.Discard}); err == nil {
				t.Error("the release succeeds")
			}
			mu.Lock()
			defer mu.Unlock()
			if (len(deleted) > 0) != c.deletes {
				t.Errorf("deleted: %q", deleted)
			}
		})
	}
}

// A claim that a held pod uses fails each run, because pods are released last.
func TestClaimInUseByHeldPodHasWayOut(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		named bool
	}{
		"a claim in use":  {errors.Join(errors.New("other"), fmt.Errorf("release each claim: %w", inuse.ErrInHand)), true},
		"another failure": {errors.New("forbidden"), false},
	} {
		got := wayOut(c.err).Error()
		if strings.Contains(got, "kubectl reclaim delete-pod NAME -n NAMESPACE --force") != c.named ||
			!strings.Contains(got, "run the command again") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// An entry may be forged. Nothing finishes it then.
func TestVolumeInFlightHasWayOut(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := printer{&out}.drivers(admission.Released{InFlight: []inflight.Located{{Location: inflight.Location{
		Lease: types.NamespacedName{Namespace: "tenant", Name: "log-0"}}}}})
	if !strings.Contains(out.String(), "of Lease tenant/log-0") || err == nil ||
		!strings.Contains(err.Error(), inflight.ToSettle) {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestAdmissionThatComesBackFailsRelease(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := printer{&out}.restored([]string{"webhook/hold", "binding/stays"}, nil)
	if err == nil || !strings.Contains(err.Error(), "webhook/hold and binding/stays was created again") ||
		!strings.Contains(out.String(), "binding/stays was deleted") {
		t.Errorf("%v, printed %q", err, out.String())
	}
	if err := (printer{&out}).restored(nil, nil); err != nil {
		t.Errorf("without such objects: %v", err)
	}
}
