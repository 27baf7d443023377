package objects

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHasField(t *testing.T) {
	const fields = `{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}},"f:spec":{"f:replicas":{}}}`
	for name, c := range map[string]struct {
		set  *metav1.FieldsV1
		path []string
		want bool
	}{
		"a field":                   {metav1.NewFieldsV1(fields), []string{"f:spec", "f:replicas"}, true},
		"an entry of a list":        {metav1.NewFieldsV1(fields), []string{"f:metadata", "f:finalizers", `v:"a/b"`}, true},
		"another entry":             {metav1.NewFieldsV1(fields), []string{"f:metadata", "f:finalizers", `v:"a"`}, false},
		"another field":             {metav1.NewFieldsV1(fields), []string{"f:spec", "f:selector"}, false},
		"a field below another one": {metav1.NewFieldsV1(fields), []string{"f:status", "f:replicas"}, false},
		"a field below its leaf":    {metav1.NewFieldsV1(`{"f:spec":1}`), []string{"f:spec", "f:replicas"}, false},
		"no JSON":                   {metav1.NewFieldsV1("x"), []string{"f:spec"}, false},
		"no fields":                 {nil, []string{"f:spec"}, false},
	} {
		if got := HasField(c.set, c.path...); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
