//go:build unix

package main

import "testing"

// allScaled is how every scenario of the fifth act should end.
func allScaled() (verdicts []verdict) {
	for _, sc := range setScenarios() {
		verdicts = append(verdicts, sc.verdict(sc.want))
	}
	return verdicts
}

func TestJudgeStatefulSets(t *testing.T) {
	for name, change := range map[string]func(*setOutcome){
		"the claim is kept, or deleted, wrongly": func(o *setOutcome) {
			o.claim = map[string]string{claimKept: claimDeleted, claimDeleted: claimKept}[o.claim]
		},
		"the volume is left, or gone, wrongly":  func(o *setOutcome) { o.onDisk = !o.onDisk },
		"a pod is missing, or too many":         func(o *setOutcome) { o.pods = 3 - o.pods },
		"the new pod has data of the old one":   func(o *setOutcome) { o.fresh = oldData },
		"another volume has lost its data":      func(o *setOutcome) { o.others = false },
		"the plugin was wrong about the claims": func(o *setOutcome) { o.plugin = mistaken },
		"the plugin has missed a retained one":  func(o *setOutcome) { o.plugin = unlisted },
	} {
		for i, sc := range setScenarios() {
			seen := sc.want
			change(&seen)
			t.Run(name+": "+sc.title, func(t *testing.T) { expectNoticed(t, allScaled(), i, seen) })
		}
	}
}
