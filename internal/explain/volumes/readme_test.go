package volumes

import (
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// TestREADMEShowsExplanation compares README.md with the explanation. Each line shown there has to be one of its
// lines, in this order, or the beginning of a line before "…".
func TestREADMEShowsExplanation(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const command = "$ kubectl reclaim explain pv/pvc-8a5c\n"
	_, rest, found := strings.Cut(string(text), command)
	shown, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatalf("README.md has no block that begins with %q", command)
	}
	lines := strings.Split(explainedInREADME(), "\n")
	count := 0
	for line := range strings.Lines(shown) {
		line = strings.TrimSuffix(line, "\n")
		count++
		for {
			if len(lines) == 0 {
				t.Fatalf("README.md shows %q, which is not in, or not in this order:\n%s", line, explainedInREADME())
			}
			next := lines[0]
			lines = lines[1:]
			begins, cut := strings.CutSuffix(line, "…")
			if next == line || cut && strings.HasPrefix(next, begins) {
				break
			}
		}
	}
	if count < 8 {
		t.Errorf("README.md shows %d lines", count)
	}
}

// explainedInREADME is a PV whose volume is attached to a node that is not ready.
func explainedInREADME() string {
	f := released()
	f.PV.Name, f.PV.Spec.ClaimRef.Namespace = "pvc-8a5c", "shop"
	f.terminate(3 * time.Hour)
	f.PVs = explain.Found([]explain.PV{explain.PVOf(f.PV)})
	attachment := f.attach(nil)
	name := "pvc-8a5c"
	attachment.Name, attachment.Spec.NodeName, attachment.Spec.Source.PersistentVolumeName = "csi-40b1", "worker-2", &name
	at := metav1.NewTime(now().Add(-time.Minute))
	attachment.DeletionTimestamp = &at
	f.Nodes["worker-2"] = explain.Found(node(v1.ConditionUnknown))
	f.lease("disk-csi-example-com", "disk-controller-0", time.Second)
	return ExplainPV(f).Text(false)
}
