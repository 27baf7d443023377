//go:build unix

package volumes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func TestTallyOfRequests(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	r := session.Round{Claims: session.Claims{Volumes: map[string]string{"data": "pv-1"}, Began: at(1)}, Deleted: at(100)}
	event := func(second int, user, verb, resource, name string, code int) controlplane.AuditEvent {
		return controlplane.AuditEvent{Received: at(second), User: user, Verb: verb, Resource: resource, Name: name,
			Code: code}
	}
	got := tallyOf([]controlplane.AuditEvent{
		event(2, "admin", "create", "persistentvolumeclaims", "", 201),
		event(3, "admin", "get", "configmaps", "marker-1", 404),
		event(3, "me", "list", "persistentvolumes", "", 200),
		event(3, "me", "watch", "persistentvolumes", "", 200),
		event(4, "me", "update", "leases", "disk-in-flight-0", 200),
		event(4, "me", "update", "leases", "disk", 200),
		event(5, "me", "get", "persistentvolumeclaims", "data", 200),
		event(5, "me", "create", "persistentvolumes", "", 201),
		event(5, "me", "create", "events", "", 201),
		event(6, "binder", "update", "persistentvolumeclaims", "data", 200),
		event(101, "admin", "delete", "persistentvolumeclaims", "data", 200),
		event(102, "binder", "update", "persistentvolumes", "pv-1", 200),
		event(103, "me", "get", "persistentvolumes", "pv-1", 200),
		event(103, "me", "get", "persistentvolumeclaims", "data", 404),
		event(104, "me", "delete", "persistentvolumes", "pv-1", 200),
		event(105, "me", "patch", "persistentvolumes", "pv-1", 404),
		event(106, "me", "patch", "persistentvolumes", "pv-of-another-round", 200),
		event(106, "me", "create", "events", "", 201),
		event(107, "me", "", "", "", 200),
	}, r, "me")
	want := tally{allBound: 6, allGone: 8, claimWrites: 2, reclaimCalls: 4, reclaimWrites: 2, missed: 1, kinds: got.kinds}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tally{})); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	if n := got.kinds["gone me get persistentvolumes "]; n != 1 {
		t.Errorf("reads of PVs: %d, want 1, of %v", n, got.kinds)
	}
}
