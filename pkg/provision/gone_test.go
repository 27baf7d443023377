package provision

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// LeaseOf returns one Lease for all entries.
func (l *processLog) LeaseOf(string) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "driver", Name: "log-0",
		UID: "lease"}
}

// toldOn is an EventRecorder that keeps "kind namespace/name: reason: message" of each Event.
type toldOn struct {
	record.FakeRecorder
	mu     sync.Mutex
	events []string
}

func (r *toldOn) Event(on runtime.Object, _, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ref, ok := on.(*v1.ObjectReference); ok {
		r.events = append(r.events, fmt.Sprintf("%s %s/%s: %s: %s", ref.Kind, ref.Namespace, ref.Name, reason, message))
	}
}

// has reports whether an Event has this beginning and contains the words.
func (r *toldOn) has(begin, words string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.events {
		if strings.HasPrefix(event, begin) && strings.Contains(event, words) {
			return true
		}
	}
	return false
}

// TestEventsOfAGoneClaimAreOnTheLease: the claim's namespace may be gone, too. Events of each entry are on the Lease,
// independently of the others' Events.
func TestEventsOfAGoneClaimAreOnTheLease(t *testing.T) {
	w, events := newWorld(t), &toldOn{}
	w.failing(true, class(errclass.Uncertain))
	w.start(Config{Events: events})
	w.makeClaim()
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = "second", "u2" })
	w.wait("both volumes are made unseen", func() bool { return len(w.onDisk()) == 2 })
	w.wait("the claim is told", func() bool {
		return events.has("PersistentVolumeClaim ns/data: ProvisioningOutcomeUnknown", "")
	})
	if events.has("Lease", "") {
		t.Errorf("what concerns a claim that exists is told on the Lease: %q", events.events)
	}
	for _, name := range []string{"data", "second"} {
		w.must(w.client.CoreV1().PersistentVolumeClaims("ns").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, of := range []string{"Claim ns/data, which is gone, volume pvc-u1: ",
		"Claim ns/second, which is gone, volume pvc-u2: "} {
		w.wait("the Lease tells of it", func() bool {
			return events.has("Lease driver/log-0: ProvisioningOutcomeUnknown: "+of, "CreateVolume was called for this claim")
		})
	}
	w.failing(false, nil)
	w.wait("nothing is in flight", w.settled)
}
