package picture

import "strings"

// Sequence is a picture in which something happens from the top to the bottom.
type Sequence struct {
	// Title and Description are the alternative text.
	Title, Description string
	// Lanes are the actors, from the left to the right.
	Lanes []string
	rows  []row
	// shown is the reason that was drawn last, and told are those whose sentence was drawn.
	shown string
	told  map[string]bool
}

// Kind is the subject of a box or a bar. Each kind also has its own border.
type Kind string

// Kinds.
const (
	// Fact is how things are.
	Fact Kind = "fact"
	// Waits is a decision to do nothing now.
	Waits Kind = "waits"
	// Acts is a decision to do something.
	Acts Kind = "acts"
)

// row holds the parts side by side, at one height.
type row struct {
	message *message
	boxes   []box
	section string
	// ends are the lanes whose bars end here.
	ends []int
}

type message struct {
	from, to int
	text     []string
	// asks marks an arrow that only reads.
	asks bool
}

type box struct {
	lane int
	kind Kind
	code string
	text []string
	bar  bool
}

const (
	lineLetters    = 44
	longestMessage = 50
)

// Section begins a part of the picture, which has a name.
func (s *Sequence) Section(name string) {
	s.rows = append(s.rows, row{section: name})
}

// Does adds an action of one actor on another. With from equal to to, the actor acts alone.
func (s *Sequence) Does(from, to int, text string) {
	s.rows = append(s.rows, row{message: &message{from: from, to: to, text: wrap(text, longestMessage)}})
}

// Asks adds a read of one actor from another.
func (s *Sequence) Asks(from, to int, text string) {
	s.rows = append(s.rows, row{message: &message{from: from, to: to, text: wrap(text, longestMessage), asks: true}})
}

// Box adds the state of an actor: a word of the program, or none, and its meaning.
func (s *Sequence) Box(lane int, kind Kind, code, text string) {
	s.rows = append(s.rows, row{boxes: []box{{lane: lane, kind: kind, code: code, text: wrap(text, lineLetters)}}})
}

// Step is the next decision of a program.
type Step struct {
	// Reason is the decision's word, and Sentence its meaning, of which only the first part is drawn.
	Reason, Sentence string
	// Waits means that the program does nothing now, and Settled that no work is left.
	Waits, Settled bool
	// Words are the action on the lane To. Reads means that it only reads the object that Words name.
	Words string
	To    int
	Reads bool
	// Ends ends the bar of the lane To.
	Ends bool
}

// Tell draws a program's actions until it waits. Each call of next returns the next step, which is then carried out.
// Reads in a row are one arrow, and stand before the decision from them.
func (s *Sequence) Tell(program int, next func() Step) {
	var reads []string
	readAt := 0
	for {
		step := next()
		if step.Reads {
			reads, readAt = append(reads, step.Words), step.To
			continue
		}
		if step.Waits && step.Reason == s.shown { // the reads change nothing
			return
		}
		if len(reads) > 0 {
			s.Asks(program, readAt, "reads "+strings.Join(reads, ", then "))
			reads = nil
		}
		decided := step.Reason != s.shown
		if decided {
			s.decides(program, step)
		}
		if step.Waits {
			return
		}
		s.Does(program, step.To, step.Words)
		if last := len(s.rows) - 1; decided && step.To != program { // the action leaves from the decision
			s.rows[last-1].message, s.rows = s.rows[last].message, s.rows[:last]
		}
		if step.Ends {
			s.End(step.To)
		}
	}
}

// decides draws a decision. Its sentence is told once in a picture.
func (s *Sequence) decides(program int, step Step) {
	text := firstPart(step.Sentence)
	if s.told[step.Reason] {
		text = ""
	}
	if s.told == nil {
		s.told = map[string]bool{}
	}
	s.shown, s.told[step.Reason] = step.Reason, true
	s.Box(program, step.kind(), step.Reason, text)
}

func (s Step) kind() Kind {
	switch {
	case s.Settled:
		return Fact
	case s.Waits:
		return Waits
	}
	return Acts
}

func firstPart(sentence string) string {
	first, _, _ := strings.Cut(sentence, ". ")
	first, _, _ = strings.Cut(first, ": ")
	return strings.TrimSuffix(first, ".")
}

// Beside puts a box beside the boxes of the row before.
func (s *Sequence) Beside(lane int, kind Kind, code, text string) {
	last := &s.rows[len(s.rows)-1]
	last.boxes = append(last.boxes, box{lane: lane, kind: kind, code: code, text: wrap(text, lineLetters)})
}

// Begin says how things are from here until End: a bar leads from the last box of the lane in the last row.
func (s *Sequence) Begin(lane int) {
	boxes := s.rows[len(s.rows)-1].boxes
	for i := range boxes {
		if boxes[i].lane == lane {
			boxes[i].bar = true
		}
	}
}

// End ends the bar of a lane, in the last row.
func (s *Sequence) End(lane int) {
	last := &s.rows[len(s.rows)-1]
	last.ends = append(last.ends, lane)
}

// wrap breaks a text into as few lines as there can be, and these into about equal ones.
func wrap(text string, most int) []string {
	if text == "" {
		return nil
	}
	most = max(most, longest(strings.Fields(text)))
	lines := fill(text, most)
	for narrow := most - 1; narrow > 0; narrow-- {
		if narrower := fill(text, narrow); len(narrower) == len(lines) && longest(narrower) <= narrow {
			lines = narrower
			continue
		}
		break
	}
	return lines
}

func fill(text string, most int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > most {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

func longest(lines []string) (letters int) {
	for _, line := range lines {
		letters = max(letters, len([]rune(line)))
	}
	return letters
}
