package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// sound is a picture with one of everything.
func sound() *Sequence {
	s := &Sequence{Title: "A <title>", Description: "What & why", Lanes: []string{"one", "another", "a third"}}
	s.Section("Begin")
	s.Does(0, 2, "a short word")
	s.Box(1, Waits, "Reason", "because of something that takes more than one line to say")
	s.Begin(1)
	s.Asks(2, 1, "reads")
	s.Does(1, 1, "alone")
	s.End(1)
	s.Box(0, Fact, "", "left")
	s.Beside(1, Acts, "Middle", "the middle")
	s.Beside(2, Fact, "", "right")
	s.Begin(2)
	s.Section("End")
	return s
}

func TestCheckAcceptsSoundPicture(t *testing.T) {
	if problems := sound().Check(); len(problems) > 0 {
		t.Error(strings.Join(problems, "\n"))
	}
}

// TestCheckReportsFaults breaks a sound picture in ways that the layout itself never does.
func TestCheckReportsFaults(t *testing.T) {
	for want, broken := range map[string]func() *Sequence{
		"nothing is said":     func() *Sequence { s := sound(); s.Title = ""; return s },
		"reaches over":        func() *Sequence { s := sound(); s.Section(strings.Repeat("too long ", 40)); return s },
		"meets a bar":         func() *Sequence { s := sound(); overBar(s); return s },
		"a fact meets a fact": twice,
	} {
		if problems := broken().Check(); !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("%q is not found: %q", want, problems)
		}
	}
	l := &layout{lanes: []float64{10, 90}, bars: []frame{{rect: rect{5, 0, 10, 50}}},
		lines: []line{{points: []point{{10, 20}, {90, 20}}, head: true}, {points: []point{{15, 20}, {80, 20}}, head: true}}}
	if problems := l.looseArrows(); len(problems) != 2 {
		t.Errorf("an arrow begins within a bar, one ends before its lane: %q", problems)
	}
}

// twice has two boxes of one actor beside each other.
func twice() *Sequence {
	s := sound()
	s.Box(0, Fact, "", "a")
	s.Beside(0, Fact, "", "b")
	return s
}

// overBar adds an arrow with words that are too long for the place before the bar.
func overBar(s *Sequence) {
	s.Box(1, Fact, "", "there")
	s.Begin(1)
	s.Does(0, 2, "words that do not fit beside the first")
}

func TestSVGIsWellFormedAndDescribed(t *testing.T) {
	text := sound().SVG()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{`role="img"`, "<title id=\"title\">A &lt;title&gt;</title>",
		"<desc id=\"desc\">What &amp; why</desc>", "@media (prefers-color-scheme: dark)", ">waits: Reason</text>"} {
		if !strings.Contains(text, part) {
			t.Errorf("it has no %s", part)
		}
	}
	if strings.Contains(text, "$") {
		t.Error("a colour has no value")
	}
	if text != sound().SVG() {
		t.Error("it is drawn in another way each time")
	}
}

// TestTextIsReadable expects the contrast that WCAG requires: 4.5 for text, and 3 for borders and arrows.
func TestTextIsReadable(t *testing.T) {
	for name, c := range map[string]scheme{"light": light(), "dark": dark()} {
		for _, ground := range []string{"ground", "head", "fact", "waits", "acts"} {
			if ratio := contrast(t, c["text"], c[ground]); ratio < 4.5 {
				t.Errorf("%s: text on %s has %.1f", name, ground, ratio)
			}
		}
		if ratio := contrast(t, c["soft"], c["ground"]); ratio < 4.5 {
			t.Errorf("%s: soft text has %.1f", name, ratio)
		}
		for _, edge := range []string{"does", "barEdge", "factEdge", "waitsEdge", "actsEdge"} {
			if ratio := contrast(t, c[edge], c["ground"]); ratio < 3 {
				t.Errorf("%s: %s has %.1f", name, edge, ratio)
			}
		}
	}
	for name := range light() {
		if dark()[name] == "" {
			t.Errorf("%s has no colour in the dark", name)
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, colour string) (sum float64) {
	t.Helper()
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n := must.Get(strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8))(t)
		part := float64(n) / 255
		if part <= 0.04045 {
			part /= 12.92
		} else {
			part = math.Pow((part+0.055)/1.055, 2.4)
		}
		sum += weight * part
	}
	return sum
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":                              nil,
		"short":                         {"short"},
		"a few words that are balanced": {"a few words", "that are", "balanced"},
		"a long/word/that/does/not/fit": {"a", "long/word/that/does/not/fit"},
	} {
		if got := wrap(text, 14); !slices.Equal(got, want) {
			t.Errorf("%q is wrapped as %q, want %q", text, got, want)
		}
	}
}
