package podsafety

import (
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// claimed returns the facts of a held, terminating claim, whose pod is held and terminating too.
func claimed(alter ...func(*ClaimFacts)) ClaimFacts {
	f := ClaimFacts{Mode: ModeEnforce, Pod: terminatingPod(),
		Claim: Claim{Namespace: "ns", Name: "db-data", UID: "claim", Pod: "db", PodUID: "uid-1", Held: true,
			Terminating: true}}
	for _, a := range alter {
		a(&f)
	}
	return f
}

func TestDecideClaim(t *testing.T) {
	unheld := func(f *ClaimFacts) { f.Claim.Held = false }
	kept := func(f *ClaimFacts) { f.Claim.Terminating = false }
	ownerless := func(f *ClaimFacts) { f.Claim.Pod, f.Claim.PodUID = "", "" }
	mode := func(m Mode) func(*ClaimFacts) { return func(f *ClaimFacts) { f.Mode = m } }
	live := func(f *ClaimFacts) { f.PodRead = read(1) }
	gone := func(f *ClaimFacts) { f.Pod = Pod{} }
	freed := func(f *ClaimFacts) { f.Pod.Held = false }
	runs := func(f *ClaimFacts) { f.Pod.Terminating = false }
	unbound := func(f *ClaimFacts) { f.Pod.Node = "" }
	replaced := func(f *ClaimFacts) { f.Pod.UID = "uid-2" }
	removing := func(f *ClaimFacts) { f.RemovingFinalizers = true }
	protected := func(f *ClaimFacts) { f.Claim.Protected = true }
	for name, c := range map[string]struct {
		facts ClaimFacts
		want  ClaimAction
	}{
		"nothing is known":                       {ClaimFacts{}, LeaveClaim},
		"a new claim of a pod":                   {claimed(unheld, kept), HoldClaim},
		"of a pod that the watch does not show":  {claimed(unheld, kept, gone), HoldClaim},
		"new, in a namespace that warns":         {claimed(unheld, kept, mode(ModeWarn)), LeaveClaim},
		"new, in a namespace without the label":  {claimed(unheld, kept, mode(ModeOff)), LeaveClaim},
		"new, of no pod":                         {claimed(unheld, kept, ownerless), LeaveClaim},
		"deleted before it was held":             {claimed(unheld), LeaveClaim},
		"deleted before, and its pod is gone":    {claimed(unheld, gone, live), LeaveClaim},
		"held, and not deleted":                  {claimed(kept), LeaveClaim},
		"held, and its pod is gone":              {claimed(kept, gone, live), LeaveClaim},
		"held, by mistake, and not deleted":      {claimed(kept, ownerless), LeaveClaim},
		"its pod is held":                        {claimed(), AwaitPod},
		"its pod is held, read live":             {claimed(live), AwaitPod},
		"its pod is held, and was not deleted":   {claimed(runs, live), AwaitPod},
		"its namespace has withdrawn its label":  {claimed(mode(ModeOff), live), AwaitPod},
		"its pod may be held in a moment":        {claimed(freed, runs, live), AwaitPod},
		"its pod is never held":                  {claimed(freed, runs, mode(ModeOff), live), ReleaseClaim},
		"its pod is never held, in a warning":    {claimed(freed, runs, mode(ModeWarn), live), ReleaseClaim},
		"its pod is released, by the watch":      {claimed(freed), ReadClaimPod},
		"its pod is released, by an old read":    {claimed(freed, func(f *ClaimFacts) { f.PodRead = old(1) }), ReadClaimPod},
		"its pod is released":                    {claimed(freed, live), ReleaseClaim},
		"its pod is gone, by the watch":          {claimed(gone), ReadClaimPod},
		"its pod is gone":                        {claimed(gone, live), ReleaseClaim},
		"another pod has the name, by the watch": {claimed(replaced), ReadClaimPod},
		"another pod has the name":               {claimed(replaced, live), ReleaseClaim},
		"its pod has no node, by the watch":      {claimed(unbound), ReadClaimPod},
		"its pod has no node":                    {claimed(unbound, live), ReleaseClaim},
		"its pod may be bound in a moment":       {claimed(unbound, protected, live), AwaitPod},
		"its pod is gone, and it is protected":   {claimed(gone, protected, live), ReleaseClaim},
		"no pod controls it":                     {claimed(ownerless), ReleaseClaim},
		"no pod controls it, and no pod is seen": {claimed(ownerless, gone), ReleaseClaim},
		"we are uninstalled":                     {claimed(removing), ReleaseClaim},
		"we are uninstalled, not deleted":        {claimed(removing, kept), ReleaseClaim},
		"we are uninstalled, not held":           {claimed(removing, unheld, kept), LeaveClaim},
	} {
		if got := DecideClaim(c.facts, now()); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestNoClaimIsReleasedUnderItsPod visits all facts. It restates the conditions of a release, without the code.
func TestNoClaimIsReleasedUnderItsPod(t *testing.T) {
	for bits := range 1 << 9 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		f := claimed()
		f.Claim.Held, f.Claim.Terminating, f.Pod.Held, f.Pod.Terminating = bit(0), bit(1), bit(2), bit(3)
		if bit(4) {
			f.Pod.Node = ""
		}
		if bit(5) {
			f.Claim.Pod, f.Claim.PodUID = "", ""
		}
		f.RemovingFinalizers, f.Pod.GraceZero, f.Claim.Protected = bit(6), bit(7), bit(8)
		for f.Mode = ModeOff; f.Mode <= ModeEnforce; f.Mode++ {
			for _, f.Pod.UID = range []types.UID{"", "uid-1", "uid-2"} {
				for _, f.PodRead = range []session.Read{{}, old(1), read(1)} {
					judgeClaimStep(t, f, DecideClaim(f, now()))
				}
			}
		}
	}
}

func judgeClaimStep(t *testing.T, f ClaimFacts, got ClaimAction) {
	t.Helper()
	c, p := f.Claim, f.Pod
	mayWrite := p.UID == "uid-1" && (p.Node != "" || c.Protected) && (p.Held || f.Mode == ModeEnforce && !p.Terminating)
	readLive := f.PodRead.Order > 0 && now().Sub(f.PodRead.Sent) <= 5*time.Second
	switch {
	case got == ReleaseClaim && !c.Held, got == HoldClaim && (c.Held || c.Terminating):
		t.Errorf("%+v: %v without an effect", f, got)
	case got == HoldClaim && (f.Mode != ModeEnforce || c.PodUID == "" || f.RemovingFinalizers):
		t.Errorf("%+v: held", f)
	case got == ReleaseClaim && !f.RemovingFinalizers && !c.Terminating:
		t.Errorf("%+v: released, and not deleted", f)
	case got == ReleaseClaim && !f.RemovingFinalizers && c.PodUID != "" && (mayWrite || !readLive):
		t.Errorf("%+v: released, and its pod may write", f)
	case got == LeaveClaim && c.Held && c.Terminating:
		t.Errorf("%+v: left for good", f)
	}
}

func TestClaimOf(t *testing.T) {
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-data", UID: "claim",
		Finalizers: []string{"kubernetes.io/pvc-protection", objects.RunningFinalizer}, DeletionTimestamp: &metav1.Time{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "db", UID: "uid-1",
			Controller: ptr.To(true)}}}}
	want := claimed().Claim
	want.Protected = true
	if got := ClaimOf(o); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, change := range map[string]func(*metav1.OwnerReference){
		"an owner that does not control it": func(r *metav1.OwnerReference) { r.Controller = nil },
		"another kind":                      func(r *metav1.OwnerReference) { r.Kind = "StatefulSet" },
		"another group":                     func(r *metav1.OwnerReference) { r.APIVersion = "example.com/v1" },
	} {
		other := o.DeepCopy()
		change(&other.OwnerReferences[0])
		if got := ClaimOf(other); got.Pod != "" || got.PodUID != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	other := o.DeepCopy()
	if other.Name = "data-db"; ClaimOf(other).PodUID != "" {
		t.Error("a claim that a pod controls, which is no ephemeral volume of it, belongs to it")
	}
	if got := ClaimOf(&v1.PersistentVolumeClaim{}); got != (Claim{}) {
		t.Errorf("%+v", got)
	}
}
