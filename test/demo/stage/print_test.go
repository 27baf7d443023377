//go:build unix

package stage

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// end is an end of a scenario, with a bar between its cells.
type end string

func (e end) Cells() []string { return strings.Split(string(e), "|") }

// A later scenario can spoil the result of an earlier one.
func TestScenarioIsJudgedAgainAfterAllOthers(t *testing.T) {
	ends := func(e end) func(context.Context) (Ending, error) {
		return func(context.Context) (Ending, error) { return e, nil }
	}
	var out bytes.Buffer
	err := NewPrinter(&out, false).Play(t.Context(), "Verdicts", []Scenario{{Title: "PV deleted first",
		Want: end("volume gone"), Play: ends("volume gone"), Again: ends("volume on disk")}})
	if !errors.Is(err, errWrong) || !strings.Contains(out.String(), "Verdict: right") {
		t.Errorf("%v, printed\n%s", err, out.String())
	}
}

func TestErrorOfScenarioIsNoVerdict(t *testing.T) {
	broken := errors.New("no etcd")
	err := NewPrinter(&bytes.Buffer{}, false).Play(t.Context(), "Verdicts", []Scenario{{Title: "PV deleted first",
		Want: end("volume gone"), Play: func(context.Context) (Ending, error) { return nil, broken }}})
	if !errors.Is(err, broken) || Judged(err) {
		t.Errorf("%v, judged %v, want no verdict", err, Judged(err))
	}
}

func TestTableIsAligned(t *testing.T) {
	verdicts := []verdict{
		{Scenario{Title: "Claim deleted first", Want: end("PV gone|1 DeleteVolume call|volume gone")},
			end("PV gone|1 DeleteVolume call|volume gone")},
		{Scenario{Title: "PV deleted first", Want: end("PV gone|1 DeleteVolume call|volume gone")},
			end("PV Released|12 DeleteVolume calls (too late)|volume on disk")},
	}
	var out bytes.Buffer
	NewPrinter(&out, false).table(verdicts)
	lastCells := map[int]bool{} // where "volume gone" and "volume on disk" begin
	for line := range strings.Lines(out.String()) {
		if at := strings.LastIndex(line, "volume "); at >= 0 {
			lastCells[at] = true
		}
	}
	if len(lastCells) != 1 {
		t.Errorf("the last column begins at %v:\n%s", lastCells, out.String())
	}
}

func TestCountHasPluralOfNoun(t *testing.T) {
	for n, want := range map[int]string{0: "0 volumes", 1: "1 volume", 2: "2 volumes"} {
		if got := Count(n, "volume"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
