package explain

import (
	"fmt"
	"strings"
)

// labelWidth is how wide the names of facts are written.
const labelWidth = 12

// Text is the story for a terminal. Wide says who put each finalizer on, too.
func (s Story) Text(wide bool) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Headline)
	fmt.Fprintln(&b)
	line := func(name, text string) { fmt.Fprintf(&b, "%-*s %s\n", labelWidth, name, text) }
	for _, f := range s.Facts {
		line(f.Name, f.Text)
	}
	lines := func(name string, all []string) {
		for _, text := range all {
			line(name, text)
			name = ""
		}
	}
	var finalizers []string
	for _, f := range s.Finalizers {
		finalizers = append(finalizers, f.text(wide))
	}
	lines("Finalizers", finalizers)
	if d := s.Decision; d != nil {
		what := d.Reason
		if d.Action != "" {
			what = d.Action + ", " + d.Reason
		}
		line("Decision", what+" (by "+d.By+")")
		if !strings.Contains(s.Headline, bare(d.Text)) {
			line("", d.Text)
		}
	}
	lines("Waits for", s.WaitsFor)
	lines("You can", s.Advice)
	lines("Said", s.Said)
	lines("Not read", s.Unread)
	if s.PV != nil {
		fmt.Fprintln(&b)
		fmt.Fprint(&b, s.PV.Text(wide))
	}
	return b.String()
}

func (f Finalizer) text(wide bool) string {
	text := f.Name + ": "
	switch {
	case f.Stuck != "":
		text += "nobody takes it off, for " + f.Stuck
	case f.Owner == "":
		text += "not known here who takes it off"
	default:
		text += f.Owner + " takes it off " + f.When
	}
	if wide && f.PutOnBy != "" {
		text += " (put on by " + f.PutOnBy + ")"
	}
	return text
}
