package fencing

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Each operand of a condition counts by itself.

// operand is a condition that holds for the facts, but not without any of its operands.
type operand struct {
	holds   func(Facts) bool
	facts   Facts
	without map[string]func(*Facts)
}

func TestEachOperandIsNeeded(t *testing.T) {
	isSilent := func(f Facts) bool { return f.silent(now()) }
	runsOn := func(f Facts) bool { return f.runsOn(now()) }
	noProof := func(f *Facts) { f.Fence.Status.Proof = nil }
	gone := func(f *Facts) { f.Node.Found = false }
	notRenewed := func(f *Facts) { f.Lease.ResourceVersion = "7" }
	noLease := func(f *Facts) { f.Lease.ResourceVersion = "" }
	word := func(alter func(*v1alpha1.Attempt)) func(*Facts) {
		return attempted(confirmation, v1alpha1.ResultContradicted, func(a *v1alpha1.Attempt) {
			a.Message = "burned"
			alter(a)
		})
	}
	notConfirmed := func(f Facts) bool { return !f.Fence.Confirmed() }
	for name, c := range map[string]operand{
		"the Lease was renewed": {Facts.renewed, facts(proved(power), down(), renewedFor(0)), map[string]func(*Facts){
			"a change": notRenewed, "a Lease": noLease,
		}},
		"the Lease is silent": {isSilent, facts(down()), map[string]func(*Facts){
			"the seen Lease": func(f *Facts) { f.Lease.ResourceVersion = "8" },
			"since long":     func(f *Facts) { f.Sight.LeaseSince = f.Sight.LeaseSince.Add(1) },
		}},
		"the node runs on": {runsOn, facts(proved(power), down(), renewedFor(0)), map[string]func(*Facts){
			"a proof": noProof, "a node": gone, "a renewal": notRenewed, "it is new": silent,
			"the boot ID":    func(f *Facts) { f.Node.BootID = "boot2" },
			"it covers pods": func(f *Facts) { f.Fence.Status.Proof.Covers = v1alpha1.CoversVolumes },
		}},
		"the node is back": {Facts.Back, facts(proved(power), down(rebooted), renewedFor(0)), map[string]func(*Facts){
			"a proof": noProof, "a node": gone, "a renewal": notRenewed, "a Lease": noLease,
			"another boot ID": func(f *Facts) { f.Node.BootID = "boot" },
			"a boot ID":       func(f *Facts) { f.Node.BootID = "" },
			"the machine":     func(f *Facts) { f.Node.Machine.SystemUUID = "uuid2" },
		}},
		"another machine has the name": {Facts.replaced, facts(proved(power), down(replaced)), map[string]func(*Facts){
			"a proof": noProof, "a node": gone, "another boot ID": func(f *Facts) { f.Node.BootID = "boot" },
			"a boot ID":       func(f *Facts) { f.Node.BootID = "" },
			"another machine": func(f *Facts) { f.Node.Machine = objects.Machine{MachineID: "id", SystemUUID: "uuid"} },
			"a known machine": func(f *Facts) {
				f.Fence.Status.Proof.MachineID, f.Fence.Status.Proof.SystemUUID = "", ""
			},
		}},
		"no confirmation": {notConfirmed, facts(confirm("burned"), word(func(*v1alpha1.Attempt) {})),
			map[string]func(*Facts){
				"these words":        confirm("switched off"),
				"contradiction":      func(f *Facts) { f.Fence.Status.Attempts[0].Result = v1alpha1.ResultCanceled },
				"a person said them": func(f *Facts) { f.Fence.Status.Attempts[0].Agent = power },
				"an agent":           func(f *Facts) { f.Fence.Status.Attempts[0].Agent = "none" },
			}},
		"a person confirms": {func(f Facts) bool { return f.Fence.Confirmed() }, facts(confirm("burned")),
			map[string]func(*Facts){
				"words": confirm(""), "of this fence": copied,
				"a UID": func(f *Facts) { f.Fence.UID, f.Fence.Spec.ConfirmationUID = "", "" },
			}},
		"ended by request": {func(f Facts) bool { return f.Fence.Ending() }, facts(terminating),
			map[string]func(*Facts){"a word": func(f *Facts) { f.Fence.Terminating = false }}},
	} {
		if !c.holds(c.facts) {
			t.Errorf("%s: does not hold", name)
		}
		for operand, without := range c.without {
			f := c.facts
			f.Fence.Status = *f.Fence.Status.DeepCopy()
			if without(&f); c.holds(f) {
				t.Errorf("%s: holds without %q", name, operand)
			}
		}
	}
}
