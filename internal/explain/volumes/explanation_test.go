package volumes

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestWrapped(t *testing.T) {
	f := released()
	f.PV.Name = "pvc-8a5c0f1e-6f0e-4a55-9c5e-2f2d6f7b8a01"
	f.terminate(1)
	f.bound()
	pv := ExplainPV(f)
	e := explain.Explanation{Headline: "Claim ns/data is bound, with PV " + f.PV.Name + ".", PV: &pv,
		Facts: []explain.Fact{{Name: "PV", Text: f.PV.Name}}}
	const width = 84
	text := e.Wrapped(false, width)
	command := "kubectl patch pv " + f.PV.Name
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > width && !strings.Contains(line, command) {
			t.Errorf("%q is longer than %d", line, width)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("%q ends with a space", line)
		}
	}
	expect(t, text, "Claim ns/data is bound, with PV pvc-8a5c0f1e….\n", "PV           "+f.PV.Name+"\n",
		"\n             "+command+" -p '{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}'\n")
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if whole := strings.Replace(e.Wrapped(false, 0), f.PV.Name+".", "pvc-8a5c0f1e….", 1); words(text) != words(whole) {
		t.Errorf("the words differ:\n%s\n%s", text, whole)
	}
	if narrow := e.Wrapped(false, 30); !strings.Contains(narrow, "\nPV           "+f.PV.Name) {
		t.Errorf("a narrow terminal:\n%s", narrow)
	}
}

// A tenant writes annotations that administrators read.
func TestForeignTextBeginsNoLine(t *testing.T) {
	const forged = "You can      To repair it: kubectl delete node n1"
	e := explain.Explanation{Headline: "Claim ns/data waits for x\n" + forged, Facts: []explain.Fact{
		{Name: "Driver", Text: "x\n\n" + forged}}}
	for _, width := range []int{0, 40, 200} {
		expect(t, e.Wrapped(false, width), "!\n"+forged)
	}
	const repair = "To repair it: kubectl delete node n1"
	e = explain.Explanation{Events: []string{repair}, Advice: []string{repair}}
	expect(t, e.Wrapped(false, 40), "Events       To repair it: kubectl\n",
		"You can      To repair it:\n             kubectl delete node n1\n")
}

// A tenant writes the holder of a Lease, an entry of an in-flight log, and the PV that a claim names.
func TestForeignTextIsNoCommand(t *testing.T) {
	const foreign = "x. kubectl delete ns a, b"
	status := twoDrivers()
	status.renewed("x", 0)
	status.renewed(foreign, 0)
	status.Leases.Value[1].Namespace = "shop"
	forged := onNode(entry("c"))
	forged.Node.Name = foreign
	inFlight, lost := pending(), pending()
	inFlight.openEntries(forged)
	inFlight.bindTo("pvc-c")
	inFlight.PVs = explain.Found([]explain.PV{explain.PVOf(onlyAt("pvc-c", "n2"))})
	lost.Claim.Spec.VolumeName, lost.Claim.Status.Phase, lost.PV = foreign, v1.ClaimLost, explain.Found[*PVFacts](nil)
	unread := twoDrivers()
	unread.unreadable(driver, inflight.Problem{Lease: "shop/l", Err: errors.New("it is of driver " + foreign)})
	for _, all := range [][]string{StatusOf(status, "").Warnings, StatusOf(unread, "").Warnings,
		ExplainClaim(inFlight).Advice, ExplainClaim(lost).Advice} {
		expect(t, strings.Join(all, "\n"), "x. kubectl_delete ns a, b", "!kubectl delete ns")
	}
}

func TestShortName(t *testing.T) {
	for name, want := range map[string]string{
		"pvc-8a5c0f1e-6f0e-4a55-9c5e-2f2d6f7b8a01": "pvc-8a5c0f1e…", "pvc-8a5c": "pvc-8a5c", "": "",
		"data-pvc-8a5c0f1e-6f0e-4a55-9c5e-2f2d6f7b8a01-x": "data-pvc-8a5c0f1e-6f0e-4a55-9c5e-2f2d6f7b8a01-x",
	} {
		if got := explain.ShortName(name); got != want {
			t.Errorf("%s is shortened to %s", name, got)
		}
	}
}

func TestCheckDriver(t *testing.T) {
	f := released()
	for _, known := range []string{driver, ""} {
		if err := f.CheckDriver(known); err != nil {
			t.Errorf("%q: %v", known, err)
		}
	}
	err := f.CheckDriver("typo")
	var unknown *explain.RefusalError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "--driver=typo") ||
		unknown.NextStep() != "name one of "+driver {
		t.Errorf("a driver that nothing names: %v", err)
	}
	explained.Forbid(&f.PVs)
	if err := f.CheckDriver("typo"); err != nil {
		t.Errorf("PVs were not read: %v", err)
	}
}

// TestREADMEShowsExplanation compares README.md with the explanation. Each line shown there has to be one of its
// lines, in this order, or the beginning of a line before "…".
func TestREADMEShowsExplanation(t *testing.T) {
	text := must.Get(os.ReadFile("../../../README.md"))(t)
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
	f.relist()
	attachment := explained.Attachment("csi-40b1", "worker-2", "pvc-8a5c", driver)
	attachment.DeletionTimestamp = ptr.To(ago(time.Minute))
	f.Attachments = explain.Found([]storagev1.VolumeAttachment{attachment})
	f.Nodes["worker-2"] = explain.Found(node(v1.ConditionUnknown))
	f.lease("disk-csi-example-com", "disk-controller-0", time.Second)
	return pvText(f)
}
