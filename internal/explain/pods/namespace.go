package pods

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
)

// NamespaceFacts holds the results of all reads about one namespace.
type NamespaceFacts struct {
	ListFacts
	Namespace *v1.Namespace
	Claims    explain.Read[[]string]
	// Guards holds volume-guard's leader election Leases.
	Guards explain.Read[[]coordinationv1.Lease]
}

// ExplainNamespace is a pure function that explains the pods and claims that keep a terminating namespace.
func ExplainNamespace(f NamespaceFacts) explain.Explanation {
	name := f.Namespace.Name
	s := explain.Explanation{Object: "namespace " + name}
	rows := f.rows()
	state := string(f.Namespace.Status.Phase)
	deleted := f.Namespace.DeletionTimestamp
	if deleted != nil {
		state += " for " + explain.Age(f.Now, deleted.Time)
	}
	s.AddFact("Phase", "%s", state)
	left := plural.Count(len(rows), "pod")
	if deleted != nil {
		addConditions(&s, f, len(rows), left)
	}
	addRows(&s, rows, deleted != nil)
	f.addClaims(&s)
	s.AddGuards(f.Guards, f.Now)
	explain.NoteUnread(&s, f.Pods, "Pods", "which are left")
	s.Unread = append(s.Unread, f.unread()...)
	for _, row := range rows {
		if deleted != nil && len(s.Advice) < maxRows {
			s.Advise("kubectl reclaim explain pod/%s -n %s", row.Name, name)
		}
	}
	s.Headline = f.headline(rows, left)
	return s
}

// maxRows limits the number of pods that are listed one by one.
const maxRows = 20

// rows returns all pods of a terminating namespace, and only the pods that need attention of any other.
func (f NamespaceFacts) rows() (rows []Row) {
	if f.Namespace.DeletionTimestamp == nil {
		return ListOf(f.ListFacts, false).Pods
	}
	for _, pod := range f.Pods.Value {
		rows = append(rows, f.RowOf(pod))
	}
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// addConditions reports the namespace controller's conditions, and corrects one of them: with the feature gate
// OrderedNamespaceDeletion, NamespaceContentRemaining does not count terminating pods.
func addConditions(s *explain.Explanation, f NamespaceFacts, pods int, left string) {
	for _, c := range f.Namespace.Status.Conditions {
		mistaken := c.Type == v1.NamespaceContentRemaining && c.Status == v1.ConditionFalse && pods > 0
		switch {
		case mistaken:
			s.AddFact("Condition", "%s is %s: %q, but %s %s left", c.Type, c.Status, c.Message, left,
				plural.Verb(pods, "is", "are"))
		case c.Status != v1.ConditionFalse:
			s.AddFact("Condition", "%s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
}

func addRows(s *explain.Explanation, rows []Row, waits bool) {
	for i, row := range rows {
		if i == maxRows {
			s.AddFact("Pod", "and %d more", len(rows)-i)
			return
		}
		text := row.Name + ", " + row.Status
		if row.Node != "" {
			text += ", node " + row.Node
		}
		if row.Held {
			text += ", held by volume-guard (" + row.Reason + ")"
		}
		if len(row.Finalizers) > 0 {
			text += ", finalizer " + strings.Join(row.Finalizers, ", ")
		}
		s.AddFact("Pod", "%s", text)
		if waits && row.WaitsFor != "" {
			s.AddWait("pod %s, which waits for %s", row.Name, row.WaitsFor)
		} else if waits {
			s.AddWait("pod %s", row.Name)
		}
	}
}

// addClaims reports the claims that remain, and the pods that use them.
func (f NamespaceFacts) addClaims(s *explain.Explanation) {
	explain.NoteUnread(s, f.Claims, "Claims", "which are left")
	if f.Namespace.DeletionTimestamp == nil {
		return
	}
	for _, claim := range names(f.Claims.Value) {
		var users []string
		for _, pod := range f.Pods.Value {
			if slices.Contains(pod.Claims, claim) {
				users = append(users, pod.Name)
			}
		}
		if len(users) == 0 {
			s.AddFact("Claim", "%s: kubectl reclaim explain pvc/%s -n %s", claim, claim, f.Namespace.Name)
			continue
		}
		slices.Sort(users)
		s.AddFact("Claim", "%s, in use by pod %s", claim, strings.Join(users, ", "))
	}
}

func (f NamespaceFacts) headline(rows []Row, left string) string {
	what := "Namespace " + f.Namespace.Name
	held := 0
	for _, row := range rows {
		if row.Held {
			held++
		}
	}
	switch {
	case f.Namespace.DeletionTimestamp == nil && len(rows) == 0:
		return what + " is not terminating, and none of its pods waits."
	case f.Namespace.DeletionTimestamp == nil:
		return fmt.Sprintf("%s is not terminating. %s %s attention.", what, left, plural.Verb(len(rows), "wants", "want"))
	case !f.Pods.OK():
		return what + " is terminating, and its pods could not be read."
	}
	what += " has been terminating for " + explain.Age(f.Now, f.Namespace.DeletionTimestamp.Time)
	switch {
	case held == 1 && len(rows) == 1:
		return fmt.Sprintf("%s and waits for %s, which volume-guard holds.", what, left)
	case held > 0:
		return fmt.Sprintf("%s and waits for %s. volume-guard holds %d of them.", what, left, held)
	case len(rows) > 0:
		return fmt.Sprintf("%s and waits for %s. volume-guard holds none of them.", what, left)
	}
	return what + ", and has no pods left. Its conditions name the other objects."
}
