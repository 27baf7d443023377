package statefulset

import (
	"testing"
	"time"
)

// Each operand of a condition has an effect of its own.

// operand is a condition that holds for the facts, and the alterations that make it fail.
type operand struct {
	holds   func(Facts) bool
	facts   Facts
	without map[string]func(*Facts)
}

func TestEachOperandIsNeeded(t *testing.T) {
	notFound := func(f *Facts) { f.SetSeen = Unknown }
	noUID := func(f *Facts) { f.Set.UID, f.Claim.Mark.UID, f.Pod.Controller = "", "", "" }
	for name, c := range map[string]operand{
		"a template gives the name": {Facts.given, facts(), map[string]func(*Facts){
			"the set is found": notFound, "the template": otherTemplates, "the ordinal": func(f *Facts) { f.Ordinal = 2 },
		}},
		"the claim is marked": {Facts.marked, facts(), map[string]func(*Facts){
			"the set is found": notFound, "the template": otherTemplates, "a UID": noUID,
			"the UID":     func(f *Facts) { f.Set.UID = "set2" },
			"the name":    func(f *Facts) { f.Claim.Mark.Set = "db2" },
			"the ordinal": func(f *Facts) { f.Claim.Mark.Ordinal = 2 },
			"the claim":   copiedMark, "a UID of the claim": func(f *Facts) { f.Claim.UID, f.Claim.Mark.Claim = "", "" },
		}},
		"the claim has a pod": {Facts.hasPod, facts(), map[string]func(*Facts){
			"it is found": func(f *Facts) { f.PodSeen = Absent }, "a UID": noUID,
			"the controller": func(f *Facts) { f.Pod.Controller = "set2" },
		}},
		"the replica is scaled away": {Facts.scaledAway, facts(scaledDown), map[string]func(*Facts){
			"the set is found": notFound, "the range": func(f *Facts) { f.Set.Replicas = 2 },
		}},
		"the claim is condemned": {Facts.Condemned, facts(scaledDown), map[string]func(*Facts){
			"the mark": func(f *Facts) { f.Claim.Mark.UID = "set0" }, "a mark of its own": copiedMark,
			"its word": markRetain, "the policy": retain, "the set stays": setTerminating,
			"the range": func(f *Facts) { f.Set.Replicas = 2 },
		}},
		"the claim is abandoned": {Facts.abandoned, facts(scaledDown, podAbsent), map[string]func(*Facts){
			"the claim": func(f *Facts) { f.Claim.UID = "" }, "it stays": terminatingClaim, "it is condemned": markRetain,
			"no pod": podUnknown, "nothing keeps it": held,
		}},
		"the claim is left behind": {Facts.leftBehind, facts(left), map[string]func(*Facts){
			"the set that was deleted": func(f *Facts) { f.Last.UID = "" },
			"its template":             func(f *Facts) { f.Last.Templates = []string{"logs"} },
			"the ordinal":              func(f *Facts) { f.Ordinal = 2 },
			"the policy":               func(f *Facts) { f.Last.Policy = Policy{WhenScaled: Delete} },
			"not orphaned":             func(f *Facts) { f.Last.Orphans = true },
			"a valid annotation":       func(f *Facts) { f.Last.Source, f.Last.Invalid = SourceAnnotation, "wrong" },
			"the claim":                func(f *Facts) { f.Claim.UID = "" },
			"who created it":           func(f *Facts) { f.Claim.ByController = time.Time{} },
			"it is not older":          func(f *Facts) { f.Claim.ByController = f.Last.Created.Add(-time.Second) },
			"no owner":                 owned(foreignRef()),
			"no mark":                  func(f *Facts) { f.Claim.Marked = true },
			"no hold":                  held,
			"it stays":                 terminatingClaim,
			"the set is known":         setUnknown,
			"no set gives the name":    func(f *Facts) { f.SetSeen, f.Set = Found, facts().Set },
			"the pod is known":         podUnknown,
			"no pod":                   func(f *Facts) { f.PodSeen, f.Pod = Found, facts(podForeign).Pod },
			"no other pod":             otherPod,
		}},
		"an annotation is not valid, and the field is": {Facts.leftBehind, facts(left, func(f *Facts) {
			f.Last.Invalid = "wrong"
		}), nil},
		"another set of the name": {Facts.leftBehind, facts(left, func(f *Facts) {
			f.SetSeen, f.Set = Found, facts(otherTemplates).Set
		}), nil},
		"a pod of the set uses the claim": {Facts.usedBySet, facts(), map[string]func(*Facts){
			"the pod": podForeign, "it stays": podTerminating, "the claim": podElsewhere,
		}},
		"the claim is of an old pod": {Facts.ofOldPod, facts(owned(podRef("pod0"))), map[string]func(*Facts){
			"the owner":    func(f *Facts) { f.Claim.Owners = nil },
			"another pod":  func(f *Facts) { f.Pod.UID = "pod0" },
			"it was ours":  func(f *Facts) { f.Claim.Owners[0] = controlling(f.Claim.Owners[0]) },
			"it was a pod": func(f *Facts) { f.Claim.Owners[0] = setRef("set") },
		}},
		"its pod is orphaned": {
			func(f Facts) bool { return f.orphaned("pod") }, facts(podForeign), map[string]func(*Facts){
				"it is found": func(f *Facts) { f.PodSeen = Absent }, "it is the one": func(f *Facts) { f.Pod.UID = "pod2" },
				"it stays": podTerminating, "without the set": func(f *Facts) { f.Pod.Controller = "set" },
			}},
		"the pod that owns it is gone": {
			Facts.stale, facts(owned(podRef("pod0"))), map[string]func(*Facts){
				"the pod is known": podUnknown, "the name": func(f *Facts) { f.Claim.Owners[0].Name = "db-2" },
				"the UID": func(f *Facts) { f.Claim.Owners[0].UID = "pod" },
			}},
		"the set that owns it is gone": {
			Facts.stale, facts(owned(setRef("set0"))), map[string]func(*Facts){
				"the name": func(f *Facts) { f.Claim.Owners[0].Name = "db0" },
				"the UID":  func(f *Facts) { f.Claim.Owners[0].UID = "set" },
			}},
		"all owners are gone": {
			Facts.doomed, facts(owned(setRef("set0"))), map[string]func(*Facts){
				"all": owned(foreignRef()), "an owner": func(f *Facts) { f.Claim.Owners = nil },
			}},
		"another controller": {
			Facts.otherController, facts(owned(controlling(foreignRef()))), map[string]func(*Facts){
				"it controls": func(f *Facts) { f.Claim.Owners[0] = foreignRef() },
				"not the set": func(f *Facts) { f.Claim.Owners[0] = controlling(setRef("set")) },
				"not its pod": func(f *Facts) { f.Claim.Owners[0] = controlling(podRef("pod")) },
			}},
		"another owner": {
			func(f Facts) bool { return f.OtherOwner() != "" }, facts(owned(foreignRef())), map[string]func(*Facts){
				"not the set": func(f *Facts) { f.Claim.Owners[0] = setRef("set") },
				"not its pod": func(f *Facts) { f.Claim.Owners[0] = podRef("pod") },
			}},
	} {
		if !c.holds(c.facts) {
			t.Errorf("%s: does not hold", name)
		}
		for operand, without := range c.without {
			f := c.facts
			f.Claim.Owners = append(f.Claim.Owners[:0:0], f.Claim.Owners...)
			if without(&f); c.holds(f) {
				t.Errorf("%s: holds without %q", name, operand)
			}
		}
	}
}
