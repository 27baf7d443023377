package picture

import (
	"fmt"
	"math"
	"slices"
)

// Check returns the faults of the picture's layout: texts that touch other parts, boxes that overlap, arrows without an
// end, and parts that reach over the edge.
func (s *Sequence) Check() (problems []string) {
	l := s.lay()
	if s.Title == "" || s.Description == "" {
		problems = append(problems, "nothing is said to who cannot see it")
	}
	for i := range l.labels {
		problems = append(problems, l.checkLabel(i)...)
	}
	for i := range l.frames {
		problems = append(problems, l.checkFrame(i)...)
	}
	return append(problems, l.looseArrows()...)
}

func (l *layout) checkLabel(i int) (problems []string) {
	t := l.labels[i]
	place := t.place()
	if !contains(rect{0, 0, l.w, l.h}, place) {
		problems = append(problems, fmt.Sprintf("%q reaches over the edge", t.text))
	}
	for _, o := range l.labels[i+1:] {
		if place.meets(o.place()) {
			problems = append(problems, fmt.Sprintf("%q meets %q", t.text, o.text))
		}
	}
	for _, f := range slices.Concat(l.frames, l.bars) {
		if place.meets(f.rect) && !contains(f.rect, place) {
			problems = append(problems, fmt.Sprintf("%q meets a %s", t.text, f.class))
		}
	}
	if l.lineMeets(place) {
		problems = append(problems, fmt.Sprintf("%q meets a line", t.text))
	}
	return problems
}

func (l *layout) checkFrame(i int) (problems []string) {
	f := l.frames[i]
	if !contains(rect{0, 0, l.w, l.h}, f.rect) {
		problems = append(problems, fmt.Sprintf("a %s reaches over the edge", f.class))
	}
	for _, o := range l.frames[i+1:] {
		if f.meets(o.rect) {
			problems = append(problems, fmt.Sprintf("a %s meets a %s at %.0f", f.class, o.class, f.y))
		}
	}
	if l.lineMeets(f.rect) {
		problems = append(problems, fmt.Sprintf("a line meets a %s at %.0f", f.class, f.y))
	}
	return problems
}

// lineMeets reports whether a line other than a lane's is within the place.
func (l *layout) lineMeets(place rect) bool {
	return slices.ContainsFunc(l.lines, func(x line) bool { return x.class != "lane" && x.meets(place) })
}

func contains(outer, inner rect) bool {
	return outer.has(point{inner.x, inner.y}) && outer.has(point{inner.x + inner.w, inner.y + inner.h})
}

// meets reports whether part of the line is within the place. All parts of a line are horizontal or vertical.
func (x line) meets(place rect) bool {
	for i := 1; i < len(x.points); i++ {
		a, b := x.points[i-1], x.points[i]
		part := rect{min(a.x, b.x), min(a.y, b.y), math.Abs(a.x - b.x), math.Abs(a.y - b.y)}
		part.w, part.h = max(part.w, 0.1), max(part.h, 0.1)
		if part.meets(place) {
			return true
		}
	}
	return false
}

// looseArrows returns the arrows that do not begin and end at a lane, at the edge of its bar if it has one there, or at
// the side of a box.
func (l *layout) looseArrows() (problems []string) {
	for _, x := range l.lines {
		if !x.head {
			continue
		}
		for _, end := range []point{x.points[0], x.points[len(x.points)-1]} {
			at := slices.ContainsFunc(l.lanes, func(lane float64) bool { return math.Abs(lane-end.x) < 0.01 })
			for _, bar := range l.bars {
				if !bar.has(end) {
					continue
				}
				at = math.Abs(end.x-bar.x) < 0.01 || math.Abs(end.x-bar.x-bar.w) < 0.01
			}
			for _, f := range l.frames {
				side := math.Min(math.Abs(end.x-f.x), math.Abs(end.x-f.x-f.w))
				at = at || side < offEdge+0.01 && end.y > f.y && end.y < f.y+f.h
			}
			if !at {
				problems = append(problems, fmt.Sprintf("an arrow ends at nothing: %.0f %.0f", end.x, end.y))
			}
		}
	}
	return problems
}
