package events

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// queue is a bounded queue of reports to send. It is not safe for concurrent use.
//
// Each namespace has a share, and so has each kind of objects without one. The shares take turns, so a namespace with
// many reports, or whose Events the API server refuses for a while, delays only its own.
type queue struct {
	most   int
	slots  map[slot]*report
	shares map[string]*share
	// turns are the shares with reports, the next one first.
	turns []*share
}

// share is the reports of a namespace or a kind, the oldest first.
type share struct {
	name    string
	reports []*report
	// due is when the next one may be sent.
	due time.Time
}

// slot is the place of a report. A newer report takes the place of one that is not sent yet.
type slot struct {
	// object has no ResourceVersion.
	object  v1.ObjectReference
	reason  string
	subject types.UID
}

// report is an Event that is not sent yet.
type report struct {
	slot
	resourceVersion, eventType, message string
	annotations                         map[string]string
	at                                  time.Time
	// result is what to write, nil before the first try. tries counts the failed ones, and others the Events that were
	// written until the last of them.
	result        *record.EventCorrelateResult
	tries, others int
}

func newQueue(most int) queue {
	return queue{most: most, slots: map[slot]*report{}, shares: map[string]*share{}}
}

// add adds a report. If there is no room, the oldest report of the largest share gives way, and is returned.
func (q *queue) add(r *report) (dropped *report) {
	if waiting := q.slots[r.slot]; waiting != nil {
		*waiting = *r
		return nil
	}
	q.slots[r.slot] = r
	of := q.shareOf(r)
	of.reports = append(of.reports, r)
	if len(q.slots) <= q.most {
		return nil
	}
	largest := 0
	for i := range q.turns {
		if len(q.turns[i].reports) > len(q.turns[largest].reports) {
			largest = i
		}
	}
	return q.remove(largest)
}

// shareOf returns the share of a report, which it adds if there is none.
func (q *queue) shareOf(r *report) *share {
	name := shareName(r)
	of := q.shares[name]
	if of == nil {
		of = &share{name: name}
		q.shares[name], q.turns = of, append(q.turns, of)
	}
	return of
}

// shareName returns the namespace or kind. A kind begins with a capital letter, and no namespace does.
func shareName(r *report) string { return cmp.Or(r.object.Namespace, r.object.Kind) }

// again puts a report that was taken back to the head of its share, which sends nothing before due. A newer report of
// its slot takes its place.
func (q *queue) again(r *report, due time.Time) {
	of := q.shareOf(r)
	of.due = due
	if q.slots[r.slot] == nil {
		q.slots[r.slot], of.reports = r, slices.Insert(of.reports, 0, r)
	}
}

// only reports whether no other share than that of a report, which was taken, has reports.
func (q *queue) only(r *report) bool {
	of := q.shares[shareName(r)]
	return len(q.turns) == 0 || len(q.turns) == 1 && q.turns[0] == of
}

// take removes the next report that is due. Without one it returns nil, and how long the next takes to be, 0 for none.
func (q *queue) take(now time.Time) (r *report, next time.Duration) {
	for i, of := range q.turns {
		if left := of.due.Sub(now); left > 0 {
			next = min(cmp.Or(next, left), left)
			continue
		}
		r = q.remove(i)
		if len(of.reports) > 0 {
			q.turns = append(slices.Delete(q.turns, i, i+1), of)
		}
		return r, 0
	}
	return nil, next
}

// remove removes the oldest report of a share, and the share with its last report.
func (q *queue) remove(turn int) *report {
	of := q.turns[turn]
	r := of.reports[0]
	of.reports[0] = nil
	of.reports = of.reports[1:]
	delete(q.slots, r.slot)
	if len(of.reports) == 0 {
		delete(q.shares, of.name)
		q.turns = slices.Delete(q.turns, turn, turn+1)
	}
	return r
}
