// Command plot draws the scaling curve of test/bench/report.json: how fast PVs are reclaimed and how much memory that
// takes, over the number of PVs in the cluster. It is a module of its own, so that the project's has no plotting
// library.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// report is the drawn part of package bench's report.
type report struct {
	Figures []struct {
		Name    string               `json:"name"`
		Runs    map[string][]float64 `json:"runs"`
		Machine map[string]any       `json:"machine"`
	} `json:"figures"`
}

// The columns that are drawn, with their words in the legend and their colours.
var columns = []struct {
	name, words string
	colour      color.RGBA
}{
	{"ours", "csi-reclaimer", color.RGBA{R: 0x1b, G: 0x7f, B: 0x4c, A: 0xff}},
	{"reference_unthrottled", "external-provisioner's library, v10", color.RGBA{R: 0xc0, G: 0x50, B: 0x1e, A: 0xff}},
	{"reference_v13_unthrottled", "external-provisioner's library, v13", color.RGBA{R: 0x2b, G: 0x5f, B: 0xb4, A: 0xff}},
}

func main() {
	in := flag.String("report", "../report.json", "the report to draw")
	out := flag.String("out", "../scaling.svg", "the file to write")
	flag.Parse()
	if err := run(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read report %q: %w", in, err)
	}
	plot.DefaultFont.Variant = "Sans"
	rate, err := r.curve("reclaim_per_second_", "PVs reclaimed a second, in a burst of 1,000")
	if err != nil {
		return err
	}
	memory, err := r.curve("peak_rss_mib_", "peak memory, MiB")
	if err != nil {
		return err
	}
	canvas := vgsvg.New(24*vg.Centimeter, 9*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Centimeter, PadTop: vg.Millimeter, PadBottom: vg.Millimeter,
		PadLeft: vg.Millimeter, PadRight: 4 * vg.Millimeter}
	pair := [][]*plot.Plot{{rate, memory}}
	for i, tile := range plot.Align(pair, tiles, draw.New(canvas))[0] {
		pair[0][i].Draw(tile)
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(file); err != nil {
		_ = file.Close()
		return fmt.Errorf("write plot %q: %w", out, err)
	}
	return file.Close()
}

// curve plots the medians of the figures whose names begin with prefix and end with a number of PVs. The legend has the
// last point in multiples of ours.
func (r report) curve(prefix, title string) (*plot.Plot, error) {
	p := plot.New()
	if err := r.oneMachine(prefix); err != nil {
		return nil, err
	}
	p.Title.Text = title
	p.X.Label.Text = "PVs in the cluster"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for _, column := range columns {
		points := r.points(prefix, column.name)
		if len(points) == 0 && strings.Contains(column.name, "_v13") {
			continue // older reports have no values of it
		}
		if len(points) == 0 {
			return nil, fmt.Errorf("draw %s of %s: not in the report", prefix, column.name)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("draw %s of %s: %w", prefix, column.name, err)
		}
		line.Color, marks.Color, marks.Shape = column.colour, column.colour, draw.CircleGlyph{}
		line.Width = vg.Points(1.5)
		p.Add(line, marks)
		p.Legend.Add(column.words+ratio(points, r.points(prefix, columns[0].name)), line, marks)
		for _, point := range points {
			p.Y.Max = max(p.Y.Max, 1.25*point.Y) // room for the legend
		}
	}
	return p, nil
}

// oneMachine is an error if the figures of a curve are of several machines: their values do not make one line.
func (r report) oneMachine(prefix string) error {
	machines := map[string]bool{}
	for _, f := range r.Figures {
		if _, ok := pvsOf(f.Name, prefix); ok {
			machines[fmt.Sprint(f.Machine)] = true
		}
	}
	if len(machines) > 1 {
		return fmt.Errorf("draw %s: measured on %d machines: measure all sizes on one", prefix, len(machines))
	}
	return nil
}

// ratio says in the legend how a subject's last point compares with ours.
func ratio(points, ours plotter.XYs) string {
	if len(points) == 0 || len(points) != len(ours) || points[len(points)-1] == ours[len(ours)-1] {
		return ""
	}
	return fmt.Sprintf(" (%.2f ×)", points[len(points)-1].Y/ours[len(ours)-1].Y)
}

// pvsOf returns the number of PVs in the name of a figure, if it begins with prefix and ends with one.
func pvsOf(figure, prefix string) (pvs int, ok bool) {
	size, ok := strings.CutPrefix(figure, prefix)
	pvs, err := strconv.Atoi(size)
	return pvs, ok && err == nil
}

// points are the medians of a column by number of PVs.
func (r report) points(prefix, column string) (points plotter.XYs) {
	for _, f := range r.Figures {
		pvs, ok := pvsOf(f.Name, prefix)
		if runs := slices.Sorted(slices.Values(f.Runs[column])); ok && len(runs) > 0 {
			points = append(points, plotter.XY{X: float64(pvs), Y: (runs[(len(runs)-1)/2] + runs[len(runs)/2]) / 2})
		}
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}
