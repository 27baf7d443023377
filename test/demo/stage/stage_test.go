//go:build unix

package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConclude(t *testing.T) {
	untidy := fmt.Errorf("%w: folder not empty", errUntidy)
	cases := map[string]struct {
		err         error
		interrupted bool
		status      int
		line        string
	}{
		"all right":                            {nil, false, 0, ""},
		"Ctrl-C ends a kept cluster":           {nil, true, 0, ""},
		"something does not start":             {errors.New("no etcd"), false, 1, "no etcd"},
		"something is left behind":             {untidy, false, 1, "folder not empty"},
		"Ctrl-C in the middle":                 {context.Canceled, true, 130, "has ended"},
		"Ctrl-C, and something is left":        {errors.Join(context.Canceled, untidy), true, 130, "folder not empty"},
		"a wrong verdict, kept until Ctrl-C":   {errWrong, true, 1, "wrong verdict"},
		"a wrong verdict and something left":   {errors.Join(errWrong, untidy), false, 1, "folder not empty"},
		"a wrong verdict":                      {errWrong, false, 1, "wrong verdict"},
		"a deadline is not taken for a Ctrl-C": {context.DeadlineExceeded, false, 1, "deadline"},
	}
	for name, c := range cases {
		status, line := conclude(c.err, c.interrupted)
		if status != c.status || !strings.Contains(line, c.line) || (line == "") != (c.line == "") {
			t.Errorf("%s: %d %q, want %d with %q", name, status, line, c.status, c.line)
		}
	}
}

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

func TestTimelineIsSortedByTime(t *testing.T) {
	var out bytes.Buffer
	line := NewPrinter(&out, false).Timeline()
	line.Driver(line.start.Add(2*time.Second), "second")
	line.Driver(line.start.Add(20*time.Millisecond), "first")
	line.Print()
	if want := "      20 ms  driver  first\n    2.00 s   driver  second\n"; out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

func TestLiveTimelinePrintsImmediately(t *testing.T) {
	var out bytes.Buffer
	line := NewPrinter(&out, false).LiveTimeline()
	line.Demo("starting")
	if !strings.HasSuffix(out.String(), "demo    starting\n") {
		t.Errorf("printed %q", out.String())
	}
}

func TestWrap(t *testing.T) {
	if got := wrap("one two  three\nfour-and-five six", 9); !slices.Equal(got,
		[]string{"one two", "three", "four-and-five", "six"}) {
		t.Errorf("got %q", got)
	}
	if got := wrap("", 9); len(got) != 0 {
		t.Errorf("got %q for nothing", got)
	}
}
