//go:build unix

// Package growth has the families of costs beside more and more objects, and the outage of a large cluster.
package growth

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
)

// growth is a family that measures costs beside more and more objects. Its goals are for the slopes: what one object
// more costs where most of them are, because a cost that grows with the square of the objects is small at first.
type growth struct {
	name string
	// load describes the load, and has a verb for the number of objects.
	load  string
	sizes []int
	costs []cost
	// run calls at once, with a function that returns the costs beside n objects. It is called with rising numbers.
	run func(ctx context.Context, s *session.Session, at func(measure func(n int) ([]float64, error)) error) error
}

// cost is a figure that is measured at each size.
type cost struct {
	name, unit, what string
	// most is the goal for the slope: for 1,000 objects more.
	most float64
}

const GrowthPrefix, SlopeSuffix = "growth_", "_slope"

func Families() (all []session.Family) {
	for _, g := range []growth{attachGrowth("attach", 100), attachGrowth("attach_small", 10), lonePodGrowth(),
		handoverGrowth(), handleGrowth(), watchGrowth(), logGrowth()} {
		all = append(all, session.Family{Name: GrowthPrefix + g.name, Plane: g.plane(), Uncosted: true, Figures: g.figures(),
			Run: g.measure})
	}
	return all
}

// plane has no controller manager, which would remove pods without nodes, unless claims have to be bound.
func (g growth) plane() session.Plane {
	if g.name == logGrowth().name {
		return session.Working
	}
	return session.Bare
}

func (g growth) figure(c cost) string { return GrowthPrefix + g.name + "_" + c.name }

func (g growth) figures() (all []report.Figure) {
	for _, c := range g.costs {
		for _, n := range g.sizes {
			all = append(all, report.Figure{Name: fmt.Sprintf("%s_%d", g.figure(c), n), Unit: c.unit,
				Load: fmt.Sprintf(g.load, n) + " " + c.what})
		}
		last := len(g.sizes) - 1
		all = append(all, report.Figure{Name: g.figure(c) + SlopeSuffix, Unit: c.unit + " for 1,000 more",
			Goals: []report.Goal{report.AtMost(c.most)},
			Load: fmt.Sprintf("%s_%d less %s_%d, for 1,000 objects more; 0 if it is negative.", g.figure(c), g.sizes[last],
				g.figure(c), g.sizes[last-1])})
	}
	return all
}

func (g growth) measure(ctx context.Context, s *session.Session) error {
	for range s.Runs {
		if err := g.once(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// once measures all sizes in an environment of their own.
func (g growth) once(ctx context.Context, s *session.Session) (err error) {
	if err := s.OpenEnvironment(ctx, g.plane()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.CloseEnvironment()) }()
	return g.run(ctx, s, func(measure func(n int) ([]float64, error)) error {
		var took []int
		var costs [][]float64
		for _, size := range g.sizes {
			n := s.Size(size, size/10)
			values, err := measure(n)
			if err != nil {
				return fmt.Errorf("measure %s at %d: %w", g.name, n, err)
			}
			took, costs = append(took, n), append(costs, values)
			for i, c := range g.costs {
				s.Record(fmt.Sprintf("%s_%d", g.figure(c), size), report.Ours, values[i])
			}
		}
		for i, c := range g.costs {
			s.Record(g.figure(c)+SlopeSuffix, report.Ours, slope(took, costs, i))
		}
		return nil
	})
}

// slope returns by how much a cost grows for 1,000 objects more, between the two largest sizes.
func slope(sizes []int, costs [][]float64, of int) float64 {
	last := len(sizes) - 1
	more := costs[last][of] - costs[last-1][of]
	return max(0, 1000*more/float64(sizes[last]-sizes[last-1]))
}
