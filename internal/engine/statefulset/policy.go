package statefulset

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/json"
)

const (
	// PolicyAnnotation on a StatefulSet is its retention policy where the API server drops the field
	// spec.persistentVolumeClaimRetentionPolicy. The value is the field's, as JSON:
	// {"whenDeleted":"Delete","whenScaled":"Retain"}. An omitted key defaults to Retain.
	PolicyAnnotation = "csi-reclaimer.io/claim-retention"
	// GraceAnnotation on a StatefulSet replaces Rules.Grace, with a duration such as "10m".
	GraceAnnotation = "csi-reclaimer.io/scale-down-grace"
)

// Retention says whether a claim is kept or deleted.
type Retention uint8

const (
	// Retain is the zero value and keeps the claim.
	Retain Retention = iota
	// Delete deletes the claim.
	Delete
)

// String returns the word of the Kubernetes API.
func (r Retention) String() string {
	if r == Delete {
		return string(appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
	}
	return string(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
}

// Policy is a retention policy. The zero value keeps all claims.
type Policy struct {
	// WhenDeleted applies to all claims of a deleted set, WhenScaled to the claims of replicas that are scaled away.
	WhenDeleted, WhenScaled Retention
}

// Keeps reports whether the policy deletes nothing.
func (p Policy) Keeps() bool { return p == Policy{} }

// String returns the policy as JSON, in the form of PolicyAnnotation.
func (p Policy) String() string {
	return fmt.Sprintf(`{"whenDeleted":%q,"whenScaled":%q}`, p.WhenDeleted, p.WhenScaled)
}

// Source is the origin of a set's policy.
type Source string

const (
	// SourceNone is the zero value, for an API server without the field and a set without the annotation. It keeps all
	// claims.
	SourceNone Source = ""
	// SourceField is spec.persistentVolumeClaimRetentionPolicy. An API server with the field fills it in on each read, so
	// that every set has it.
	SourceField Source = "spec.persistentVolumeClaimRetentionPolicy"
	// SourceAnnotation is PolicyAnnotation, for an API server without the field.
	SourceAnnotation Source = "annotation " + PolicyAnnotation
)

// String returns the text for people.
func (s Source) String() string { return cmp.Or(string(s), "none") }

// policyOf returns the policy of a set, its origin, and the error in its value. An unknown word keeps the claims.
func policyOf(o *appsv1.StatefulSet) (p Policy, from Source, invalid error) {
	if field := o.Spec.PersistentVolumeClaimRetentionPolicy; field != nil {
		p.WhenDeleted, _ = retentionOf(field.WhenDeleted)
		p.WhenScaled, _ = retentionOf(field.WhenScaled)
		return p, SourceField, nil
	}
	value, set := o.Annotations[PolicyAnnotation]
	if !set {
		return Policy{}, SourceNone, nil
	}
	if p, invalid = ParsePolicy(value); invalid != nil {
		return Policy{}, SourceAnnotation, fmt.Errorf("annotation %s: %w", PolicyAnnotation, invalid)
	}
	return p, SourceAnnotation, nil
}

// ParsePolicy parses the value of PolicyAnnotation, as strictly as the API server does with fieldValidation=Strict.
// With an error, the policy is the zero value, which keeps the claims.
func ParsePolicy(value string) (Policy, error) {
	fields := appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
	strict, err := json.UnmarshalStrict([]byte(value), &fields)
	if err := errors.Join(append(strict, err)...); err != nil {
		return Policy{}, fmt.Errorf("%w; want JSON as in %s", err, Policy{WhenScaled: Delete})
	}
	deleted, deletedErr := retentionOf(fields.WhenDeleted)
	scaled, scaledErr := retentionOf(fields.WhenScaled)
	if err := errors.Join(deletedErr, scaledErr); err != nil {
		return Policy{}, err
	}
	return Policy{WhenDeleted: deleted, WhenScaled: scaled}, nil
}

func retentionOf(word appsv1.PersistentVolumeClaimRetentionPolicyType) (Retention, error) {
	switch word {
	case appsv1.RetainPersistentVolumeClaimRetentionPolicyType:
		return Retain, nil
	case appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return Delete, nil
	}
	return Retain, fmt.Errorf("%q is neither Retain nor Delete", word)
}

// graceOf returns the value of GraceAnnotation. given is false if the annotation is missing or invalid.
func graceOf(o *appsv1.StatefulSet) (grace time.Duration, given bool, invalid error) {
	value, set := o.Annotations[GraceAnnotation]
	if !set {
		return 0, false, nil
	}
	grace, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("annotation %s: %w; want a duration such as 10m", GraceAnnotation, err)
	case grace < 0:
		return 0, false, fmt.Errorf("annotation %s: %s is negative", GraceAnnotation, value)
	}
	return grace, true, nil
}
