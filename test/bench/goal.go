package bench

import (
	"fmt"
	"math"
)

// Goal is what a figure of ours is to be.
type Goal struct {
	// Than says what ours is compared with: nothing (then Value counts), or the column of that name.
	Than string `json:"than,omitempty"`
	// Relation is "=", "<=" or ">=".
	Relation string `json:"relation"`
	// Value is the bound, or where Than is set the factor to it.
	Value float64 `json:"value"`
	// Slack is by how much "=" may be missed: figures that are counted have none.
	Slack float64 `json:"slack,omitempty"`
}

func exactly(v float64) Goal { return Goal{Relation: "=", Value: v} }
func atMost(v float64) Goal  { return Goal{Relation: "<=", Value: v} }
func atLeast(v float64) Goal { return Goal{Relation: ">=", Value: v} }
func atLeastOf(factor float64, col string) Goal {
	return Goal{Relation: ">=", Value: factor, Than: col}
}

// String says it in a few words.
func (g Goal) String() string {
	sign := map[string]string{"=": "=", "<=": "≤", ">=": "≥"}[g.Relation]
	if g.Than == "" {
		return sign + " " + number(g.Value)
	}
	return fmt.Sprintf("%s %s × %s", sign, number(g.Value), g.Than)
}

// Judge says whether the medians meet the goal, and how far they are from it: "met (1.23 ×)", "missed by 12 %". A
// figure that was not measured, or has nothing to be compared with, is "not measured".
func (g Goal) Judge(medians map[string]float64) (met bool, verdict string) {
	ours, there := medians[Ours]
	bound, than := g.Value, 1.0
	if g.Than != "" {
		var compared bool
		than, compared = medians[g.Than]
		there = there && compared
		bound *= than
	}
	if !there || math.IsNaN(ours) || math.IsNaN(bound) {
		return false, "not measured"
	}
	switch g.Relation {
	case "=":
		met = math.Abs(ours-bound) <= g.Slack
	case "<=":
		met = ours <= bound
	default:
		met = ours >= bound
	}
	switch {
	case met && g.Than != "":
		return true, fmt.Sprintf("met (%.2f ×)", ours/than)
	case met:
		return true, "met"
	case bound == 0:
		return false, "missed by " + number(ours)
	case g.Than != "":
		return false, fmt.Sprintf("missed by %.0f %% (%.2f ×)", math.Abs(ours-bound)/bound*100, ours/than)
	}
	return false, fmt.Sprintf("missed by %.0f %%", math.Abs(ours-bound)/bound*100)
}
