//go:build unix

package pods

import (
	"testing"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage/stagetest"
)

func TestJudgeSharedClaims(t *testing.T) {
	stagetest.Judged(t, LockAct().Scenarios, map[string]func(*lockOutcome){
		"the second pod runs too early, or waits, wrongly": func(o *lockOutcome) {
			o.pods = map[string]string{bothRun: oneByOne, oneByOne: bothRun}[o.pods]
		},
		"two pods write, or one does, wrongly": func(o *lockOutcome) { o.data += " not" },
		"the plugin names another pod":         func(o *lockOutcome) { o.plugin = notHolder },
	})
}

func TestJudgeLocks(t *testing.T) {
	first, second := &v1.Pod{Spec: v1.PodSpec{NodeName: cluster.Node1}}, &v1.Pod{}
	first.UID, second.UID = "first", "second"
	right := func() locks.List {
		return locks.List{Locks: []locks.Lock{{HolderUID: "first", Node: cluster.Node1,
			Waiting: []locks.Waiting{{UID: "second"}}}}}
	}
	if got := judgeLocks(right(), first, second); got != holder {
		t.Errorf("all as wanted: %q", got)
	}
	for name, change := range map[string]func(*locks.List){
		"no lock":         func(l *locks.List) { l.Locks = nil },
		"two locks":       func(l *locks.List) { l.Locks = append(l.Locks, l.Locks[0]) },
		"another holder":  func(l *locks.List) { l.Locks[0].HolderUID = "second" },
		"another node":    func(l *locks.List) { l.Locks[0].Node = cluster.Node2 },
		"no pod waits":    func(l *locks.List) { l.Locks[0].Waiting = nil },
		"another waits":   func(l *locks.List) { l.Locks[0].Waiting[0].UID = "third" },
		"too many wait":   func(l *locks.List) { l.Locks[0].Waiting = append(l.Locks[0].Waiting, locks.Waiting{}) },
		"the first waits": func(l *locks.List) { l.Locks[0].Waiting[0].UID = "first" },
	} {
		l := right()
		change(&l)
		if got := judgeLocks(l, first, second); got != notHolder {
			t.Errorf("%s: %q", name, got)
		}
	}
}
