package provision

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// TestDelayOfRefusedClaimGrows: a name may be handled between two tries, while the claim cannot be provisioned. The
// number of its failures is kept until the claim is gone.
func TestDelayOfRefusedClaimGrows(t *testing.T) {
	const name, first, most = "pvc-u1", 10 * time.Millisecond, time.Hour
	w := newWorld(t)
	w.deleteClass() // so that no claim is provisioned
	w.makeClaim()
	p := w.start(Config{}).provisioner
	w.wait("the claim is in the cache", func() bool { return p.working() && p.claims.WholeByUID("u1") != nil })
	past := p.cfg.Clock.Now().Add(-time.Minute)
	p.tracker.note(inflight.Entry{Volume: name, Claim: inflight.Claim{Namespace: "ns", Name: "data", UID: "u1"}}, true)
	p.tracker.failed(name, past, first, most)
	p.try(t.Context(), name)
	p.tracker.failed(name, past, first, most)
	if delay := p.tracker.due(name, past); delay != 2*first {
		t.Errorf("the second delay is %v, want %v: the first failure is forgotten", delay, 2*first)
	}
	w.deleteClaim()
	w.wait("the name is forgotten with its claim", func() bool { return !p.tracker.knows(name) })
}
