package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Steps of limits. A limit of lines leaves room for a small change.
const (
	countStep = 1
	linesStep = 500
	ratioStep = 0.1
)

// figure is one number about the tree: a sum over places, or a ratio of two sums.
type figure struct {
	name string
	// least and most bound the goal. Without a goal, both are 0: the lower, the better.
	least, most float64
	noGoal      bool
	// step is the unit of a limit.
	step float64
	// scale of a ratio is 100 for percent. A sum has none.
	scale  float64
	places map[string]tally
}

// tally is the share of a place in a figure: in the sum or the numerator, and in the denominator of a ratio.
type tally struct{ part, whole float64 }

func (f *figure) add(place string, part, whole float64) {
	if f.places == nil {
		f.places = map[string]tally{}
	}
	t := f.places[place]
	f.places[place] = tally{t.part + part, t.whole + whole}
}

// now returns the value with the two decimals of the table. A ratio without a base is 0.
func (f *figure) now() float64 {
	var sum tally
	for _, t := range f.places {
		sum = tally{sum.part + t.part, sum.whole + t.whole}
	}
	return math.Round(f.value(sum)*100) / 100
}

func (f *figure) value(t tally) float64 {
	switch {
	case f.scale == 0:
		return t.part
	case t.whole == 0:
		return 0
	}
	return f.scale * t.part / t.whole
}

// gap returns the distance of a value from the goal, which must not grow.
func (f *figure) gap(value float64) float64 { return max(f.least-value, value-f.most, 0) }

// limit returns the strictest limit, in steps, that the figure keeps. None is stricter than the goal.
func (f *figure) limit() float64 {
	const rounding = 1e-9 // of floats
	now := f.now()
	if now < f.least {
		return math.Floor(now/f.step+rounding) * f.step
	}
	return max(math.Ceil(now/f.step-rounding)*f.step, f.most)
}

// worse reports whether the figure is farther from its goal than a limit, better whether a stricter limit would hold.
func (f *figure) worse(limit float64) bool  { return f.exceeds(f.now(), limit) }
func (f *figure) better(limit float64) bool { return f.exceeds(limit, f.limit()) }

func (f *figure) exceeds(value, limit float64) bool {
	return f.gap(value) > f.gap(limit)+f.step/1000
}

// heaviest returns the places that take the figure farthest from its goal, the first one the most.
func (f *figure) heaviest() []string {
	weight := func(place string) float64 {
		t := f.places[place]
		if f.least == 0 {
			return t.part
		}
		return f.gap(f.value(t)) * t.whole
	}
	order := slices.SortedFunc(maps.Keys(f.places), func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), strings.Compare(a, b))
	})
	order = slices.DeleteFunc(order, func(place string) bool { return weight(place) == 0 })
	for i, place := range order {
		value := f.places[place].part
		if f.least > 0 {
			value = f.value(f.places[place])
		}
		order[i] = place + " (" + number(value, f.step) + ")"
	}
	return order[:min(3, len(order))]
}

// goal returns the goal for the table.
func (f *figure) goal() string {
	switch {
	case f.noGoal:
		return "–"
	case f.least > 0:
		return number(f.least, countStep) + " to " + number(f.most, countStep)
	case f.most == 0:
		return "0"
	}
	return "≤ " + number(f.most, f.step)
}

// number formats a value with the decimals of a step, and without trailing zeros.
func number(value, step float64) string {
	if step >= 1 {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Round(value*100)/100, 'f', -1, 64)
}

func printTable(out io.Writer, figures []*figure, limits map[string]float64) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "figure\t| now\t| limit\t| goal")
	for _, f := range figures {
		limit := "–"
		if l, ok := limits[f.name]; ok {
			limit = number(l, f.step)
		}
		fmt.Fprintf(w, "%s\t| %s\t| %s\t| %s\n", f.name, number(f.now(), f.step), limit, f.goal())
	}
	_ = w.Flush()
}

// report prints a line for each figure whose limit must change, and reports whether a figure got worse or has no limit.
func report(out io.Writer, figures []*figure, limits map[string]float64) (worse bool) {
	for _, f := range figures {
		limit, ok := limits[f.name]
		now, bound := number(f.now(), f.step), number(limit, f.step)
		switch {
		case !ok:
			worse = true
			fmt.Fprintf(out, "NEW     %s: %s, without a limit; make house UPDATE=1 writes one\n", f.name, now)
		case f.worse(limit):
			worse = true
			fmt.Fprintf(out, "WORSE   %s: %s, limit %s, goal %s; most in %s\n", f.name, now, bound, f.goal(),
				strings.Join(f.heaviest(), ", "))
		case f.better(limit):
			fmt.Fprintf(out, "BETTER  %s: %s, limit %s; commit what make house UPDATE=1 writes\n", f.name, now, bound)
		}
	}
	return worse
}

// header begins the file of limits.
const header = `# The limits of make house, which is part of make lint. A figure that is worse than its limit fails.
# make house UPDATE=1 writes the limits of figures that got better. To loosen one, edit it here: the commit says why.
`

// readLimits returns the limits by the names of their figures. No file means no limits.
func readLimits(file string) (map[string]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	limits := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		value, name, _ := strings.Cut(line, " ")
		limit, err := strconv.ParseFloat(value, 64)
		name = strings.TrimSpace(name)
		if _, twice := limits[name]; err != nil || name == "" || twice {
			return nil, fmt.Errorf("%s: %q is not a number and the name of another figure", file, line)
		}
		limits[name] = limit
	}
	return limits, nil
}

// tighten returns the limits of the figures, stricter where a figure got better.
func tighten(figures []*figure, limits map[string]float64) map[string]float64 {
	tight := map[string]float64{}
	for _, f := range figures {
		limit, ok := limits[f.name]
		if !ok || f.better(limit) {
			limit = f.limit()
		}
		tight[f.name] = limit
	}
	return tight
}

// format returns the text of a file of limits, in the order of figures.
func format(figures []*figure, limits map[string]float64) string {
	var text strings.Builder
	text.WriteString(header)
	for _, f := range figures {
		fmt.Fprintf(&text, "%-8s %s\n", number(limits[f.name], f.step), f.name)
	}
	return text.String()
}
