package controllers_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// deleter is the storage system of a driver.
type deleter struct{}

func (deleter) DeleteVolume(context.Context, string, map[string]string) error { return nil }

// noServer refuses each request, and counts them.
type noServer struct{ requests atomic.Int32 }

func (n *noServer) RoundTrip(*http.Request) (*http.Response, error) {
	n.requests.Add(1)
	return nil, errors.New("no server")
}

// release calls Release, and drops its result.
func release[R any](call func(context.Context) (R, error)) func(context.Context) error {
	return func(ctx context.Context) error { _, err := call(ctx); return err }
}

// TestReleaseFailsInDryRun covers each controller with a Release.
func TestReleaseFailsInDryRun(t *testing.T) {
	t.Parallel()
	var server noServer
	config, dry := &rest.Config{Transport: &server}, controllers.Settings{DryRun: true}
	guarded := inuse.Config{Settings: dry, Mode: inuse.ModeFull}
	for name, call := range map[string]func(context.Context) error{
		"reclaim": release(must.Get(reclaim.New(config, "disk.csi.example.com", deleter{},
			reclaim.Config{DryRun: true, Mode: reclaim.ModeRelease}))(t).Release),
		"intree":      release(must.Get(intree.New(config, intree.Config{Settings: dry}))(t).Release),
		"pv":          release(must.Get(pv.New(config, guarded))(t).Release),
		"pvc":         release(must.Get(pvc.New(config, pvc.Config{Config: guarded}))(t).Release),
		"podsafety":   release(must.Get(podsafety.New(config, podsafety.Config{Settings: dry}))(t).Release),
		"singlenode":  release(must.Get(singlenode.New(config, singlenode.Config{Settings: dry}))(t).Release),
		"statefulset": release(must.Get(statefulset.New(config, statefulset.Config{Settings: dry}))(t).Release),
		"fencing":     release(must.Get(fencing.New(config, fencing.Config{Settings: dry}))(t).Release),
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a controller without the check ends here
		if err := call(ctx); err == nil || !strings.Contains(err.Error(), "DryRun") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := server.requests.Load(); got > 0 {
		t.Errorf("%d requests were sent", got)
	}
}
