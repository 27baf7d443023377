package request

import (
	"errors"
	"math/rand"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestPlanIsSteady checks that equal facts give equal plans, and that neither planning nor using the plan changes them.
func TestPlanIsSteady(t *testing.T) {
	all := func() Facts {
		return facts(zones, late, restored(), parameter("csi.storage.k8s.io/secret-name", "s"),
			parameter("csi.storage.k8s.io/secret-namespace", "v"), selected("n-b"),
			func(f *Facts) { f.Class.MountOptions, f.Settings.ExtraCreateMetadata = []string{"noatime"}, true })
	}
	f, untouched := all(), all()
	first := mustPlan(t, f)
	pv := must.Get(first.PV(answer(first)))(t)
	for range 10 {
		rand.Shuffle(len(f.Nodes), func(i, j int) { f.Nodes[i], f.Nodes[j] = f.Nodes[j], f.Nodes[i] })
		again, err := NewPlan(f)
		if err != nil || !proto.Equal(again.Request, first.Request) {
			t.Fatalf("another plan: %v, %v; before: %v", again.Request, err, first.Request)
		}
	}
	f.Nodes = untouched.Nodes
	if diff := cmp.Diff(untouched, f); diff != "" {
		t.Errorf("the facts were changed: %s", diff)
	}
	// Changes of a PV or a claim by the caller do not affect the plan.
	pv.Spec.CSI.VolumeAttributes["x"], pv.Spec.AccessModes[0], pv.Finalizers[0] = "y", "x", "x"
	f.Class.MountOptions[0], f.Claim.Spec.AccessModes[0] = "x", "x"
	next, err := first.PV(answer(first))
	if err != nil || next.Spec.CSI.VolumeAttributes["x"] != "" || next.Spec.AccessModes[0] == "x" ||
		next.Finalizers[0] == "x" || next.Spec.MountOptions[0] == "x" {
		t.Errorf("the plan was changed: %+v, %v", next, err)
	}
}

func TestReasons(t *testing.T) {
	seen := map[Reason]bool{}
	for _, reason := range Reasons() {
		if seen[reason] {
			t.Errorf("%s is there twice", reason)
		}
		seen[reason] = true
		if discards := strings.HasPrefix(string(reason), "Answer") &&
			reason != ReasonAnswerWithoutVolume; discards != (reason.Remediation() == RemediationDiscard) {
			t.Errorf("%s: %s; exactly what an answer shows to be wrong is discarded", reason, reason.Remediation())
		}
	}
	if Reason("NeverHeardOf").Remediation() != RemediationWait {
		t.Error("the remediation for what is not known destroys or gives up")
	}
	remediations := map[string]bool{}
	for _, r := range []Remediation{RemediationWait, RemediationChange, RemediationReschedule, RemediationDiscard,
		RemediationIgnore} {
		remediations[r.String()] = true
	}
	if len(remediations) != 5 {
		t.Errorf("remediations %v", remediations)
	}
}

func TestError(t *testing.T) {
	cause := errors.New("cause")
	err := refuse(ReasonSourceUnfit, "it is: %w", cause)
	if !errors.Is(err, cause) || ReasonOf(errors.Join(err)) != ReasonSourceUnfit || ReasonOf(nil) != "" ||
		ReasonOf(cause) != "" {
		t.Errorf("%v", err)
	}
	long := refuse(ReasonSourceUnfit, "%s", strings.Repeat("世", 5000)).Error()
	if len(long) > maxWords || !utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
}
