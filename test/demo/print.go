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
	out    io.Writer
	color  bool
	played int // how many scenarios were
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

// act is a group of scenarios, as the intro lists it.
type act struct {
	about     string
	scenarios [][2]string // the title, and how it ends
}

// intro prints the acts and their cost in advance.
func (p *printer) intro(acts []act, costs string) {
	p.head("csi-reclaimer: a volume is deleted when, and only when, its reclaim policy says so")
	number := 0
	for _, a := range acts {
		p.say(fmt.Sprintf("%s %d scenarios:", a.about, len(a.scenarios)))
		for _, sc := range a.scenarios {
			number++
			p.say(fmt.Sprintf("  %2d. %-51s %s", number, sc[0], sc[1]))
		}
	}
	p.say("The verdicts come from the API server, the driver's record of calls and the disk, never\n" +
		"from the programs that are shown.")
	p.say(costs + "\nCtrl-C ends it all.")
}

// scenario announces the next scenario.
func (p *printer) scenario(title, description string) {
	p.played++
	p.head(fmt.Sprintf("%d. %s", p.played, title))
	p.say(description)
}

// moral prints the verdict on a scenario, and its conclusion.
func (p *printer) moral(v verdict) {
	if v.right() {
		p.say(v.conclusion)
		p.say("Verdict: " + p.paint(green, v.word()) + " (" + v.seen.String() + ")")
		return
	}
	p.say(p.paint(red, "Unexpected result."))
	p.say(fmt.Sprintf("expected %v\nseen     %v", v.want, v.seen))
}

// timeline collects the events of one scenario. It is printed in the order of the times at the scenario's end, because
// the driver's record is read only then.
type timeline struct {
	p     *printer
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

func (p *printer) timeline() *timeline { return &timeline{p: p, start: time.Now()} }

// liveTimeline returns a timeline that prints at once, for scenarios that take seconds and have one source.
func (p *printer) liveTimeline() *timeline { return &timeline{p: p, start: time.Now(), live: true} }

func (t *timeline) user(what string)   { t.add(time.Now(), "user", what) }
func (t *timeline) api(what string)    { t.add(time.Now(), "API", what) }
func (t *timeline) demo(what string)   { t.add(time.Now(), "demo", what) }
func (t *timeline) plugin(what string) { t.add(time.Now(), "plugin", what) }
func (t *timeline) disk(n int)         { t.add(time.Now(), "disk", count(n, "volume")) }
func (t *timeline) folder(there bool) {
	t.add(time.Now(), "disk", "the directory is "+map[bool]string{true: "there", false: "gone"}[there])
}

func (t *timeline) driver(at time.Time, what string) { t.add(at, "driver", what) }

func (t *timeline) add(at time.Time, who, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := entry{at, who, what}
	if t.live {
		t.printOne(e)
		return
	}
	t.entries = append(t.entries, e)
}

func (t *timeline) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.entries, func(a, b entry) int { return a.at.Compare(b.at) })
	for _, e := range t.entries {
		t.printOne(e)
	}
}

func (t *timeline) printOne(e entry) {
	fmt.Fprintf(t.p.out, "  %s  %-6s  %s\n", t.p.paint(faint, since(e.at.Sub(t.start))), e.who, e.what)
}

// since is a time of a timeline, in a column of fixed width.
func since(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%6d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%6.2f s ", d.Seconds())
}

// rounded is a duration as a person reads it.
func rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func (o outcome) String() string { return strings.Join(o.cells(), ", ") }

func (o outcome) cells() []string {
	finalizer := "never protected"
	switch {
	case o.held:
		finalizer = "still protected"
	case o.protected:
		finalizer = "was protected"
	}
	calls := count(o.deleteCalls, "DeleteVolume call")
	if o.late {
		calls += " (too late)"
	}
	volume := "volume gone"
	if o.onDisk {
		volume = "volume on disk"
	}
	return []string{"PV " + o.pv, finalizer, calls, volume}
}

// table prints the expected end, the observed end and the verdict of each scenario that was played last.
func (p *printer) table(verdicts []verdict) {
	first := p.played - len(verdicts) + 1
	var rows [][]string
	for _, v := range verdicts {
		rows = append(rows, v.want.cells(), v.seen.cells())
	}
	for i, v := range verdicts {
		p.say(p.paint(bold, fmt.Sprintf("%d. %s", first+i, v.title)))
		p.say("   expected  " + strings.TrimRight(aligned(v.want.cells(), rows), " "))
		p.say("   seen      " + aligned(v.seen.cells(), rows) + p.paint(v.color(), v.word()))
	}
}

// aligned joins cells, each as wide as the widest of its column.
func aligned(cells []string, rows [][]string) string {
	line := ""
	for column, cell := range cells {
		width := 0
		for _, row := range rows {
			width = max(width, len(row[column]))
		}
		line += fmt.Sprintf("%-*s  ", width, cell)
	}
	return line
}

func (v verdict) word() string {
	switch {
	case !v.right():
		return "WRONG"
	case v.harm != "":
		return v.harm
	}
	return "right"
}

func (v verdict) color() string {
	if v.right() {
		return green
	}
	return red
}
