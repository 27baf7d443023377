//go:build linux

package nodes_test

import (
	"os"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
)

func TestPool(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.V1_36, controlplane.Options{Scheduler: true, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer cp.Stop()
	begun := time.Now()
	pool, err := nodes.Start(t.Context(), cp, nodes.Options{Names: []string{"node-1", "node-2"}, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("started in", time.Since(begun))
	defer func() {
		begun := time.Now()
		if err := pool.Stop(); err != nil {
			t.Error(err)
		}
		t.Log("stopped in", time.Since(begun))
	}()
	begun = time.Now()
	if err := pool.Node("node-1").Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log("rebooted in", time.Since(begun))
}
