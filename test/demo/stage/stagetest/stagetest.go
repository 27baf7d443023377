//go:build unix

// Package stagetest checks that scenarios are judged by how they end.
package stagetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
)

// AsWanted returns scenarios that end as they should when they are played.
func AsWanted(scenarios []stage.Scenario) []stage.Scenario {
	var all []stage.Scenario
	for _, sc := range scenarios {
		sc.Play, sc.Again = func(context.Context) (stage.Ending, error) { return sc.Want, nil }, nil
		all = append(all, sc)
	}
	return all
}

// Judged checks that all is right where scenarios end as they should, and that each change of an end is noticed. The
// changes have names; E is the type of the ends.
func Judged[E stage.Ending](t *testing.T, scenarios []stage.Scenario, changes map[string]func(*E)) {
	t.Helper()
	if out, err := play(t, AsWanted(scenarios)); err != nil {
		t.Errorf("all as wanted: %v, printed\n%s", err, out)
	}
	for name, change := range changes {
		for i, sc := range scenarios {
			seen := sc.Want.(E)
			change(&seen)
			t.Run(name+": "+sc.Title, func(t *testing.T) { expectNoticed(t, scenarios, i, seen) })
		}
	}
}

func play(t *testing.T, scenarios []stage.Scenario) (out string, err error) {
	var buffer bytes.Buffer
	err = stage.NewPrinter(&buffer, false).Play(t.Context(), "Verdicts", scenarios)
	return buffer.String(), err
}

// expectNoticed checks that all is said of one scenario that ended in another way than it should.
func expectNoticed(t *testing.T, scenarios []stage.Scenario, i int, seen stage.Ending) {
	t.Helper()
	all, sc := AsWanted(scenarios), scenarios[i]
	all[i].Play = func(context.Context) (stage.Ending, error) { return seen, nil }
	out, err := play(t, all)
	if err == nil || !stage.Judged(err) {
		t.Fatalf("%v, want a wrong verdict", err)
	}
	for _, want := range []string{sc.Title, strings.Join(sc.Want.Cells(), ", "), strings.Join(seen.Cells(), ", ")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if strings.Count(out, "WRONG") != 1 {
		t.Errorf("the table shows not one WRONG:\n%s", out)
	}
	if conclusion, _, _ := strings.Cut(sc.Conclusion, "\n"); strings.Contains(out, conclusion) {
		t.Errorf("says what did not happen:\n%s", out)
	}
}

// ExpectNarrow checks that text fits a terminal of 100 columns.
func ExpectNarrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if len(line) > 100 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// Flags are the arguments of a command, with its exit status and a part of what it prints.
type Flags struct {
	Args           []string
	Status         int
	Stdout, Stderr string
}

// Run runs a command with each of the arguments, and with those that every command knows, or does not know. None may
// have it start something.
func Run(t *testing.T, run func(args []string, stdout *os.File, stderr io.Writer) int, cases map[string]Flags) {
	t.Helper()
	cases["an unknown flag"] = Flags{[]string{"--kep"}, 2, "", "see --help"}
	cases["an argument"] = Flags{[]string{"keep"}, 2, "", `argument "keep" is not known`}
	cases["help, exit codes"] = Flags{[]string{"-h"}, 0, "130", ""}
	for name, c := range cases {
		stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		status := run(c.Args, stdout, &stderr)
		printed, err := os.ReadFile(stdout.Name())
		if err := errors.Join(err, stdout.Close()); err != nil {
			t.Fatal(err)
		}
		if status != c.Status || !strings.Contains(string(printed), c.Stdout) || !strings.Contains(stderr.String(),
			c.Stderr) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", name, status, printed, stderr.String())
		}
	}
}
