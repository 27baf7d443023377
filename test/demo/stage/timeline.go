//go:build unix

package stage

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Timeline collects the events of one scenario. It is printed in the order of the times at the scenario's end, because
// the driver's record is read only then. Its methods may be called at the same time.
type Timeline struct {
	p     *Printer
	start time.Time
	live  bool // each line is printed when it is written down

	mu      sync.Mutex
	entries []entry
}

// entry is one line of a timeline.
type entry struct {
	at        time.Time
	who, what string
}

// Timeline returns a timeline that begins now.
func (p *Printer) Timeline() *Timeline { return &Timeline{p: p, start: time.Now()} }

// LiveTimeline returns a timeline that prints at once, for scenarios that take seconds and have one source.
func (p *Printer) LiveTimeline() *Timeline { return &Timeline{p: p, start: time.Now(), live: true} }

// User records what a user does.
func (t *Timeline) User(what string) { t.add(time.Now(), "user", what) }

// API records what the API server says.
func (t *Timeline) API(what string) { t.add(time.Now(), "API", what) }

// Demo records what the program itself does.
func (t *Timeline) Demo(what string) { t.add(time.Now(), "demo", what) }

// Disk records what is on a disk.
func (t *Timeline) Disk(what string) { t.add(time.Now(), "disk", what) }

// Driver records a call that the CSI driver received.
func (t *Timeline) Driver(at time.Time, what string) { t.add(at, "driver", what) }

// Plugin records the output of kubectl reclaim, in lines that fit.
func (t *Timeline) Plugin(text string) {
	for _, line := range wrap(text, 78) {
		t.add(time.Now(), "plugin", line)
	}
}

func (t *Timeline) add(at time.Time, who, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := entry{at, who, what}
	if t.live {
		t.printOne(e)
		return
	}
	t.entries = append(t.entries, e)
}

// Print prints what was not printed at once.
func (t *Timeline) Print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.entries, func(a, b entry) int { return a.at.Compare(b.at) })
	for _, e := range t.entries {
		t.printOne(e)
	}
}

func (t *Timeline) printOne(e entry) {
	fmt.Fprintf(t.p.Out, "  %s  %-6s  %s\n", t.p.paint(faint, since(e.at.Sub(t.start))), e.who, e.what)
}

// since is a time of a timeline, in a column of fixed width.
func since(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%6d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%6.2f s ", d.Seconds())
}

// wrap breaks a text into lines of at most so many bytes, save for longer words.
func wrap(text string, width int) (lines []string) {
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
