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

	v1 "k8s.io/api/core/v1"
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

// intro says what is about to happen and what it takes.
func (p *printer) intro(scenarios []scenario, guarded []guardScenario, pods []podScenario,
	locks []lockScenario, sets []setScenario) {
	p.head("csi-reclaimer: a volume is deleted when, and only when, its reclaim policy says so")
	p.say("Shown on real objects: a Kubernetes API server and controller manager, a CSI driver with\n" +
		"its volumes as folders on disk, and csi-reclaimer between them. " + strconv.Itoa(len(scenarios)) + " scenarios:")
	for i, sc := range scenarios {
		ends := "the volume is deleted"
		switch {
		case sc.sidecarOff:
			ends = "the volume leaks"
		case sc.want.onDisk:
			ends = "the volume stays"
		}
		p.say(fmt.Sprintf("  %d. %-36s policy %-7s %s", i+1, sc.title, sc.policy, ends))
	}
	p.say("Then volume-guard beside an older Kubernetes, whose in-tree plugins have no such sidecar.\n" +
		strconv.Itoa(len(guarded)) + " scenarios:")
	for i, sc := range guarded {
		p.say(fmt.Sprintf("  %d. %-36s policy %-7s %s", len(scenarios)+i+1, sc.title, v1.PersistentVolumeReclaimDelete,
			sc.ends))
	}
	p.say("Then pods whose node is cut off, with volume-guard and without. " + strconv.Itoa(len(pods)) + " scenarios:")
	for i, sc := range pods {
		p.say(fmt.Sprintf("  %d. %-51s %s", len(scenarios)+len(guarded)+i+1, sc.title, sc.ends))
	}
	before := len(scenarios) + len(guarded) + len(pods)
	p.say("Then Deployments that share a claim, with a lock and without. " + strconv.Itoa(len(locks)) + " scenarios:")
	for i, sc := range locks {
		p.say(fmt.Sprintf("  %d. %-50s %s", before+i+1, sc.title, sc.ends))
	}
	before += len(locks)
	p.say("Then StatefulSets that are scaled down, with volume-guard and without. " + strconv.Itoa(len(sets)) +
		" scenarios:")
	for i, sc := range sets {
		p.say(fmt.Sprintf("  %d. %-50s %s", before+i+1, sc.title, sc.ends))
	}
	p.say("The verdicts come from the API server, the driver's record of calls and the disk, never\n" +
		"from csi-reclaimer or volume-guard themselves.")
	p.say("Needs Go and about 5 GiB of build cache; neither root nor containers, with which the nodes\n" +
		"that are cut off are real. The first run compiles Kubernetes, twice, which takes minutes; later\n" +
		"ones take seconds. Ctrl-C ends it all.")
}

// scenario announces a scenario.
func (p *printer) scenario(number int, title, description string) {
	p.head(fmt.Sprintf("%d. %s", number, title))
	p.say(description)
}

// moral says what a scenario shows, or that it showed something else.
func (p *printer) moral(v verdict) {
	if v.right() {
		p.say(v.conclusion)
		return
	}
	p.say(p.paint(red, "Unexpected result."))
	p.say(fmt.Sprintf("expected %v\nseen     %v", v.want, v.seen))
}

// timeline collects what happens in one scenario. It is printed in the order of the times, at
// the scenario's end: what the driver recorded is read only then.
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

// liveTimeline is for what takes seconds and has one witness.
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

// table prints for each scenario what was expected, what was seen, and the verdict. The first scenario has
// the number first.
func (p *printer) table(first int, verdicts []verdict) {
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
