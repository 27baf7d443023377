//go:build controlplane && unix

package fencing

import (
	"slices"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// TestTaintOfFencedVolumes plays a node that is fenced from volumes, and comes back without and with a boot.
func TestTaintOfFencedVolumes(t *testing.T) {
	b := newBench(t, "volumes")
	b.ask(storage())
	f := b.fence()
	at := metav1.Now()
	f.Finalizers = []string{fencing.Finalizer}
	f, err := b.clients.own.Fences.Update(t.Context(), f, metav1.UpdateOptions{})
	b.must(err)
	f.Status = v1alpha1.NodeFenceStatus{Phase: v1alpha1.PhaseFenced,
		Attempts: []v1alpha1.Attempt{{Number: 1, Agent: "net", StartedAt: at, EndedAt: &at, Result: v1alpha1.ResultProven}},
		Proof: &v1alpha1.Proof{Attempt: 1, Agent: "net", Covers: v1alpha1.CoversVolumes, ProvenAt: at, BootID: "boot-1",
			Volumes: []v1alpha1.CoveredVolumes{{Agent: "net", Driver: "driver", Volumes: v1alpha1.VolumesAll}}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue, Reason: "Fenced",
			LastTransitionTime: at}}}
	_, err = b.clients.own.Fences.UpdateStatus(t.Context(), f, metav1.UpdateOptions{})
	b.must(err)
	b.clock = testclock.NewFakeClock(time.Now()) // a fenced node is read each 10 seconds
	recorder := record.NewFakeRecorder(100)
	b.start(Config{Settings: controllers.Settings{Events: recorder, Clock: b.clock}})
	want := v1.Taint{Key: "csi-reclaimer.io/volumes-fenced", Effect: v1.TaintEffectNoSchedule}
	shunned := func() bool { return slices.Equal(b.taints(), []v1.Taint{want}) }
	b.until("new pods stay away", shunned)
	b.report(v1.ConditionTrue, "boot-1")
	b.renew()
	b.wantEvent(recorder, "NeedsReboot")
	_, err = b.clients.Core.Nodes().Patch(t.Context(), b.node, types.MergePatchType, []byte(`{"spec":{"taints":null}}`),
		metav1.PatchOptions{})
	b.must(err)
	b.until("new pods stay away again", shunned)
	var marked []string // by --release-finalizers
	b.must(b.eachTainted(t.Context(), func(name string, _ objects.Node) { marked = append(marked, name) }))
	if !slices.Contains(marked, b.node) {
		t.Errorf("the nodes with a taint are %q", marked)
	}
	b.report(v1.ConditionTrue, "boot-2")
	b.until("new pods are welcome", func() bool { return len(b.taints()) == 0 })
	if b.is(v1alpha1.ConditionReturned) {
		t.Error("the fence has ended, although no agent could undo it")
	}
}
