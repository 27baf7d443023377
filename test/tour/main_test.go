//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage/stagetest"
)

func TestFlags(t *testing.T) {
	stagetest.Run(t, run, map[string]stagetest.Flags{
		"help teaches":       {Args: []string{"--help"}, Stdout: "make tour"},
		"a tour is not kept": {Args: []string{"--keep"}, Status: 2, Stderr: "see --help"},
	})
}

// TestScenariosAreNumberedThrough plays each scenario of the tour as if it ended as it should.
func TestScenariosAreNumberedThrough(t *testing.T) {
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		p := stage.NewPrinter(&out, color)
		p.Intro(acts(), costs)
		for _, act := range acts() {
			if err := p.Play(t.Context(), "Verdicts", stagetest.AsWanted(act.Scenarios)); err != nil {
				t.Error(err)
			}
		}
		if got := strings.Contains(out.String(), "\x1b["); got != color {
			t.Errorf("colour codes with color = %v: %v", color, got)
		}
		for _, want := range []string{"right", "leaked", "expected", "seen", "1. Claim deleted first",
			"5. Crash of external-provisioner", "7. In-tree PV first", "too early", "10. Forced pod", "12. Node fenced",
			"13. One claim", "14. One claim", "15. StatefulSets scaled", "make tour", "Verdict: "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in:\n%s", want, out.String())
			}
		}
		if !color {
			stagetest.ExpectNarrow(t, out.String())
		}
	}
}
