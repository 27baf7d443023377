package fencing

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// A fence is evidence about a pod only while it is in force.
func TestEvidence(t *testing.T) {
	machine := objects.Machine{MachineID: "id", SystemUUID: "uuid"}
	untilNow := objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced, BootID: "boot", Machine: machine}
	whole, rebooted := untilNow, untilNow
	whole.SinceTerminating = true
	rebooted.SinceTerminating, rebooted.Coverage = true, v1alpha1.CoversReboot
	volumes := all(agents(storage), proved(storage))
	ofVolumes := objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes, Volumes: volumesOf(storage),
		BootID: "boot", Machine: machine}
	for name, c := range map[string]struct {
		facts Facts
		pod   types.UID
		want  objects.Fence
	}{
		"requested":     {facts(), "pod", objects.Fence{}},
		"in force":      {facts(proved(power)), "pod", whole},
		"released":      {facts(proved(power), released), "pod", whole},
		"another pod":   {facts(proved(power)), "pod2", untilNow},
		"by a reboot":   {facts(agents(medik8s), proved(medik8s)), "pod", rebooted},
		"its end began": {facts(proved(power), ending), "pod", objects.Fence{}},
		"ended":         {facts(proved(power), unfence(v1alpha1.UnfenceNow)), "pod", objects.Fence{}},
		"abandoned":     {facts(proved(power), unfence(v1alpha1.UnfenceAbandon)), "pod", objects.Fence{}},
		"deleted":       {facts(proved(power), terminating), "pod", objects.Fence{}},
		"undone when released": {
			facts(proved(power), unfence(v1alpha1.UnfenceWhenReleased)), "pod", whole},
		"the proof is withdrawn": {
			facts(proved(power), func(f *Facts) { f.Fence.Status.Proof = nil }), "pod", objects.Fence{}},
		"an agent works beside it": {facts(attempted(power, "")), "pod", objects.Fence{}},
		"the attempt is not there": {
			facts(proved(power), func(f *Facts) { f.Fence.Status.Attempts = nil }), "pod",
			untilNow},
		"of volumes": {facts(volumes), "pod2", ofVolumes},
		"of volumes, and an agent works beside it": {
			facts(volumes, agents(storage, storage2), attempted(storage2, "")), "pod2", ofVolumes},
		"of volumes, and deleted": {facts(volumes, terminating), "pod2", ofVolumes},
		"of volumes, and nothing ends it": {
			facts(volumes, terminating, func(f *Facts) { f.Fence.Finalized = false }), "pod2", objects.Fence{}},
		"of volumes, and its finalizer is gone": {
			facts(volumes, func(f *Facts) { f.Fence.Finalized = false }), "pod2", objects.Fence{}},
		"of volumes, and its finalizer was gone": {facts(volumes, forsook), "pod2", objects.Fence{}},
		"of volumes, and ended": {
			facts(volumes, terminating, unfence(v1alpha1.UnfenceNow)), "pod2", objects.Fence{}},
	} {
		if got := Evidence(c.facts.Fence, c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// An unmount may hang from the start of an agent until the agent has undone its fence.
func TestMayKeepVolumes(t *testing.T) {
	undone := func(f *Facts) { f.Fence.Status.Attempts[0].UndoneAt = &metav1.Time{} }
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"requested":              {facts(agents(storage)), false},
		"an agent is at work":    {facts(agents(storage), attempted(storage, "")), true},
		"it has failed":          {facts(agents(storage), attempted(storage, v1alpha1.ResultFailed)), true},
		"in force":               {facts(agents(storage), proved(storage)), true},
		"its end began":          {facts(agents(storage), proved(storage), ending), true},
		"its finalizer was gone": {facts(agents(storage), proved(storage), forsook), true},
		"undone":                 {facts(agents(storage), proved(storage), ending, undone), false},
		"returned":               {facts(agents(storage), proved(storage), returnedAgo(time.Hour)), false},
		"the machine is off":     {facts(proved(power)), false},
		"an agent of no spec":    {facts(proved(power), func(f *Facts) { f.Fence.Spec.Agents = nil }), true},
		"one after another":      {facts(agents(power, storage), attempted(power, v1alpha1.ResultFailed)), false},
		"a person's word alone":  {facts(agents(storage), proved(confirmation)), false},
	} {
		if got := c.facts.Fence.MayKeepVolumes(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
