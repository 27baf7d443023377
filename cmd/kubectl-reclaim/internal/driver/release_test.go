package driver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var root = commandline.Root(cli.Root(Commands))

func TestPrintReleasePlan(t *testing.T) {
	p := volumes.Plan{Driver: "d", Role: "owner", Abandoned: []string{"pv-0"}, Obstacles: []string{"stop it"},
		Unread: []string{"Leases"}, InFlight: []explain.InFlight{{Volume: "pvc-1", Claim: "shop/\x1b[2Jdata"}}}
	for i := range 12 {
		p.PVs = append(p.PVs, fmt.Sprintf("pv-%d", i))
	}
	var out bytes.Buffer
	must.OK(t, writePlan(&out, p))
	explained.Expect(t, out.String(), "12 PVs of d", "  pv-9\n  and 2 more\n", "PV pv-0 is terminating", "\n! stop it",
		"Not read: Leases", "for claim shop/^[[2Jdata", "!\x1b")
}

func TestReleaseNamesCluster(t *testing.T) {
	t.Parallel()
	const cluster = "\nCluster prod-eu (http://127.0.0.1:"
	for _, c := range []struct {
		flag string
		err  error
		want []string
	}{
		{"--workers=1", cli.ErrNotConfirmed, []string{cluster, ").\nRelease 2 PVs of " + commandline.Driver + "? [y/N]"}},
		{"--dry-run", nil, []string{cluster, "!Release 2 PVs"}},
	} {
		out, err := root.Against(t, commandline.SomethingWaits(t), &commandline.Typing{Text: strings.NewReader("n\n")},
			"release", "--driver="+commandline.Driver, c.flag)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.flag, err, c.err)
		}
		explained.Expect(t, out, c.want...)
	}
}

func TestReleaseNamesWayOut(t *testing.T) {
	t.Parallel()
	err := inFlight(volumes.Plan{Driver: "d", InFlight: []explain.InFlight{{Volume: "pvc-1"}}})
	if err == nil || !strings.Contains(err.Error(), inflight.ToSettle) || inFlight(volumes.Plan{}) != nil {
		t.Error(err)
	}
}

func TestReleaseWithoutPVsFailsAtObstacle(t *testing.T) {
	t.Parallel()
	begins, err := begin(volumes.Plan{Driver: "d", Obstacles: []string{"part of the log cannot be read"}})
	if begins || err == nil || !strings.Contains(err.Error(), "part of the log cannot be read") {
		t.Errorf("%v, %v", begins, err)
	}
	if begins, err := begin(volumes.Plan{Driver: "d"}); begins || err != nil {
		t.Errorf("nothing to release: %v, %v", begins, err)
	}
	if begins, err := begin(volumes.Plan{Driver: "d", PVs: []string{"pv"}}); !begins || err != nil {
		t.Errorf("a PV to release: %v, %v", begins, err)
	}
}

// The question may stay open while a process begins to act for the driver, or a PV is deleted.
func TestReleasePlansAgainAfterQuestion(t *testing.T) {
	t.Parallel()
	shown := volumes.Plan{Driver: "d", PVs: []string{"a", "b", "c"}, Abandoned: []string{"a"}}
	for name, c := range map[string]struct {
		now  volumes.Plan
		says string
	}{
		"nothing has changed": {shown, ""},
		"a PV is released":    {volumes.Plan{Driver: "d", PVs: []string{"a"}}, ""},
		"all PVs are gone":    {volumes.Plan{Driver: "d"}, ""},
		"a process holds the Lease": {
			volumes.Plan{Driver: "d", PVs: shown.PVs, Obstacles: []string{"stop csi-reclaimer"}}, "stop csi-reclaimer"},
		"another PV is terminating": {volumes.Plan{Driver: "d", PVs: shown.PVs, Abandoned: []string{"a", "c"}}, "PV c"},
	} {
		err := since(shown, c.now)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out)
	for i := range 40 {
		b.show(i, min(i, 1), 41)
	}
	b.show(40, 1, 41)
	b.end()
	if lines := strings.Count(out.String(), "\n"); lines != 11 || !strings.HasSuffix(out.String(),
		"40 of 41 released, 1 failed\n") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	out.Reset()
	b = &bar{w: &out, redraw: true, drawn: -1}
	b.show(1, 0, 2)
	b.show(1, 0, 2)
	b.show(2, 0, 2)
	b.end()
	want := "\r[" + strings.Repeat("#", 20) + strings.Repeat(".", 20) + "] 1 of 2 released\r[" +
		strings.Repeat("#", 40) + "] 2 of 2 released\n"
	if out.String() != want {
		t.Errorf("drawn %q", out.String())
	}
}
