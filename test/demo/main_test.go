//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/scenarios"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage/stagetest"
)

func TestFlags(t *testing.T) {
	stagetest.Run(t, run, map[string]stagetest.Flags{
		"help teaches":                    {Args: []string{"--help"}, Stdout: "--keep"},
		"the tour is a command by itself": {Args: []string{"--tour"}, Status: 2, Stderr: "see --help"},
	})
}

func TestIntroAndEndNameScenariosAndTour(t *testing.T) {
	var out bytes.Buffer
	p := stage.NewPrinter(&out, false)
	p.Intro([]stage.Act{scenarios.Act()}, costs)
	more(p)
	for _, want := range []string{"1. Claim deleted first", "4. PV deleted first, policy not honored", "make tour"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	stagetest.ExpectNarrow(t, out.String())
}
