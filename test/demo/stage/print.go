//go:build unix

package stage

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Printer writes plain text for people, with colour where it is shown on a terminal.
type Printer struct {
	// Out is where it writes to.
	Out    io.Writer
	color  bool
	played int // how many scenarios were
}

// NewPrinter returns a printer that has played no scenario.
func NewPrinter(out io.Writer, color bool) *Printer { return &Printer{Out: out, color: color} }

// The colours in use, as SGR codes (ECMA-48).
const (
	bold  = "1"
	red   = "31"
	green = "32"
	faint = "2"
)

func (p *Printer) paint(code, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Head prints a headline.
func (p *Printer) Head(text string) { fmt.Fprintf(p.Out, "\n%s\n", p.paint(bold, text)) }

// Raw prints a line as it is.
func (p *Printer) Raw(text string) { fmt.Fprintln(p.Out, text) }

// Say prints lines below a headline.
func (p *Printer) Say(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintln(p.Out, "  "+strings.TrimRight(line, "\n"))
	}
}

// Intro prints the acts and their cost in advance.
func (p *Printer) Intro(acts []Act, costs string) {
	p.Head("csi-reclaimer: a volume is deleted when, and only when, its reclaim policy says so")
	number := 0
	for _, a := range acts {
		p.Say(fmt.Sprintf("%s %d scenarios:", a.About, len(a.Scenarios)))
		for _, sc := range a.Scenarios {
			number++
			p.Say(fmt.Sprintf("  %2d. %-51s %s", number, sc.Title, sc.Ends))
		}
	}
	p.Say("The verdicts come from the API server, the driver's record of calls and the disk, never\n" +
		"from the programs that are shown.")
	p.Say(costs + "\nCtrl-C ends it all.")
}

// scenario announces the next scenario.
func (p *Printer) scenario(sc Scenario) {
	p.played++
	p.Head(fmt.Sprintf("%d. %s", p.played, sc.Title))
	p.Say(sc.Description)
}

// moral prints the verdict on a scenario, and its conclusion.
func (p *Printer) moral(v verdict) {
	if v.right() {
		p.Say(v.Conclusion)
		p.Say("Verdict: " + p.paint(green, v.word()) + " (" + inWords(v.seen) + ")")
		return
	}
	p.Say(p.paint(red, "Unexpected result."))
	p.Say(fmt.Sprintf("expected %s\nseen     %s", inWords(v.Want), inWords(v.seen)))
}

// table prints the expected end, the observed end and the verdict of each scenario that was played last.
func (p *Printer) table(verdicts []verdict) {
	first := p.played - len(verdicts) + 1
	var rows [][]string
	for _, v := range verdicts {
		rows = append(rows, v.Want.Cells(), v.seen.Cells())
	}
	for i, v := range verdicts {
		p.Say(p.paint(bold, fmt.Sprintf("%d. %s", first+i, v.Title)))
		p.Say("   expected  " + strings.TrimRight(aligned(v.Want.Cells(), rows), " "))
		p.Say("   seen      " + aligned(v.seen.Cells(), rows) + p.paint(v.color(), v.word()))
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

// Rounded is a duration as a person reads it.
func Rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// Count is a number of things as a person reads it.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
