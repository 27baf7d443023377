package provision

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestNamedAlone(t *testing.T) {
	for uid, c := range map[types.UID]struct {
		name  string
		alone bool
	}{
		"0f0c-4b1e": {"pvc-0f0c-4b1e", true}, "0f0c-4b1f": {"pvc-0f0c4b1f", true}, "0f0c-4b20": {"pvc-0f0c", false},
	} {
		if got := (Claim{UID: uid, PVName: c.name}).namedAlone(); got != c.alone {
			t.Errorf("%s under %s: alone %v", uid, c.name, got)
		}
	}
}
