package statefulset

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

func TestPolicyFromAnnotation(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		want  Policy
	}{
		"both":                {`{"whenDeleted":"Delete","whenScaled":"Delete"}`, Policy{Delete, Delete}},
		"with the set":        {`{"whenDeleted":"Delete","whenScaled":"Retain"}`, Policy{WhenDeleted: Delete}},
		"with the replica":    {`{"whenDeleted":"Retain","whenScaled":"Delete"}`, Policy{WhenScaled: Delete}},
		"neither":             {`{"whenDeleted":"Retain","whenScaled":"Retain"}`, Policy{}},
		"half of it":          {`{"whenScaled":"Delete"}`, Policy{WhenScaled: Delete}},
		"nothing":             {`{}`, Policy{}},
		"spaces":              {" {\n\"whenDeleted\": \"Delete\" }\n", Policy{WhenDeleted: Delete}},
		"null is nothing":     {`{"whenDeleted":null}`, Policy{}},
		"null is the default": {`null`, Policy{}},
	} {
		got, err := ParsePolicy(c.value)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if again, err := ParsePolicy(got.String()); err != nil || again != got {
			t.Errorf("%s: %s reads as %v, %v", name, got, again, err)
		}
	}
}

func TestInvalidPolicyKeepsClaims(t *testing.T) {
	for name, value := range map[string]string{
		"empty":               "",
		"no JSON":             "Delete",
		"a word":              `"Delete"`,
		"a number":            "1",
		"a list":              `["Delete"]`,
		"a number as a word":  `{"whenScaled":1}`,
		"a Boolean":           `{"whenScaled":true}`,
		"an unknown word":     `{"whenDeleted":"Delete","whenScaled":"Recycle"}`,
		"an empty word":       `{"whenDeleted":"","whenScaled":"Delete"}`,
		"a word in lowercase": `{"whenScaled":"delete"}`,
		"an unknown field":    `{"whenScaled":"Delete","whenRemoved":"Retain"}`,
		"another case":        `{"WhenScaled":"Delete"}`,
		"a field twice":       `{"whenScaled":"Retain","whenScaled":"Delete"}`,
		"two values":          `{"whenScaled":"Delete"}{"whenScaled":"Retain"}`,
		"a comma at the end":  `{"whenScaled":"Delete"},`,
		"cut off":             `{"whenDeleted":"Delete","whenScaled":"Del`,
		"YAML":                "whenScaled: Delete",
		"huge":                `{"whenScaled":"` + strings.Repeat("Delete", 40_000) + `"}`,
		"deep":                strings.Repeat(`{"whenScaled":`, 20_000),
	} {
		if got, err := ParsePolicy(value); err == nil || got != (Policy{}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if s := SetOf(policySet(nil, PolicyAnnotation, value, GraceAnnotation, value)); s.Invalid == "" ||
			len(s.Invalid) > maxInvalid || !s.Policy.Keeps() {
			t.Errorf("%s: %s, invalid: %d bytes", name, s.Policy, len(s.Invalid))
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", `{"whenDeleted":"Delete","whenScaled":"Retain"}`, `{"whenScaled":1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		p, err := ParsePolicy(value)
		switch again, invalid := ParsePolicy(p.String()); {
		case err != nil && !p.Keeps():
			t.Errorf("%q deletes and is invalid: %v", value, err)
		case invalid != nil || again != p:
			t.Errorf("%q is %s, which is %s, %v", value, p, again, invalid)
		}
	})
}

// policySet is a StatefulSet with this field, unless nil, and annotations in pairs of name and value.
func policySet(f *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy, annotations ...string) *appsv1.StatefulSet {
	o := &appsv1.StatefulSet{}
	o.Spec.PersistentVolumeClaimRetentionPolicy = f
	for i := 0; i < len(annotations); i += 2 {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		o.Annotations[annotations[i]] = annotations[i+1]
	}
	return o
}

func field(whenDeleted, whenScaled string) *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	return &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(whenDeleted),
		WhenScaled:  appsv1.PersistentVolumeClaimRetentionPolicyType(whenScaled),
	}
}

func TestSourceOfPolicy(t *testing.T) {
	const both = `{"whenDeleted":"Delete","whenScaled":"Delete"}`
	for name, c := range map[string]struct {
		set    *appsv1.StatefulSet
		policy Policy
		source Source
		// invalid is a part of the error, empty for none.
		invalid string
		ignored bool
	}{
		"nowhere": {policySet(nil), Policy{}, SourceNone, "", false},
		"the field": {
			policySet(field("Delete", "Retain")), Policy{WhenDeleted: Delete}, SourceField, "", false},
		"the field, for replicas": {
			policySet(field("Retain", "Delete")), Policy{WhenScaled: Delete}, SourceField, "", false},
		"an empty field": {policySet(field("", "")), Policy{}, SourceField, "", false},
		"a word of a later version": {
			policySet(field("Archive", "Delete")), Policy{WhenScaled: Delete}, SourceField, "", false},
		"the annotation": {
			policySet(nil, PolicyAnnotation, both), Policy{Delete, Delete}, SourceAnnotation, "", false},
		"an annotation that is not valid": {
			policySet(nil, PolicyAnnotation, "Delete"), Policy{}, SourceAnnotation, PolicyAnnotation, false},
		"the field, and an annotation that says the same": {
			policySet(field("Delete", "Delete"), PolicyAnnotation, both), Policy{Delete, Delete}, SourceField, "", false},
		"the field, and an annotation that says more": {
			policySet(field("Retain", "Delete"), PolicyAnnotation, both), Policy{WhenScaled: Delete}, SourceField, "", true},
		"the field, and an annotation that is not valid": {
			policySet(field("Retain", "Retain"), PolicyAnnotation, "{"), Policy{}, SourceField, "", true},
		"a grace that is not valid": {
			policySet(field("Retain", "Delete"), GraceAnnotation, "1 day"), Policy{WhenScaled: Delete}, SourceField,
			GraceAnnotation, false},
		"nothing is valid": {
			policySet(nil, PolicyAnnotation, "", GraceAnnotation, "-1s"), Policy{}, SourceAnnotation, "; annotation", false},
	} {
		s := SetOf(c.set)
		if s.Policy != c.policy || s.Source != c.source || s.Ignored != c.ignored {
			t.Errorf("%s: %s from %s, ignored %t", name, s.Policy, s.Source, s.Ignored)
		}
		if (c.invalid == "") != (s.Invalid == "") || !strings.Contains(s.Invalid, c.invalid) ||
			strings.Contains(s.Invalid, "\n") {
			t.Errorf("%s: invalid: %q", name, s.Invalid)
		}
	}
}

func TestGraceAnnotation(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "0": 0, "0s": 0, "1h30m": 90 * time.Minute, "100000h": 100_000 * time.Hour,
	} {
		if s := SetOf(policySet(nil, GraceAnnotation, value)); s.Grace != want || !s.GraceGiven || s.Invalid != "" {
			t.Errorf("%s: %s, given %t, %s", value, s.Grace, s.GraceGiven, s.Invalid)
		}
	}
	for _, value := range []string{"", "10", "-1s", "1d", "ten", "1e99h", "99999999999h"} {
		if s := SetOf(policySet(nil, GraceAnnotation, value)); s.GraceGiven || s.Grace != 0 || s.Invalid == "" {
			t.Errorf("%q: %s, given %t, %q", value, s.Grace, s.GraceGiven, s.Invalid)
		}
	}
	if s := SetOf(policySet(nil)); s.GraceGiven || s.Invalid != "" {
		t.Errorf("no annotation: given %t, %q", s.GraceGiven, s.Invalid)
	}
}

func TestGracePrecedence(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  time.Duration
	}{
		"by default":  {Facts{}, DefaultGrace},
		"of the flag": {Facts{Rules: Rules{Grace: time.Hour}}, time.Hour},
		"of the set": {
			Facts{Rules: Rules{Grace: time.Hour}, Set: Set{Grace: time.Second, GraceGiven: true}}, time.Second},
		"none, by the set":    {Facts{Set: Set{GraceGiven: true}}, 0},
		"of a set without it": {Facts{Set: Set{Grace: time.Second}}, DefaultGrace},
	} {
		if got := c.facts.grace(); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestStrings(t *testing.T) {
	for got, want := range map[string]string{
		Retain.String(): "Retain", Delete.String(): "Delete", Retention(9).String(): "Retain",
		SourceNone.String(): "none", SourceAnnotation.String(): "annotation csi-reclaimer.io/claim-retention",
		SourceField.String():                   "spec.persistentVolumeClaimRetentionPolicy",
		(Policy{WhenDeleted: Delete}).String(): `{"whenDeleted":"Delete","whenScaled":"Retain"}`,
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
