package pvc

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRemovedPodKeepsItsNamesake(t *testing.T) {
	gone, there := web(v1.PodRunning), web(v1.PodRunning)
	there.UID = "later"
	u := newUsers()
	u.add(gone)
	u.add(there)
	u.remove(gone)
	if got := u.usage(ClaimOf(apiClaim("data", ""))); got != (Usage{By: "web-0"}) {
		t.Errorf("used by %+v, want the other pod of the name", got)
	}
}

// Each of these changes must enqueue the pod's claims, because no other event may.
func TestPodChanges(t *testing.T) {
	for sentence, change := range map[string]func(*Pod){
		"another pod of the name": func(p *Pod) { p.UID = "later" },
		"it is scheduled":         func(p *Pod) { p.Scheduled = !p.Scheduled },
		"it has ended":            func(p *Pod) { p.Ended = true },
		"it is shut down":         func(p *Pod) { p.ShutDown = true },
		"other claims":            func(p *Pod) { p.Claims = nil },
		"other ephemeral volumes": func(p *Pod) { p.Ephemeral = nil },
	} {
		before, now := web(v1.PodRunning), web(v1.PodRunning)
		if !before.same(now) {
			t.Error("a pod is not the same as itself")
		}
		if change(now); before.same(now) {
			t.Errorf("%s: nothing is taken to have changed", sentence)
		}
	}
}
