//go:build unix

package pods

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage/stagetest"
)

func TestJudge(t *testing.T) {
	stagetest.Judged(t, Act().Scenarios, map[string]func(*podOutcome){
		"a force deletion is refused, or not, wrongly": func(o *podOutcome) {
			o.deleted = map[string]string{admitted: refused, refused: admitted, evictedPod: refused}[o.deleted]
		},
		"the pod is replaced too early, or not at all": func(o *podOutcome) {
			o.replaced = map[string]string{replacedEarly: replacedLate, replacedLate: replacedEarly,
				replacedFenced: replacedEarly}[o.replaced]
		},
		"two pods write, or one does, wrongly": func(o *podOutcome) { o.data += " not" },
	})
}
