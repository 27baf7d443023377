package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

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
