package picture

import (
	"maps"
	"math"
	"slices"
)

// Sizes, in pixels of a picture in its original size.
const (
	margin      = 20.0
	textSize    = 12.0
	codeSize    = 11.5
	lineHeight  = 15.25
	paddingX    = 12.0
	paddingY    = 3.0
	rowGap      = 4.0
	headHeight  = 24.0
	leastGap    = 130.0
	arrowSpace  = 26.0
	barHalf     = 5.0
	loopWidth   = 34.0
	loopHeight  = 20.0
	sectionSize = 13.0
	// offEdge is the space between a box and the arrow that begins there.
	offEdge = 1.0
)

type point struct{ x, y float64 }

// rect is a place, from its upper left corner.
type rect struct{ x, y, w, h float64 }

func (r rect) meets(o rect) bool {
	return r.x < o.x+o.w && o.x < r.x+r.w && r.y < o.y+o.h && o.y < r.y+r.h
}

func (r rect) has(p point) bool {
	const near = 0.01
	return p.x >= r.x-near && p.x <= r.x+r.w+near && p.y >= r.y-near && p.y <= r.y+r.h+near
}

// label is a line of text; at is the middle of its base line, or its beginning.
type label struct {
	at    point
	text  string
	class string
	size  float64
	code  bool
	start bool
}

// place is the area that the text may cover, with any font.
func (l label) place() rect {
	w := width(l.text, l.size, l.code)
	x := l.at.x - w/2
	if l.start {
		x = l.at.x
	}
	return rect{x, l.at.y - l.size, w, l.size * 1.25}
}

// frame is a box that is drawn.
type frame struct {
	rect
	class string
	round float64
}

// line is an arrow, or a line without a head.
type line struct {
	points []point
	class  string
	head   bool
}

// layout is all that is drawn, and where.
type layout struct {
	w, h  float64
	lanes []float64
	// bands are where no lane is drawn.
	bands  []rect
	frames []frame
	bars   []frame
	lines  []line
	labels []label
}

// lay computes where everything stands.
func (s *Sequence) lay() *layout {
	l := &layout{lanes: s.centres()}
	last := len(l.lanes) - 1
	l.w = l.lanes[last] + s.reach(last, 1) + margin
	y := margin
	for i, name := range s.Lanes {
		w := width(name, textSize, false) + 2*paddingX
		l.frames = append(l.frames, frame{rect{l.lanes[i] - w/2, y, w, headHeight}, "head", 6})
		l.labels = append(l.labels, label{at: point{l.lanes[i], y + headHeight/2 + 4.5}, text: name, class: "head",
			size: textSize})
	}
	top := y + headHeight
	y = top + rowGap
	open := map[int]float64{} // where the bar of a lane begins
	for _, r := range s.rows {
		y = l.row(r, y, open) + rowGap
	}
	for _, lane := range slices.Sorted(maps.Keys(open)) {
		l.bar(lane, open[lane], y-rowGap/2)
	}
	l.h = y + margin - rowGap/2
	for _, x := range l.lanes {
		l.lines = append([]line{{points: []point{{x, top}, {x, y}}, class: "lane"}}, l.lines...)
	}
	return l
}

func (l *layout) bar(lane int, from, to float64) {
	l.bars = append(l.bars, frame{rect{l.lanes[lane] - barHalf, from, 2 * barHalf, to - from}, "bar", 2})
}

// row places one row and returns where it ends.
func (l *layout) row(r row, y float64, open map[int]float64) (bottom float64) {
	switch {
	case r.section != "":
		for _, lane := range slices.Sorted(maps.Keys(open)) {
			l.bar(lane, open[lane], y-rowGap/2)
			delete(open, lane)
		}
		bottom = l.section(r.section, y)
	case r.message != nil && len(r.boxes) == 0:
		bottom = l.message(*r.message, y, open)
	}
	tallest := 0.0
	for _, b := range r.boxes {
		tallest = max(tallest, b.height())
	}
	if from := r.origin(); from != nil {
		tallest = max(tallest, 2*r.message.height())
		l.leaves(*r.message, *from, y+tallest/2, open)
	}
	for _, b := range r.boxes {
		if from, is := open[b.lane]; is { // a box ends the bar, or interrupts it
			l.bar(b.lane, from, y+(tallest-b.height())/2)
			delete(open, b.lane)
		}
		l.box(b, y+(tallest-b.height())/2)
	}
	bottom = max(bottom, y+tallest)
	for _, b := range r.boxes {
		if b.bar {
			open[b.lane] = y + (tallest+b.height())/2
		}
	}
	for _, lane := range r.ends {
		if from, is := open[lane]; is {
			l.bar(lane, from, bottom)
			delete(open, lane)
		}
	}
	return bottom
}

func (l *layout) section(name string, y float64) float64 {
	at := y + lineHeight
	l.bands = append(l.bands, rect{1, y, l.w - 2, at + 8 - y})
	l.labels = append(l.labels, label{at: point{margin, at}, text: name, class: "section", size: sectionSize, start: true})
	l.lines = append(l.lines, line{points: []point{{margin, at + 8}, {l.w - margin, at + 8}}, class: "rule"})
	return at + 10
}

// origin returns the box from which the message of the row leaves, or nil.
func (r row) origin() *box {
	for i := range r.boxes {
		if r.message != nil && r.boxes[i].lane == r.message.from {
			return &r.boxes[i]
		}
	}
	return nil
}

// edge is where an arrow meets a lane, or the bar that the lane has there.
func (l *layout) edge(lane int, toward float64, open map[int]float64) float64 {
	if _, is := open[lane]; is {
		return l.lanes[lane] + toward*barHalf
	}
	return l.lanes[lane]
}

func (m message) class() string {
	if m.asks {
		return "asks"
	}
	return "does"
}

// toward is the direction of the arrow: 1 to the right, -1 to the left.
func (m message) toward() float64 {
	if m.to < m.from {
		return -1
	}
	return 1
}

// height is the distance from the top of the words to the arrow.
func (m message) height() float64 { return float64(len(m.text))*lineHeight + 3 }

// leaves draws an arrow that begins at the side of a box.
func (l *layout) leaves(m message, b box, at float64, open map[int]float64) {
	from := l.lanes[b.lane] + m.toward()*(b.size()/2+offEdge)
	l.arrow(m, from, l.edge(m.to, -m.toward(), open), at)
}

// arrow draws an arrow at a height, and its words above it.
func (l *layout) arrow(m message, from, to, at float64) {
	middle := l.middle(m, from, to)
	for i, text := range m.text {
		words := label{at: point{middle, at - m.height() + 12 + float64(i)*lineHeight}, text: text, class: m.class(),
			size: textSize}
		l.labels = append(l.labels, words)
		l.bands = append(l.bands, words.place())
	}
	l.lines = append(l.lines, line{points: []point{{from, at}, {to, at}}, class: m.class(), head: true})
}

func (l *layout) message(m message, y float64, open map[int]float64) float64 {
	class := m.class()
	if m.from == m.to {
		x := l.edge(m.from, 1, open)
		tall := max(loopHeight, float64(len(m.text))*lineHeight)
		mid := y + tall/2
		l.lines = append(l.lines, line{points: []point{{x, mid - loopHeight/2}, {x + loopWidth, mid - loopHeight/2},
			{x + loopWidth, mid + loopHeight/2}, {x, mid + loopHeight/2}}, class: class, head: true})
		first := mid - float64(len(m.text))*lineHeight/2 + 13
		for i, text := range m.text {
			words := label{at: point{x + loopWidth + 8, first + float64(i)*lineHeight}, text: text, class: class, size: textSize,
				start: true}
			l.labels = append(l.labels, words)
			l.bands = append(l.bands, words.place())
		}
		return y + tall
	}
	at := y + m.height()
	l.arrow(m, l.edge(m.from, m.toward(), open), l.edge(m.to, -m.toward(), open), at)
	return at + 2
}

// middle is where the words of an arrow stand: between its beginning and the next lane, if that has room for them.
func (l *layout) middle(m message, from, to float64) float64 {
	next := l.lanes[m.from+int(m.toward())]
	for _, text := range m.text {
		if width(text, textSize, false) > math.Abs(next-from)-2*barHalf-4 {
			return (from + to) / 2
		}
	}
	return (from + next) / 2
}

func (b box) size() (w float64) {
	for _, text := range b.text {
		w = max(w, width(text, textSize, false))
	}
	return max(w, width(b.title(), codeSize, true)) + 2*paddingX
}

// title is the word of the program, after its meaning for the program.
func (b box) title() string {
	if b.code == "" || b.kind == Fact {
		return b.code
	}
	return string(b.kind) + ": " + b.code
}

func (b box) height() float64 {
	n := len(b.text)
	if b.code != "" {
		n++
	}
	return float64(n)*lineHeight + 2*paddingY - 2
}

func (l *layout) box(b box, y float64) {
	w := b.size()
	l.frames = append(l.frames, frame{rect{l.lanes[b.lane] - w/2, y, w, b.height()}, string(b.kind), 5})
	at := y + paddingY + 11
	if b.code != "" {
		l.labels = append(l.labels, label{at: point{l.lanes[b.lane], at}, text: b.title(), class: string(b.kind),
			size: codeSize, code: true})
		at += lineHeight
	}
	for _, text := range b.text {
		l.labels = append(l.labels, label{at: point{l.lanes[b.lane], at}, text: text, class: string(b.kind), size: textSize})
		at += lineHeight
	}
}

// reach is the extent of a lane's parts to one side of it.
func (s *Sequence) reach(lane int, side int) float64 {
	most := s.head(lane)
	for _, r := range s.rows {
		for _, b := range r.boxes {
			if b.lane == lane {
				most = max(most, b.size()/2)
			}
		}
		if m := r.message; m != nil && m.from == lane && m.to == lane && side > 0 {
			for _, text := range m.text {
				most = max(most, barHalf+loopWidth+8+width(text, textSize, false))
			}
		}
	}
	return most
}

// head is how far the name of a lane reaches to both sides.
func (s *Sequence) head(lane int) float64 { return width(s.Lanes[lane], textSize, false)/2 + paddingX }

// centres places the lanes, as near to each other as all that is between them allows.
func (s *Sequence) centres() []float64 {
	const apart = 14
	x := []float64{margin + s.reach(0, -1)}
	for lane := 1; lane < len(s.Lanes); lane++ {
		at := max(x[lane-1]+leastGap, x[lane-1]+s.head(lane-1)+s.head(lane)+2*apart)
		// A box keeps clear of the line beside it, and of a box in the same row.
		at = max(at, x[lane-1]+s.reach(lane-1, 1)+barHalf+apart, x[lane-1]+s.reach(lane, -1)+barHalf+apart)
		for _, r := range s.rows {
			at = max(at, x[lane-1]+r.between(lane-1, lane)+apart)
			if m := r.message; m != nil && max(m.from, m.to) == lane && m.from != m.to {
				for _, text := range m.text {
					at = max(at, x[min(m.from, m.to)]+r.side()+width(text, textSize, false)+arrowSpace)
				}
			}
		}
		x = append(x, math.Ceil(at))
	}
	return x
}

// side is how far the box from which the message leaves reaches.
func (r row) side() float64 {
	if b := r.origin(); b != nil {
		return b.size()/2 + offEdge
	}
	return 0
}

// between is the distance that boxes of two lanes need, side by side in one row.
func (r row) between(left, right int) (need float64) {
	there := 0
	for _, b := range r.boxes {
		if b.lane == left || b.lane == right {
			need += b.size() / 2
			there++
		}
	}
	if there < 2 {
		return 0
	}
	return need
}

// width is how long a text is at most, in the fonts that a picture asks for.
func width(text string, size float64, code bool) float64 {
	if code {
		return float64(len([]rune(text))) * 0.62 * size
	}
	total := 0.0
	for _, r := range text {
		switch {
		case slices.Contains([]rune("iljtfrI.,:;'|!()[]- "), r):
			total += 0.36
		case slices.Contains([]rune("mwMW%@"), r):
			total += 0.92
		case r >= 'A' && r <= 'Z':
			total += 0.74
		default:
			total += 0.58
		}
	}
	return total * size
}
