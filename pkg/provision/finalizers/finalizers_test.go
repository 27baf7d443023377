package finalizers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestLegacyOf(t *testing.T) {
	long := strings.Repeat("a-long-name.", 20) + "example.com"
	names := map[string]bool{}
	for _, node := range []string{"n1", "ip-10-0-0-1.eu-central-1.compute.internal", long, "b" + long[1:],
		long[:len(long)-1]} {
		name := LegacyOf(node)
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			t.Errorf("%s: %q", name, problems)
		}
		if names[name] || !IsLegacy(name) {
			t.Errorf("%s is another's, or nobody's", name)
		}
		names[name] = true
	}
	if !names[Legacy+"-n1"] {
		t.Errorf("a short name is not in it: %v", names)
	}
}
