package topology

import v1 "k8s.io/api/core/v1"

// allowed returns the terms of a StorageClass's allowedTopologies. A selector term allows several values for each key.
// CSI has no such choice, so every combination becomes a term of its own: zone in (a, b) and rack in (1, 2) are a1, a2,
// b1 and b2.
//
// A combination with two values for one key is contradictory and left out.
func allowed(selectors []v1.TopologySelectorTerm) []term {
	var all []term
	for _, selector := range selectors {
		if len(selector.MatchLabelExpressions) == 0 {
			continue // selects nothing (core/v1, TopologySelectorTerm)
		}
		combinations := []term{nil}
		for _, expression := range selector.MatchLabelExpressions {
			var longer []term
			for _, t := range combinations {
				for _, value := range expression.Values {
					if next, ok := t.with(segment{expression.Key, value}); ok {
						longer = append(longer, next)
					}
				}
			}
			combinations = longer
		}
		all = append(all, combinations...)
	}
	return sorted(all)
}
