//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// printer writes plain text for people, with colour where it is shown on a terminal.
type printer struct {
	out   io.Writer
	color bool
}

func newPrinter(out io.Writer, color bool) *printer { return &printer{out: out, color: color} }

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// The colours in use, as SGR codes (ECMA-48).
const (
	bold  = "1"
	red   = "31"
	green = "32"
	faint = "2"
)

func (p *printer) paint(code, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *printer) head(text string) { fmt.Fprintf(p.out, "\n%s\n", p.paint(bold, text)) }
func (p *printer) raw(text string)  { fmt.Fprintln(p.out, text) }

func (p *printer) say(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintln(p.out, "  "+strings.TrimRight(line, "\n"))
	}
}

// timeline collects what happens in one scene. It is printed in the order of the times, at
// the scene's end: what the driver recorded is read only then.
type timeline struct {
	p     *printer
	start time.Time

	mu      sync.Mutex
	entries []entry
}

// entry is one line of a timeline.
type entry struct {
	at        time.Time
	who, what string
}

func (p *printer) timeline() *timeline { return &timeline{p: p, start: time.Now()} }

func (t *timeline) user(what string) { t.add(time.Now(), "user", what) }
func (t *timeline) api(what string)  { t.add(time.Now(), "API", what) }
func (t *timeline) disk(n int) {
	noun := "volumes"
	if n == 1 {
		noun = "volume"
	}
	t.add(time.Now(), "disk", fmt.Sprintf("%d %s", n, noun))
}
func (t *timeline) driver(at time.Time, what string) { t.add(at, "driver", what) }

func (t *timeline) add(at time.Time, who, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, entry{at, who, what})
}

func (t *timeline) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.entries, func(a, b entry) int { return a.at.Compare(b.at) })
	for _, e := range t.entries {
		since := fmt.Sprintf("%7.0f ms", float64(e.at.Sub(t.start).Microseconds())/1000)
		fmt.Fprintf(t.p.out, "  %s  %-6s  %s\n", t.p.paint(faint, since), e.who, e.what)
	}
}

// result is a scene with how it ended.
type result struct {
	scene scene
	seen  outcome
}

func (r result) right() bool { return r.seen == r.scene.want }

func (o outcome) String() string {
	calls := fmt.Sprintf("%d DeleteVolume calls", o.deleteCalls)
	if o.deleteCalls == 1 {
		calls = "1 DeleteVolume call"
	}
	volume := "volume gone"
	if o.onDisk {
		volume = "volume on disk"
	}
	return fmt.Sprintf("PV %s, %s, %s", o.pv, calls, volume)
}

// cells are the columns of the table.
func (o outcome) cells() []string {
	disk := "gone"
	if o.onDisk {
		disk = "on disk"
	}
	return []string{o.pv, strconv.Itoa(o.deleteCalls), disk}
}

// table prints a line for each scene, its columns as wide as they need to be.
func (p *printer) table(results []result) {
	rows := [][]string{{"scenario", "PV", "calls", "volume", "verdict"}}
	for _, r := range results {
		rows = append(rows, append(append([]string{r.scene.title}, r.seen.cells()...), verdict(r)))
	}
	for i, row := range rows {
		line := ""
		for column, cell := range row[:len(row)-1] {
			line += fmt.Sprintf("%-*s  ", width(rows, column), cell)
		}
		last := row[len(row)-1]
		switch {
		case i == 0:
		case results[i-1].right():
			last = p.paint(green, last)
		default:
			last = p.paint(red, last)
		}
		fmt.Fprintf(p.out, "  %s%s\n", line, last)
	}
}

func width(rows [][]string, column int) int {
	longest := 0
	for _, row := range rows {
		longest = max(longest, len(row[column]))
	}
	return longest
}

func verdict(r result) string {
	switch {
	case !r.right():
		return "WRONG"
	case r.scene.sidecarOff:
		return "leaked, as without us"
	}
	return "right"
}
