package terminal

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// prompt is a shell's prompt.
const prompt = "$ "

var (
	fence  = regexp.MustCompile("^```(\\w*)")
	inline = regexp.MustCompile("`((?:kubectl|helm) [^`…]+ [^`…]+)`")
	// typed matches the first words of commands. Other indented lines are not commands.
	typed = regexp.MustCompile(`^(\$ )?((kubectl|helm|docker|make|volume-guard|csi-reclaimer|go) |\.build/)`)
	// continued matches the end of a line whose command continues on the next line.
	continued = regexp.MustCompile(`\\\n[ \t]*`)
)

// Commands returns the commands of a page: in blocks, which are indented or fenced as sh or console, and commands of
// kubectl and helm in a sentence. After a line with a prompt, the other lines of its block are output, and only their
// advice to call kubectl counts.
func Commands(page string) (all []string) {
	fenced, isCode, prompted := false, false, false
	for line := range strings.Lines(continued.ReplaceAllString(page, "")) {
		if kind := fence.FindStringSubmatch(line); kind != nil {
			fenced = !fenced
			isCode, prompted = fenced && !slices.Contains([]string{"sh", "console"}, kind[1]), false
			continue
		}
		text, indented := strings.CutPrefix(line, "    ")
		text = strings.TrimSpace(text)
		prompted = prompted && (fenced || indented || text == "") || strings.HasPrefix(text, prompt)
		switch {
		case isCode, prompted && isOutput(text):
		case (fenced || indented) && typed.MatchString(text):
			text, _, _ = strings.Cut(strings.TrimPrefix(text, prompt), "   #")
			all = append(all, strings.TrimSpace(text))
		case !fenced && !indented:
			all = append(all, said(line)...)
		}
	}
	return all
}

// isOutput reports whether a line after a prompt is output.
func isOutput(line string) bool {
	return !strings.HasPrefix(line, prompt) && !strings.HasPrefix(line, "kubectl ")
}

// said returns the commands of kubectl and helm in a sentence.
func said(line string) (all []string) {
	for _, found := range inline.FindAllStringSubmatch(line, -1) {
		all = append(all, found[1])
	}
	return all
}

// Step is a text to type, and its output.
type Step struct {
	// Section is the heading above it, and Line where in the page it begins.
	Section string
	Line    int
	// Typed is one or more lines of a shell.
	Typed string
	// Printed is the output on the page, with … for variable parts: see [Match]. Empty: the page shows none.
	Printed string
}

// Steps returns the code of a page in its order, for execution without changes: each block fenced as sh is typed, and a
// block fenced as text after it is its output. Any other code is an error.
func Steps(page string) (steps []Step, err error) {
	var section, kind, block string
	fenced := false
	number := 0
	for text := range strings.Lines(page) {
		number++
		switch mark := fence.FindStringSubmatch(text); {
		case mark != nil && !fenced:
			kind, block, fenced = mark[1], "", true
		case mark != nil:
			fenced = false
			if steps, err = withBlock(steps, Step{Section: section, Line: number, Typed: block}, kind); err != nil {
				return nil, err
			}
		case fenced:
			block += text
		case strings.HasPrefix(text, "#"):
			section = strings.TrimSpace(strings.TrimLeft(text, "# "))
		case strings.HasPrefix(text, "    ") || strings.HasPrefix(text, "\t"):
			return nil, fmt.Errorf("line %d: an indented block: fence it as sh or text", number)
		}
	}
	if fenced {
		return nil, errors.New("a block has no end")
	}
	return steps, nil
}

func withBlock(steps []Step, s Step, kind string) ([]Step, error) {
	lines := strings.Count(s.Typed, "\n")
	s.Line -= lines
	switch {
	case kind == "sh":
		return append(steps, s), nil
	case kind != "text":
		return nil, fmt.Errorf("line %d: a block of kind %q, want sh or text", s.Line, kind)
	case len(steps) == 0 || steps[len(steps)-1].Printed != "" || steps[len(steps)-1].Section != s.Section:
		return nil, fmt.Errorf("line %d: the output of no command", s.Line)
	}
	steps[len(steps)-1].Printed = s.Typed
	return steps, nil
}

// Match returns nil if output matches the text shown on a page. In shown, … stands for any text of a line, which may be
// empty, and a line with only … for any number of lines. The number of spaces in a row does not matter, because the
// width of a column depends on its cells.
func Match(shown, output string) error {
	var pattern strings.Builder
	for _, line := range wordsOf(shown) {
		if line == "…" {
			pattern.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern.WriteString(strings.Join(parts, `[^\n]*`) + `\n`)
	}
	got := wordsOf(output)
	if regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(strings.Join(append(got, ""), "\n")) {
		return nil
	}
	return fmt.Errorf("the page shows\n%s\nand it prints\n%s", shown, output)
}

// wordsOf returns the lines of a text, each with its words one space apart.
func wordsOf(text string) (lines []string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}
