package fencing

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// A fence shows something about a pod only while it is in force.
func TestEvidence(t *testing.T) {
	whole := Shown{InForce: true, Covers: v1alpha1.CoversUntilUnfenced, TerminatingBefore: true, BootID: "boot"}
	for name, c := range map[string]struct {
		facts Facts
		pod   types.UID
		want  Shown
	}{
		"requested": {facts(), "pod", Shown{}},
		"in force":  {facts(proved(power)), "pod", whole},
		"released":  {facts(proved(power), released), "pod", whole},
		"another pod": {
			facts(proved(power)), "pod2", Shown{InForce: true, Covers: v1alpha1.CoversUntilUnfenced, BootID: "boot"}},
		"by a reboot": {facts(agents(medik8s), proved(medik8s)), "pod",
			Shown{InForce: true, Covers: v1alpha1.CoversReboot, TerminatingBefore: true, BootID: "boot"}},
		"its end began": {facts(proved(power), ending), "pod", Shown{}},
		"ended":         {facts(proved(power), unfence(v1alpha1.UnfenceNow)), "pod", Shown{}},
		"abandoned":     {facts(proved(power), unfence(v1alpha1.UnfenceAbandon)), "pod", Shown{}},
		"deleted":       {facts(proved(power), terminating), "pod", Shown{}},
		"undone when released": {
			facts(proved(power), unfence(v1alpha1.UnfenceWhenReleased)), "pod", whole},
		"the proof is withdrawn": {
			facts(proved(power), func(f *Facts) { f.Fence.Status.Proof = nil }), "pod", Shown{}},
		"an agent works beside it": {facts(attempted(power, "")), "pod", Shown{}},
		"the attempt is not there": {
			facts(proved(power), func(f *Facts) { f.Fence.Status.Attempts = nil }), "pod",
			Shown{InForce: true, Covers: v1alpha1.CoversUntilUnfenced, BootID: "boot"}},
		"of volumes": {
			facts(agents(storage), proved(storage), func(f *Facts) { f.Fence.Status.Proof.Driver = "driver" }), "pod2",
			Shown{InForce: true, Covers: v1alpha1.CoversVolumes, Driver: "driver", BootID: "boot"}},
	} {
		if got := Evidence(c.facts.Fence, c.pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A node that was powered on by hand while the fence is in force has another boot ID, and may run pods again.
func TestWhichPodsAFenceHasEnded(t *testing.T) {
	const off, reboot = v1alpha1.CoversUntilUnfenced, v1alpha1.CoversReboot
	for name, c := range map[string]struct {
		shown  Shown
		bootID string
		want   bool
	}{
		"nothing is shown":                   {Shown{}, "", false},
		"it is off":                          {Shown{InForce: true, Covers: off, BootID: "boot"}, "boot", true},
		"none is known":                      {Shown{InForce: true, Covers: off}, "", false},
		"it is not in force":                 {Shown{Covers: off, BootID: "boot"}, "boot", false},
		"it was powered on":                  {Shown{InForce: true, Covers: off, BootID: "boot"}, "boot2", false},
		"its boot ID is not known":           {Shown{InForce: true, Covers: off, BootID: "boot"}, "", false},
		"it was powered on, a pod of before": {Shown{InForce: true, Covers: off, TerminatingBefore: true}, "boot2", true},
		"not in force, a pod of before":      {Shown{Covers: off, TerminatingBefore: true}, "boot2", false},
		"it was rebooted":                    {Shown{InForce: true, Covers: reboot, BootID: "boot"}, "boot", false},
		"it was rebooted, a pod of before":   {Shown{InForce: true, Covers: reboot, TerminatingBefore: true}, "boot2", true},
		"of volumes": {
			Shown{InForce: true, Covers: v1alpha1.CoversVolumes, TerminatingBefore: true, BootID: "boot"}, "boot", false},
	} {
		if got := c.shown.EndsPod(c.bootID); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
