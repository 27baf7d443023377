package main

import (
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	widest     = 100  // columns of a line of Markdown
	longestDoc = 2500 // words of a page
	// benchReport is a page of measurements that make bench writes, and that is looked up rather than read.
	benchReport = "test/bench/report.md"
)

var (
	// marker matches the beginning of a comment that is no prose.
	marker = regexp.MustCompile(`^(Copyright|Licensed|\+|go:|nolint)`)
	test   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	riddle = regexp.MustCompile(`What|Which|Whose|Where|That|Nothing`)
	// definition matches a line that gives a link its target.
	definition = regexp.MustCompile(`^\[[^]]+\]: \S+$`)

	what     = regexp.MustCompile(`(?i)\bwhat\b`)
	thatOne  = regexp.MustCompile(`(?i)\b(that one|those that|one that|those of)\b`)
	somebody = regexp.MustCompile(`(?i)\b(somebody|nobody|anybody)\b`)
)

// prose has the figures of one kind of text.
type prose struct{ what, thatOne, somebody, sentence figure }

func newProse(kind string) prose {
	const each = " in 1000 words"
	return prose{
		what:     figure{name: kind + `: "what"` + each, most: 1.5, step: ratioStep, scale: 1000},
		thatOne:  figure{name: kind + `: "that one", "those that"` + each, most: 0.5, step: ratioStep, scale: 1000},
		somebody: figure{name: kind + `: "somebody", "nobody"` + each, step: ratioStep, scale: 1000},
		sentence: figure{name: kind + ": words in a sentence", least: 13, most: 17, step: ratioStep, scale: 1},
	}
}

func (p *prose) figures() []*figure { return []*figure{&p.what, &p.thatOne, &p.somebody, &p.sentence} }

// add adds a text. Fewer than three words are no sentence.
func (p *prose) add(name, text string) {
	fields := strings.Fields(text)
	words := float64(len(fields))
	p.what.add(name, float64(len(what.FindAllString(text, -1))), words)
	p.thatOne.add(name, float64(len(thatOne.FindAllString(text, -1))), words)
	p.somebody.add(name, float64(len(somebody.FindAllString(text, -1))), words)
	begin := 0
	for i, field := range fields {
		if strings.ContainsRune(".!?", rune(field[len(field)-1])) || i == len(fields)-1 {
			if n := i + 1 - begin; n > 2 {
				p.sentence.add(name, float64(n), 1)
			}
			begin = i + 1
		}
	}
}

// comments returns the text of the lines in a Go file that hold only a comment.
func comments(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//"); ok {
			if comment = strings.TrimPrefix(comment, " "); !marker.MatchString(comment) {
				all = append(all, comment)
			}
		}
	}
	return strings.Join(all, " ")
}

// readTests counts the tests with a riddle for a name.
func (t *tree) readTests(name, text string) {
	for _, found := range test.FindAllStringSubmatch(text, -1) {
		riddles := 0.0
		if riddle.MatchString(found[1]) {
			riddles = 1
		}
		t.riddles.add(name, riddles, 1)
	}
}

// readPage adds a page. Tables, code and headings are no prose. The changelog may have any length, and benchReport any
// length and width.
func (t *tree) readPage(name, text string) {
	kind := &t.docs
	if path.Base(name) == "DESIGN.md" {
		kind = &t.designs
	}
	var lines []string
	fenced := false
	for line := range strings.Lines(text) {
		start := strings.TrimLeft(line, " ")
		switch {
		case strings.HasPrefix(start, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "), strings.HasPrefix(line, "\t"), strings.HasPrefix(start, "|"):
		default:
			line = strings.TrimRight(line, "\n")
			if utf8.RuneCountInString(line) > widest && breakable(line) && name != benchReport {
				t.wide.add(name, 1, 0)
			}
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
	}
	page := strings.Join(lines, "\n ")
	kind.add(name, page)
	if len(strings.Fields(page)) > longestDoc && name != "CHANGELOG.md" && name != benchReport {
		t.pages.add(name, 1, 0)
	}
}

// breakable reports whether a line has a space to break it at.
func breakable(line string) bool {
	line = strings.TrimLeft(line, " -*")
	return strings.Contains(line, " ") && !definition.MatchString(line)
}
