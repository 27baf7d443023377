package statefulset

import "time"

// Explanation is what happens to a claim next, and why.
type Explanation struct {
	Decision Decision
	// Text is for people: the reason's sentence and what is known of this claim.
	Text string
	// Set is the name of the claim's StatefulSet, empty for none, Policy its policy, and Source where that comes from.
	Set    string
	Policy Policy
	Source Source
	// Scaled and Deleted are what becomes of the claim when its replica is scaled away, and when its set is deleted.
	Scaled, Deleted Forecast
}

// Explain returns what [Decide] decides on these facts, and why. It is a pure function; now is the time by which reads
// are judged too old.
func Explain(f Facts, now time.Time) Explanation {
	d := Decide(f, now)
	e := Explanation{Decision: d, Text: d.Reason.Sentence()}
	if more := f.Detail(d.Reason); more != "" {
		e.Text += " " + more
	}
	if f.given() {
		e.Set, e.Policy, e.Source = f.Set.Name, f.Set.Policy, f.Set.Source
		e.Scaled = Foresee(f, Change{Kind: Scale, Replicas: max(0, min(f.Set.Replicas, f.Ordinal-f.Set.Start))})
		e.Deleted = Foresee(f, Change{Kind: DeleteSet})
	}
	return e
}
