//go:build unix

package sets

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage/stagetest"
)

func TestJudge(t *testing.T) {
	stagetest.Judged(t, Act().Scenarios, map[string]func(*outcome){
		"the claim is kept, or deleted, wrongly": func(o *outcome) {
			o.claim = map[string]string{claimKept: claimDeleted, claimDeleted: claimKept}[o.claim]
		},
		"the volume is left, or gone, wrongly":  func(o *outcome) { o.onDisk = !o.onDisk },
		"a pod is missing, or too many":         func(o *outcome) { o.pods = 3 - o.pods },
		"the new pod has data of the old one":   func(o *outcome) { o.fresh = oldData },
		"another volume has lost its data":      func(o *outcome) { o.others = false },
		"the plugin was wrong about the claims": func(o *outcome) { o.plugin = mistaken },
		"the plugin has missed a retained one":  func(o *outcome) { o.plugin = unlisted },
	})
}
