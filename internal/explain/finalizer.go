package explain

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type Finalizer struct {
	Name string `json:"name"`
	// Owner is the program that removes the finalizer, empty if it is unknown.
	Owner string `json:"owner,omitempty"`
	// When is the condition under which the owner removes it.
	When string `json:"when,omitempty"`
	// Stuck is the reason why no program removes it, empty if a program may.
	Stuck string `json:"stuck,omitempty"`
	// AddedBy is the field manager that added it, empty if managedFields do not show one.
	AddedBy string `json:"addedBy,omitempty"`
}

func (f Finalizer) text(wide bool) string {
	text := f.Name + ": "
	switch {
	case f.Stuck != "":
		text += "no program removes it: " + f.Stuck
	case f.Owner == "":
		text += "its owner is unknown"
	default:
		text += f.Owner + " removes it " + f.When
	}
	if wide && f.AddedBy != "" {
		text += " (added by " + f.AddedBy + ")"
	}
	return text
}

// AddedBy returns the field manager of a finalizer according to managedFields, empty if they show none.
func AddedBy(o metav1.Object, finalizer string) string {
	for _, entry := range o.GetManagedFields() {
		var set struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		if _, holds := set.Metadata.Finalizers[`v:"`+finalizer+`"`]; holds {
			return entry.Manager
		}
	}
	return ""
}

// AnnotatedAt returns the time at which the field manager of an annotation last wrote to the object, according to
// managedFields. It is the zero time if they show none.
func AnnotatedAt(o metav1.Object, annotation string) time.Time {
	for _, entry := range o.GetManagedFields() {
		var set struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		if _, has := set.Metadata.Annotations["f:"+annotation]; has {
			return entry.Time.Time
		}
	}
	return time.Time{}
}
