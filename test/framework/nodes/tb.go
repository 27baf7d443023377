//go:build linux

package nodes

import (
	"context"
	"os"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// failedLogLines is how much of a kubelet's log a failed test shows.
const failedLogLines = 40

// TB is the part of testing.TB that ForTest needs, so that programs do not link package testing.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// RequiredVariable, set to "required", has tests fail on a machine that cannot run nodes. Otherwise they are skipped.
const RequiredVariable = "NODES"

// SkipUnlessSupported skips the test on a machine that cannot run nodes, or fails it: see [RequiredVariable].
func SkipUnlessSupported(t interface {
	TB
	Skipf(format string, args ...any)
}) {
	t.Helper()
	switch err := Supported(); {
	case err == nil:
	case os.Getenv(RequiredVariable) == "required":
		t.Fatalf("%v", err)
	default:
		t.Skipf("%v", err)
	}
}

// ForTest starts nodes that end with the test, and removes their objects then. It shows the logs of the kubelets if
// the test has failed.
func ForTest(t TB, cluster Cluster, o Options) *Pool {
	t.Helper()
	p, err := Start(t.Context(), cluster, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		p.ShowLogs(t)
		if err := p.Stop(); err != nil {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		for _, n := range p.nodes {
			if err := fakenode.Remove(ctx, p.client, n.name); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
	return p
}

// ShowLogs shows the end of each kubelet's log if the test has failed.
func (p *Pool) ShowLogs(t TB) {
	for _, n := range p.nodes {
		if t.Failed() {
			t.Logf("log of the kubelet of %s:\n%s", n.name, n.KubeletLog(failedLogLines))
		}
	}
}

// DriverForTest starts a driver that ends with the test, and shows its log if the test has failed. Pods that use its
// volumes must be gone by then: register their cleanup later than this one.
func (p *Pool) DriverForTest(t TB, o DriverOptions) *Driver {
	t.Helper()
	d, err := p.StartDriver(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of external-attacher of %s:\n%s", o.Name, d.AttacherLog(failedLogLines))
		}
		if err := d.Stop(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return d
}
