package podhold

import (
	"testing"
	"time"
)

// Each operand of a condition counts by itself.

func TestWhichReadsCountAfterThePod(t *testing.T) {
	f := Facts{PodRead: read(2)}
	for order, want := range map[int]bool{0: false, 1: false, 2: false, 3: true} {
		if got := f.after(read(order), now()); got != want {
			t.Errorf("read %d: %t", order, got)
		}
	}
	if f.after(old(3), now()) {
		t.Error("one that is too old counts")
	}
}

func TestWhenTheUnmountIsShown(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"by the kubelet":     {facts(finishedFor(0, true)), true},
		"grace was 0 before": {facts(finishedFor(0, false)), false},
		"we have forced it":  {facts(finishedFor(0, true), func(f *Facts) { f.Sight.Forced = true }), false},
		"confirmed":          {facts(finishedFor(0, true), pod(confirmed)), false},
		"confirmed, wrongly": {facts(finishedFor(0, true), pod(confirmedOther)), false},
		"force deletions may not be refused": {
			facts(finishedFor(0, true), func(f *Facts) { f.ForceRefusedSince = time.Time{} }), false},
		"they were not refused when it ended": {
			facts(finishedFor(time.Hour, true), func(f *Facts) { f.ForceRefusedSince = ago(time.Hour - time.Second) }), false},
		"they are refused since then": {
			facts(finishedFor(time.Hour, true), func(f *Facts) { f.ForceRefusedSince = ago(time.Hour) }), true},
		"not in its namespace": {facts(finishedFor(0, true), func(f *Facts) { f.Mode = ModeWarn }), false},
		"a tainted node":       {facts(finishedFor(0, true), seen(NodeTaintedReady)), false},
		"a node out of sight":  {facts(finishedFor(0, true), seen(NodeUnseen)), false},
		"a node that is away":  {facts(finishedFor(0, true), seen(NodeNotReady)), false},
	} {
		if got := c.facts.unmountShown(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWhatTheUnmountGraceIs(t *testing.T) {
	if got := (Rules{}).unmountGrace(); got != DefaultUnmountGrace {
		t.Errorf("not set: %s", got)
	}
	if got := (Rules{UnmountGrace: time.Minute}).unmountGrace(); got != time.Minute {
		t.Errorf("set: %s", got)
	}
}

func TestWhichFencesCover(t *testing.T) {
	for name, c := range map[string]struct {
		fence FenceFacts
		want  bool
	}{
		"off":                {FenceFacts{InForce: true, Coverage: CoversUntilUnfenced, BootID: "boot"}, true},
		"off, released":      {FenceFacts{Coverage: CoversUntilUnfenced}, false},
		"rebooted after":     {FenceFacts{InForce: true, Coverage: CoversReboot, SinceTerminating: true}, true},
		"rebooted before":    {FenceFacts{InForce: true, Coverage: CoversReboot}, false},
		"volumes":            {FenceFacts{InForce: true, Coverage: CoversVolumes, SinceTerminating: true}, false},
		"nobody knows":       {FenceFacts{InForce: true, SinceTerminating: true}, false},
		"rebooted, long ago": {FenceFacts{Coverage: CoversReboot, SinceTerminating: true}, false},
	} {
		if got, ends := c.fence.covers(), c.fence.EndsPod(down()); got != c.want || ends != c.want {
			t.Errorf("%s: covers %t, ends the pod %t", name, got, ends)
		}
	}
}

func TestWhichNodesAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"Ready": {facts(seen(NodeReady)), false}, "not Ready": {facts(seen(NodeNotReady)), false},
		"unseen": {facts(seen(NodeUnseen)), true}, "tainted": {facts(seen(NodeTainted)), true},
		"tainted, Ready": {facts(seen(NodeTaintedReady)), true},
		"gone":           {facts(seen(NodeAbsent)), true},
		"fenced":         {facts(seen(NodeNotReady), func(f *Facts) { f.FenceSeen = true }), true},
	} {
		if got := c.facts.nodeMayProve(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
