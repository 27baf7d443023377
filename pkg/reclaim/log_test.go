package reclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// restoredLog returns a log whose Leases are all copies.
func restoredLog(t *testing.T) *inflight.Log {
	t.Helper()
	var leases []runtime.Object
	for i := range inflight.Shards {
		leases = append(leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: fmt.Sprintf("log-%d", i), UID: "restored",
			Annotations: map[string]string{
				inflight.LabelLog: fmt.Sprintf(`{"version":1,"driver":%q,"uid":"the first one's"}`, driver),
			},
		}})
	}
	log, err := inflight.New(inflight.Config{
		Leases: fake.NewClientset(leases...).CoordinationV1(), Namespace: "kube-system", Name: "log", Driver: driver,
		Identity: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	must.OK(t, log.TakeOver(t.Context()))
	return log
}

// The Leases of a restored log may have an entry for any PV, so each PV waits. A Warning names the Lease and the
// remedy, and does not claim that an entry exists.
func TestRestoredLogKeepsVolumes(t *testing.T) {
	heard := &heard{}
	w, r := newWorldWith(t, Config{InFlight: restoredLog(t), Events: heard})
	again := r.reconcile(t.Context(), "pv")
	w.expect(t)
	if retries := (controller.Backoff{First: r.cfg.RetryStart, Max: r.cfg.RetryMax}); again != retries.Retry() {
		t.Errorf("decided on again after %+v: no event shows that the log can be read again", again)
	}
	if !slices.Equal(heard.events, []string{"Warning InFlightLogUnreadable on PersistentVolume"}) {
		t.Fatalf("Events %q", heard.events)
	}
	for _, words := range []string{"Lease kube-system/log-", "a copy of another Lease", "Delete the Lease",
		"kubectl reclaim status"} {
		if !strings.Contains(heard.messages[0], words) {
			t.Errorf("%q is missing in %q", words, heard.messages[0])
		}
	}
	if waiting := r.recorder.Waiting(); waiting[reclaim.ReasonLogUnreadable] != 1 {
		t.Errorf("waiting: %v", waiting)
	}
}

// The wait ends although no entry does.
func TestReadableLogEndsWait(t *testing.T) {
	log := &inFlightLog{state: volume.InFlightUnreadable, problem: "Lease kube-system/log-1: a copy"}
	w, r := newWorldWith(t, Config{InFlight: log})
	r.reconcile(t.Context(), "pv")
	w.expect(t)
	log.state, log.problem = volume.InFlightSettled, ""
	r.reconcile(t.Context(), "pv")
	if !slices.Contains(w.diary, "delete volume") {
		t.Errorf("did %q", w.diary)
	}
}
