package statefulset

import "time"

// Explanation describes the next step for a claim and its reason.
type Explanation struct {
	Decision Decision
	// Text is for people: the sentence of the reason, followed by details of this claim.
	Text string
	// Set is the name of the claim's StatefulSet, empty for none, Policy its policy, and Source the policy's origin.
	Set    string
	Policy Policy
	Source Source
	// Scaled and Deleted predict the fate of the claim when its replica is scaled away, and when its set is deleted.
	Scaled, Deleted Forecast
}

// Explain returns the outcome of [Decide] on these facts and its reason. now decides whether reads are too old. It is a
// pure function.
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
