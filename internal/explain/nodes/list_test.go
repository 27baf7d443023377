package nodes

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// listed returns the facts about the fences of n1 and n0.
func listed(change func(*Facts)) ListFacts {
	f := down()
	change(&f)
	other := f.Fence.Value.DeepCopy()
	other.Name = "n0"
	on := f
	on.Name = "n0"
	return ListFacts{Now: now(), Fences: []*v1alpha1.NodeFence{f.Fence.Value, other}, On: map[string]Facts{"n1": f,
		"n0": on}}
}

func TestListOf(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"an agent works": {func(f *Facts) { attempt(f.fenced(jobAgent()), "ipmi", "", "") },
			`"phase":"Fencing","reason":"Fencing","waitsFor":"agent ipmi, 4m10s at most","agent":"ipmi","attempts":1,` +
				`"held":1,"detaching":0,"askedBy":"kubectl-reclaim","because":"kernel hangs","since":"2026-01-02T03:03:05Z"}`},
		"it is proven": {func(f *Facts) { f.shut() },
			`"phase":"Fenced","reason":"Fenced","waitsFor":"the node to boot again","agent":"net","attempts":1,` +
				`"covers":"Volumes","drivers":["disk.csi"],`},
		"not all could be read": {func(f *Facts) {
			f.released(jobAgent())
			f.Node, f.Pods = explain.Failed[*v1.Node](errForbidden), explain.Failed[[]explain.Pod](errForbidden)
		}, `"phase":"Released","reason":"APIReadFailed","waitsFor":"not known: not all could be read","agent":"ipmi",` +
			`"attempts":1,"covers":"UntilUnfenced","askedBy"`},
		"attachments could not be read": {func(f *Facts) {
			f.released(jobAgent())
			f.Attachments = explain.Failed[[]storagev1.VolumeAttachment](errForbidden)
		}, `"covers":"UntilUnfenced","askedBy"`},
		"it has ended":   {func(f *Facts) { f.ended() }, `"phase":"Returned","reason":"Returned","attempts":0,`},
		"nothing is yet": {func(f *Facts) { f.fenced().Finalizers = nil }, `"phase":"Requested","reason":"Requested"`},
	} {
		l := ListOf(listed(c.change))
		if len(l.Fences) != 2 || l.Fences[0].Node != "n0" || l.Fences[1].Node != "n1" {
			t.Fatalf("%s: %+v", sentence, l)
		}
		text, err := json.Marshal(l.Fences[1])
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %s, %v, want %s", sentence, text, err, c.want)
		}
	}
	if l := ListOf(ListFacts{}); l.Fences == nil {
		t.Error("no fences are null in JSON")
	}
	l := ListOf(listed(func(f *Facts) { f.ended(); f.Pods = explain.Failed[[]explain.Pod](errForbidden) }))
	if len(l.Unread) != 2 || !strings.HasPrefix(l.Unread[0], "Pods on node n1: forbidden") {
		t.Errorf("%q", l.Unread)
	}
}
