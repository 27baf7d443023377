package picture

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// scheme is a set of colours, by purpose.
type scheme map[string]string

// light is for readers without a preference, and for programs that do not know preferences.
func light() scheme {
	return scheme{"ground": "#ffffff", "edge": "#d1d9e0", "text": "#1f2328", "soft": "#59636e", "lane": "#9aa4af",
		"head": "#eef1f4", "does": "#0b57a8", "bar": "#c6d9f1", "barEdge": "#0b57a8",
		"fact": "#ffffff", "factEdge": "#59636e", "waits": "#fff6d6", "waitsEdge": "#8a5d00", "acts": "#e2f6e6",
		"actsEdge": "#1a6b34"}
}

func dark() scheme {
	return scheme{"ground": "#0d1117", "edge": "#3d444d", "text": "#f0f6fc", "soft": "#a9b3be", "lane": "#6b7683",
		"head": "#21262d", "does": "#79b8ff", "bar": "#1f3a5c", "barEdge": "#79b8ff",
		"fact": "#0d1117", "factEdge": "#a9b3be", "waits": "#33270a", "waitsEdge": "#e3b341", "acts": "#10301c",
		"actsEdge": "#56d374"}
}

// rules are the style of a scheme.
func (c scheme) rules() string {
	return strings.NewReplacer(c.pairs()...).Replace(`.ground{fill:$ground;stroke:$edge}
.band{fill:$ground}
text{fill:$text}
.f-head{fill:$head;stroke:$soft}
.f-fact{fill:$fact;stroke:$factEdge}
.f-waits{fill:$waits;stroke:$waitsEdge}
.f-acts{fill:$acts;stroke:$actsEdge}
.f-bar{fill:$bar;stroke:$barEdge}
.l-lane{stroke:$lane}
.l-rule{stroke:$edge}
.l-does{stroke:$does}
.l-asks{stroke:$soft}
.h-does{fill:$does}
.h-asks{fill:none;stroke:$soft}
.t-asks{fill:$soft}
`)
}

// pairs are for a Replacer, the longer names first: it takes the first that fits.
func (c scheme) pairs() (all []string) {
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		all = append(all, "$"+name, c[name])
	}
	return all
}

// shape is the style that both schemes share.
const shape = `text{font-family:Helvetica,Arial,"Liberation Sans",sans-serif;text-anchor:middle}
.code{font-family:ui-monospace,Menlo,Consolas,"Liberation Mono","DejaVu Sans Mono",monospace;font-weight:600}
.start{text-anchor:start}
.t-head,.t-section{font-weight:600}
.f-fact,.f-head{stroke-width:1}
.f-waits{stroke-width:1.5;stroke-dasharray:5 3}
.f-acts{stroke-width:2}
.f-bar{stroke-width:1}
.l-lane{stroke-width:1;stroke-dasharray:2 4}
.l-rule{stroke-width:1}
.l-does,.l-asks{fill:none;stroke-width:1.5}
.l-asks{stroke-dasharray:4 3}
.h-asks{stroke-width:1.5}
`

// SVG returns the picture.
func (s *Sequence) SVG() string {
	l := s.lay()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" `+
		`aria-labelledby="title desc">`+"\n", l.w, l.h, l.w, l.h)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n", escape(s.Title),
		escape(s.Description))
	fmt.Fprintf(&b, "<style>\n%s%s@media (prefers-color-scheme: dark){\n%s}\n</style>\n", shape, light().rules(),
		dark().rules())
	fmt.Fprintf(&b, `<rect class="ground" x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8"/>`+"\n", l.w-1, l.h-1)
	for _, x := range l.lines {
		if x.class == "lane" {
			x.write(&b)
		}
	}
	for _, r := range l.bands {
		fmt.Fprintf(&b, `<rect class="band" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", r.x, r.y, r.w, r.h)
	}
	for _, x := range l.lines {
		if x.class == "rule" {
			x.write(&b)
		}
	}
	for _, f := range slices.Concat(l.bars, l.frames) {
		fmt.Fprintf(&b, `<rect class="f-%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.0f"/>`+"\n", f.class, f.x, f.y, f.w,
			f.h, f.round)
	}
	for _, x := range l.lines {
		if x.head {
			x.write(&b)
		}
	}
	for _, t := range l.labels {
		class := "t-" + t.class
		if t.code {
			class += " code"
		}
		if t.start {
			class += " start"
		}
		fmt.Fprintf(&b, `<text class="%s" x="%.1f" y="%.1f" font-size="%g">%s</text>`+"\n", class, t.at.x, t.at.y, t.size,
			escape(t.text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// write draws a line. Its head is a shape, since not every program knows markers.
func (x line) write(b *strings.Builder) {
	points := slices.Clone(x.points)
	end := points[len(points)-1]
	if x.head {
		before := points[len(points)-2]
		toward := 1.0
		if end.x < before.x {
			toward = -1
		}
		fmt.Fprintf(b, `<path class="h-%s" d="M%.1f %.1f L%.1f %.1f L%.1f %.1f`, x.class, end.x-9*toward, end.y-4.5,
			end.x, end.y, end.x-9*toward, end.y+4.5)
		if x.class == "does" {
			b.WriteString(" Z")
		}
		b.WriteString("\"/>\n")
	}
	fmt.Fprintf(b, `<path class="l-%s" d="`, x.class)
	for i, p := range points {
		letter := " L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(b, "%s%.1f %.1f", letter, p.x, p.y)
	}
	b.WriteString("\"/>\n")
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
