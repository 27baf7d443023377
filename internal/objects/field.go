package objects

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HasField reports whether a set of fields, as managedFields record it for each writer, has a field. path has the keys
// that lead to it, such as "f:spec". An entry of a list of strings has the key "v:", followed by the string as JSON.
func HasField(set *metav1.FieldsV1, path ...string) bool {
	below := json.RawMessage(set.GetRawBytes())
	for _, key := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(below, &fields) != nil {
			return false
		}
		var found bool
		if below, found = fields[key]; !found {
			return false
		}
	}
	return true
}
