package podsafety

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Each operand of a condition counts by itself.

func TestReadsCountOnlyAfterPodRead(t *testing.T) {
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

func TestUnmountShown(t *testing.T) {
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
		"the node was away":    {facts(finishedFor(0, true), func(f *Facts) { f.Sight.NodeAway = true }), false},
		"a tainted node":       {facts(finishedFor(0, true), seen(objects.NodeTaintedReady)), false},
		"a node out of sight":  {facts(finishedFor(0, true), seen(objects.NodeUnseen)), false},
		"a node that is away":  {facts(finishedFor(0, true), seen(objects.NodeNotReady)), false},
		"an outage since then": {
			facts(finishedFor(time.Hour, true), storage(Storage{Since: ago(time.Hour - time.Second)})), false},
		"an outage before that": {
			facts(finishedFor(time.Hour, true), storage(Storage{Since: ago(time.Hour)})), true},
	} {
		if got := c.facts.unmountShown(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSameMachine(t *testing.T) {
	t.Parallel()
	of := func(alter func(*Facts)) Facts { return facts(refusedFor(time.Minute), alter) }
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"since before a kubelet could know the pod": {of(func(*Facts) {}), true},
		"the pod may be older than that":            {of(func(f *Facts) { f.Sight.Unread = time.Time{} }), false},
		"as old as that":                            {of(func(f *Facts) { f.Storage.Since = f.Sight.Unread }), false},
		"an outage since":                           {of(func(f *Facts) { f.Storage.Since = ago(time.Minute) }), false},
		"an outage":                                 {of(func(f *Facts) { f.Storage.Away = true }), false},
		"a node that was never seen":                {of(func(f *Facts) { f.Storage.Since = time.Time{} }), false},
		"a machine that is not known":               {of(func(f *Facts) { f.Storage.Machine = objects.Machine{} }), false},
	} {
		if got := c.facts.sameMachine(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestHeartbeatShown(t *testing.T) {
	t.Parallel()
	of := func(alter func(*Facts)) Facts { return facts(refusedFor(time.Minute), live, heartbeats(8), alter) }
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"another one":       {of(func(*Facts) {}), true},
		"an earlier one":    {of(func(f *Facts) { f.Node.Heartbeat = 6 }), true},
		"the same one":      {of(func(f *Facts) { f.Node.Heartbeat = 7 }), false},
		"none":              {of(func(f *Facts) { f.Node.Heartbeat = 0 }), false},
		"none before":       {of(func(f *Facts) { f.Sight.Heartbeat = 0 }), false},
		"another machine's": {of(func(f *Facts) { f.Node.Machine = machine("other") }), false},
		"another boot's":    {of(func(f *Facts) { f.Node.BootID = "other" }), false},
		"not Ready":         {of(func(f *Facts) { f.Node.Ready = objects.ReadyUnknown }), false},
		"False":             {of(func(f *Facts) { f.Node.Ready = objects.ReadyFalse }), false},
	} {
		if got := c.facts.heartbeatShown(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Another machine under the name of a node is an obstacle, like an outage.
func TestStoragesRememberMachines(t *testing.T) {
	t.Parallel()
	s := Storages{}
	for i, step := range []struct {
		before, after objects.NodeSeen
		machine       objects.Machine
		boot          string
		at            time.Time
		want          Storage
	}{
		{objects.NodeAbsent, objects.NodeReady, machine("m"), "b", ago(time.Hour), Storage{Machine: machine("m"),
			BootID: "b", Since: ago(time.Hour)}},
		{objects.NodeReady, objects.NodeReady, machine("m"), "b", ago(time.Minute), Storage{Machine: machine("m"),
			BootID: "b", Since: ago(time.Hour)}},
		{objects.NodeReady, objects.NodeReady, machine("n"), "b", ago(time.Second), Storage{Machine: machine("n"),
			BootID: "b", Since: ago(time.Second)}},
		{objects.NodeReady, objects.NodeReady, machine("n"), "c", ago(time.Millisecond), Storage{Machine: machine("n"),
			BootID: "c", Since: ago(time.Millisecond)}},
		{objects.NodeReady, objects.NodeNotReady, machine("n"), "c", now(), Storage{Machine: machine("n"),
			BootID: "c", Since: now(), Away: true}},
		{objects.NodeNotReady, objects.NodeAbsent, objects.Machine{}, "", now(), Storage{Since: now(), Away: true,
			absent: true}},
	} {
		s.sawState("a", step.before, step.after, step.at)
		if s.sawMachine("a", step.machine, step.boot, step.at); s["a"] != step.want {
			t.Errorf("step %d: %+v", i, s)
		}
	}
}

func TestRebootOfFencedNode(t *testing.T) {
	of := func(alter func(*objects.Fence)) func(*Facts) {
		return func(f *Facts) {
			fence(ofVolumes("boot-0"))(f)
			alter(&f.Fence)
		}
	}
	all := of(func(*objects.Fence) {})
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"after the fence":    {facts(live, node(ready()), all), true},
		"as far as is known": {facts(live, all), false},
		"by a read that is old": {
			facts(live, node(ready()), all, func(f *Facts) { f.NodeRead = old(3) }), false},
		"by a fence of long ago": {
			facts(live, node(ready()), all, func(f *Facts) { f.FenceRead = old(2) }), false},
		"by a read from before the fence": {
			facts(live, node(ready()), all, func(f *Facts) { f.FenceRead = read(4) }), false},
		"by reads from before the pod": {
			facts(live, node(ready()), all, func(f *Facts) { f.PodRead = read(4) }), false},
		"of a fence that ends": {
			facts(live, node(ready()), of(func(f *objects.Fence) { f.InForce = false })), false},
		"of a machine that is off": {
			facts(live, node(ready()), fence(off("boot-0"))), false},
		"a node without a boot ID": {
			facts(live, node(objects.Node{Found: true, Ready: objects.ReadyTrue}), all), false},
		"not at all": {
			facts(live, node(ready()), of(func(f *objects.Fence) { f.BootID = "boot" })), false},
		"another machine has the name": {
			facts(live, node(ready()), of(func(f *objects.Fence) { f.Machine.SystemUUID = "uuid" })), false},
		"the same machine": {facts(live, node(objects.Node{Found: true, BootID: "boot",
			Machine: objects.Machine{SystemUUID: "uuid"}}),
			of(func(f *objects.Fence) { f.Machine.SystemUUID = "uuid" })), true},
	} {
		if c.facts.Storage.Fenced = true; c.facts.hindered(now()) == c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

// A pod of the new boot ends as on any other node: the reboot has unmounted nothing of it.
func TestPodOfNewBootOfFencedNode(t *testing.T) {
	t.Parallel()
	booted := func(f *Facts) { fence(ofVolumes("boot-0"))(f); f.Storage.Fenced = true }
	for name, c := range map[string]struct {
		facts Facts
		want  Decision
	}{
		"it has just ended": {facts(pod(ended), live, node(ready()), booted, finishedFor(0, true)),
			waitFor(ReasonWaitsForUnmount, overdueAfter)},
		"and was terminating before the fence": {
			facts(pod(ended), live, node(ready()), booted, finishedFor(0, true),
				func(f *Facts) { f.Fence.SinceTerminating = true }), waitFor(ReasonWaitsForUnmount, overdueAfter)},
		"its kubelet shows the unmount": {facts(pod(ended), pod(noGrace), live, node(ready()), booted,
			finishedFor(0, true)), step(RemoveFinalizer, ReasonFinished)},
		"its grace was taken before": {facts(pod(ended), pod(noGrace), live, node(ready()), booted,
			finishedFor(0, false)), waitFor(ReasonWaitsForUnmount, DefaultUnmountGrace)},
	} {
		if d := Decide(c.facts, now()); d != c.want {
			t.Errorf("%s: %+v, want %+v", name, d, c.want)
		}
	}
}

func TestUnmountWaitStartsAtEndOfFence(t *testing.T) {
	const after = DefaultUnmountGrace - 20*time.Second
	for name, c := range map[string]struct {
		facts Facts
		want  time.Duration
	}{
		"no fence": {facts(finishedFor(20*time.Second, false)), after},
		"a fence that ended before": {
			facts(finishedFor(20*time.Second, false), storage(Storage{Since: ago(time.Hour)})), after},
		"a fence that ended after": {
			facts(finishedFor(time.Hour, false), storage(Storage{Since: ago(20 * time.Second)})), after},
		"one in the way": {
			facts(finishedFor(time.Hour, false), storage(Storage{Fenced: true})), DefaultUnmountGrace},
		"the pod was not seen":     {facts(storage(Storage{Since: ago(time.Hour)})), DefaultUnmountGrace},
		"the grace was taken last": {facts(finishedFor(time.Hour, false), noGraceFor(20*time.Second)), after},
	} {
		if got := c.facts.unmountIn(now()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestStoragesRememberFencesOfVolumes(t *testing.T) {
	s := Storages{}
	for _, step := range []struct {
		fenced bool
		at     time.Time
		want   Storage
	}{
		{false, ago(time.Hour), Storage{}},
		{true, ago(time.Minute), Storage{Fenced: true}},
		{true, ago(time.Second), Storage{Fenced: true}},
		{false, now(), Storage{Since: now()}},
		{false, now().Add(time.Second), Storage{Since: now()}},
	} {
		if s.Saw("a", step.fenced, step.at); s["a"] != step.want || s["b"] != (Storage{}) {
			t.Errorf("%+v", s)
		}
	}
}

func TestStoragesRememberOutages(t *testing.T) {
	s := Storages{}
	for i, step := range []struct {
		before, after objects.NodeSeen
		at            time.Time
		want          Storage
	}{
		{objects.NodeAbsent, objects.NodeReady, ago(time.Hour), Storage{Since: ago(time.Hour)}},
		{objects.NodeReady, objects.NodeTaintedReady, ago(50 * time.Minute), Storage{Since: ago(time.Hour)}},
		{objects.NodeTaintedReady, objects.NodeNotReady, ago(time.Minute), Storage{Away: true, Since: ago(time.Minute)}},
		{objects.NodeNotReady, objects.NodeReady, ago(time.Second), Storage{Since: ago(time.Second)}},
		{objects.NodeReady, objects.NodeAbsent, now(), Storage{Away: true, Since: now(), absent: true}},
	} {
		if s.sawState("a", step.before, step.after, step.at); s["a"] != step.want || s["b"] != (Storage{}) {
			t.Errorf("step %d: %+v", i, s)
		}
	}
	s.Saw("a", true, now().Add(time.Second))
	if want := (Storage{Fenced: true, Away: true, Since: now(), absent: true}); s["a"] != want {
		t.Errorf("a fence begins during the outage: %+v", s)
	}
	s.Saw("a", false, now())
	if want := (Storage{Away: true, Since: now(), absent: true}); s["a"] != want {
		t.Errorf("a fence ends during the outage: %+v", s)
	}
	s.Saw("fenced", true, now())
	s.sawState("b", objects.NodeReady, objects.NodeAbsent, now().Add(remembered))
	if len(s) != 3 {
		t.Errorf("after a week: %+v", s)
	}
	if s.sawState("b", objects.NodeAbsent, objects.NodeReady, now().Add(remembered+1)); len(s) != 3 {
		t.Errorf("after more than a week, and no Node was deleted: %+v", s)
	}
	s.sawState("b", objects.NodeReady, objects.NodeAbsent, now().Add(remembered+1))
	if _, kept := s["a"]; kept || len(s) != 2 || !s["fenced"].Fenced {
		t.Errorf("after more than a week: %+v", s)
	}
}

// A node can be away for longer than a week. Without its record, a pod that ended there would count as unmounted.
func TestStoragesRememberNodeThatIsAway(t *testing.T) {
	s := Storages{}
	s.sawState("away", objects.NodeReady, objects.NodeNotReady, now())
	s.sawState("back", objects.NodeNotReady, objects.NodeReady, now())
	later := now().Add(remembered + 1)
	s.sawState("b", objects.NodeReady, objects.NodeAbsent, later)
	if _, kept := s["back"]; kept || len(s) != 2 || !s["away"].Away {
		t.Errorf("%+v", s)
	}
	s.sawState("away", objects.NodeNotReady, objects.NodeAbsent, later)
	s.sawState("b", objects.NodeReady, objects.NodeAbsent, later.Add(remembered+1))
	if _, kept := s["away"]; kept {
		t.Errorf("%+v", s)
	}
}

func TestUnmountGraceDefault(t *testing.T) {
	if got := (Rules{}).unmountGrace(); got != DefaultUnmountGrace {
		t.Errorf("not set: %s", got)
	}
	if got := (Rules{UnmountGrace: time.Minute}).unmountGrace(); got != time.Minute {
		t.Errorf("set: %s", got)
	}
}

func TestFenceCovers(t *testing.T) {
	for name, c := range map[string]struct {
		fence objects.Fence
		want  bool
	}{
		"off":                {off("boot"), true},
		"off, released":      {objects.Fence{Coverage: v1alpha1.CoversUntilUnfenced}, false},
		"rebooted after":     {objects.Fence{InForce: true, Coverage: v1alpha1.CoversReboot, SinceTerminating: true}, true},
		"rebooted before":    {objects.Fence{InForce: true, Coverage: v1alpha1.CoversReboot}, false},
		"volumes":            {objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes, SinceTerminating: true}, false},
		"unknown":            {objects.Fence{InForce: true, SinceTerminating: true}, false},
		"rebooted, long ago": {objects.Fence{Coverage: v1alpha1.CoversReboot, SinceTerminating: true}, false},
	} {
		if got, ends := c.fence.MayEndPod(), c.fence.EndsPod(down()); got != c.want || ends != c.want {
			t.Errorf("%s: covers %t, ends the pod %t", name, got, ends)
		}
	}
}

func TestNodeMayProve(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"Ready": {facts(seen(objects.NodeReady)), false}, "not Ready": {facts(seen(objects.NodeNotReady)), false},
		"unseen": {facts(seen(objects.NodeUnseen)), true}, "tainted": {facts(seen(objects.NodeTainted)), true},
		"tainted, Ready": {facts(seen(objects.NodeTaintedReady)), true},
		"gone":           {facts(seen(objects.NodeAbsent)), true},
		"fenced":         {facts(seen(objects.NodeNotReady), func(f *Facts) { f.FenceSeen = true }), true},
	} {
		if got := c.facts.nodeMayProve(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
