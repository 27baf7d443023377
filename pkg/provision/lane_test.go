package provision

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// TestHangingVolumesLeaveWorkersToOthers: the calls of twice as many volumes as workers hang, but a claim whose first
// call failed still gets its volume. Waiting volumes get their turn when a hanging call ends.
func TestHangingVolumesLeaveWorkersToOthers(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	calls, hanging, end := map[string]int{}, map[string]bool{}, make(chan struct{})
	w.call = func(volume string) error {
		mu.Lock()
		calls[volume]++
		first := calls[volume] == 1
		mu.Unlock()
		switch {
		case first && volume == "pvc-u1":
			return errclass.Mark(errclass.Uncertain, status.Error(codes.Unavailable, "the connection is lost"))
		case first:
			return errclass.Mark(errclass.Uncertain, status.Error(codes.DeadlineExceeded, "no answer"))
		case volume == "pvc-u1":
			return nil
		}
		mu.Lock()
		hanging[volume] = true
		mu.Unlock()
		<-end
		return errclass.Mark(errclass.Uncertain, status.Error(codes.DeadlineExceeded, "no answer"))
	}
	p := w.start(Config{})
	t.Cleanup(func() { close(end) })
	for i := range 2 * p.provisioner.cfg.Workers {
		w.makeClaim(func(c *v1.PersistentVolumeClaim) {
			c.Name = fmt.Sprintf("hangs-%d", i)
			c.UID = types.UID(c.Name)
		})
	}
	w.wait("as many calls hang as may", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(hanging) == 1 && p.provisioner.slow.Waiting() == 3
	})
	w.makeClaim()
	w.wait("a claim whose first call failed has its PV", func() bool { return w.pv() != nil })
	mu.Lock()
	if len(hanging) != 1 || calls["pvc-u1"] != 2 {
		t.Errorf("%v hang; calls %v", hanging, calls)
	}
	mu.Unlock()
	end <- struct{}{}
	w.wait("another volume is asked for", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(hanging) > 1
	})
}

func TestIsSlow(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		took time.Duration
		want bool
	}{
		"an answer at once":           {status.Error(codes.Internal, "no"), 0, false},
		"an answer after a second":    {status.Error(codes.Internal, "no"), controller.SlowTry, true},
		"no answer":                   {fmt.Errorf("call: %w", status.Error(codes.DeadlineExceeded, "late")), 0, true},
		"no answer of the API server": {fmt.Errorf("read: %w", context.DeadlineExceeded), 0, true},
		"an error of no call at all":  {errors.New("no class"), 0, false},
		"no answer, with its class":   {errclass.Mark(errclass.Uncertain, status.Error(codes.DeadlineExceeded, "")), 0, true},
	} {
		if got := isSlow(c.err, c.took); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
