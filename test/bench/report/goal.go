package report

import (
	"fmt"
	"math"
)

// Goal is the goal for a figure of csi-reclaimer.
type Goal struct {
	// Than is the column that ours is compared with. If it is empty, Value alone counts.
	Than string `json:"than,omitempty"`
	// Relation is "=", "<=" or ">=".
	Relation string `json:"relation"`
	// Value is the bound, or where Than is set the factor to it.
	Value float64 `json:"value"`
}

// Exactly is the goal of a count.
func Exactly(v float64) Goal { return Goal{Relation: "=", Value: v} }

// AtMost is an upper bound.
func AtMost(v float64) Goal { return Goal{Relation: "<=", Value: v} }

// AtMostOf is an upper bound in multiples of another column.
func AtMostOf(factor float64, column string) Goal {
	return Goal{Relation: "<=", Value: factor, Than: column}
}

// AtLeastOf is a lower bound in multiples of another column.
func AtLeastOf(factor float64, column string) Goal {
	return Goal{Relation: ">=", Value: factor, Than: column}
}

// Parity holds a figure against the controllers of both versions of the library, without a limit on their clients.
// goal is AtMostOf or AtLeastOf.
func Parity(goal func(factor float64, column string) Goal, factor float64) []Goal {
	return []Goal{goal(factor, Unthrottled), goal(factor, UnthrottledV13)}
}

// String says it in a few words.
func (g Goal) String() string {
	sign := map[string]string{"=": "=", "<=": "≤", ">=": "≥"}[g.Relation]
	if g.Than == "" {
		return sign + " " + number(g.Value)
	}
	return fmt.Sprintf("%s %s × %s", sign, number(g.Value), g.Than)
}

// Judge compares the medians with the goal: "reached (1.23 ×)", "missed by 12 %". A figure that was not measured, or
// has nothing to be compared with, is "not measured", which is not reached.
func (g Goal) Judge(medians map[string]float64) (reached bool, verdict string) {
	ours, measured := medians[Ours]
	bound, than := g.Value, 1.0
	if g.Than != "" {
		var compared bool
		than, compared = medians[g.Than]
		measured = measured && compared
		bound *= than
	}
	if !measured || math.IsNaN(ours) || math.IsNaN(bound) {
		return false, "not measured"
	}
	switch g.Relation {
	case "=":
		reached = ours == bound
	case "<=":
		reached = ours <= bound
	case ">=":
		reached = ours >= bound
	}
	ratio := ""
	if g.Than != "" && than != 0 {
		ratio = fmt.Sprintf(" (%.2f ×)", ours/than)
	}
	switch {
	case reached:
		return true, "reached" + ratio
	case bound == 0:
		return false, "missed by " + number(ours)
	}
	return false, fmt.Sprintf("missed by %.0f %%%s", math.Abs(ours-bound)/bound*100, ratio)
}
