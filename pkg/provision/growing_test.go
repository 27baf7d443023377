package provision

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// TestTheDelayOfARefusedClaimGrows: our loop may look at a settled name between two tries, when the delay is over
// and the library has not come yet. How often the claim failed stays known until the claim is gone.
func TestTheDelayOfARefusedClaimGrows(t *testing.T) {
	const name, first, most = "pvc-u1", 10 * time.Millisecond, time.Hour
	w := newWorld(t)
	w.deleteClass() // nothing is provisioned
	w.makeClaim()
	p := w.start(Config{}).provisioner
	w.wait("the claim is in the cache", func() bool { return p.working() && p.claims.WholeByUID("u1") != nil })
	past := p.cfg.Clock.Now().Add(-time.Minute)
	p.tracker.note(inflight.Entry{Volume: name, Claim: inflight.Claim{Namespace: "ns", Name: "data", UID: "u1"}})
	p.tracker.failed(name, past, first, most)
	(&run{Controller: p, name: name, claimKey: key{"ns", "data", "u1"}}).handBack()
	if delay := p.tracker.failed(name, past, first, most); delay != 2*first {
		t.Errorf("the second delay is %v, want %v: the first failure is forgotten", delay, 2*first)
	}
	w.deleteClaim()
	w.wait("the name is forgotten with its claim", func() bool { return p.tracker.claimOf(name) == "" })
}
