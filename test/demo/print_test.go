//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPrinting(t *testing.T) {
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		p := newPrinter(&out, color)
		p.intro(append([]act{firstAct()}, laterActs()...), tourCosts)
		p.intro([]act{firstAct()}, demoCosts)
		p.more()
		line := p.timeline()
		line.disk(1)
		line.disk(2)
		line.driver(line.start, "receives DeleteVolume")
		line.print()
		line.folder(true)
		playAll(t, p)
		if got := strings.Contains(out.String(), "\x1b["); got != color {
			t.Errorf("colour codes with color = %v: %v", color, got)
		}
		for _, want := range []string{"1 volume\n", "2 volumes\n", "receives DeleteVolume", "right", "leaked", "expected",
			"seen", "1. Claim deleted first", "5. Crash of external-provisioner", "7. In-tree PV first", "too early",
			"10. Forced pod", "12. Node fenced", "13. One claim", "14. One claim", "15. StatefulSets scaled", "make tour",
			"Verdict: "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in:\n%s", want, out.String())
			}
		}
		for line := range strings.Lines(out.String()) {
			if !color && len(line) > 100 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
	}
}

// playAll prints each scenario of the tour as if it had ended as it should.
func playAll(t *testing.T, p *printer) {
	t.Helper()
	var descriptions []string
	for _, sc := range scenarios() {
		descriptions = append(descriptions, sc.description)
	}
	for _, sc := range crashScenarios() {
		descriptions = append(descriptions, sc.description)
	}
	for _, sc := range guardScenarios() {
		descriptions = append(descriptions, sc.description)
	}
	for _, sc := range podScenarios() {
		descriptions = append(descriptions, sc.description)
	}
	for _, sc := range lockScenarios() {
		descriptions = append(descriptions, sc.description)
	}
	for _, sc := range setScenarios() {
		descriptions = append(descriptions, sc.description)
	}
	for _, verdicts := range [][]verdict{allRight(), allCrashed(), allGuarded(), allHeld(), allLocked(), allScaled()} {
		var all []staged
		for _, v := range verdicts {
			all = append(all, staged{title: v.title, description: descriptions[p.played+len(all)],
				play: func(context.Context) (verdict, error) { return v, nil }})
		}
		if err := p.play(t.Context(), "Verdicts", all); err != nil {
			t.Error(err)
		}
	}
}

// A later scenario can spoil the result of an earlier one.
func TestScenarioIsJudgedAgainAfterAllOthers(t *testing.T) {
	v := allRight()[0]
	wrong := v
	wrong.seen = outcome{}
	var out bytes.Buffer
	err := newPrinter(&out, false).play(t.Context(), "Verdicts", []staged{{title: v.title,
		play:  func(context.Context) (verdict, error) { return v, nil },
		again: func(context.Context) (verdict, error) { return wrong, nil }}})
	if !errors.Is(err, errWrong) || !strings.Contains(out.String(), "Verdict: right") {
		t.Errorf("%v, printed\n%s", err, out.String())
	}
}

func TestTableIsAligned(t *testing.T) {
	verdicts := allRight()
	verdicts[1].seen = outcome{pv: "Released", protected: true, held: true, deleteCalls: 12, late: true, onDisk: true}
	var out bytes.Buffer
	newPrinter(&out, false).table(verdicts)
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

func TestTimelineIsSortedByTime(t *testing.T) {
	var out bytes.Buffer
	line := newPrinter(&out, false).timeline()
	line.driver(line.start.Add(2*time.Second), "second")
	line.driver(line.start.Add(20*time.Millisecond), "first")
	line.print()
	if want := "      20 ms  driver  first\n    2.00 s   driver  second\n"; out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

func TestLiveTimelinePrintsImmediately(t *testing.T) {
	var out bytes.Buffer
	line := newPrinter(&out, false).liveTimeline()
	line.demo("starting")
	if !strings.HasSuffix(out.String(), "demo    starting\n") {
		t.Errorf("printed %q", out.String())
	}
}
