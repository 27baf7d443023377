package events

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// queue is a bounded queue of reports to send. It is not safe for concurrent use.
//
// Each namespace has a share, and so has each kind of objects without one. The shares take turns, so a namespace with
// many reports delays only its own.
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
	name := cmp.Or(r.object.Namespace, r.object.Kind) // a kind begins with a capital letter, and no namespace does
	of := q.shares[name]
	if of == nil {
		of = &share{name: name}
		q.shares[name], q.turns = of, append(q.turns, of)
	}
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

// take removes the next report, nil for none.
func (q *queue) take() *report {
	if len(q.turns) == 0 {
		return nil
	}
	of := q.turns[0]
	r := q.remove(0)
	if len(of.reports) > 0 {
		q.turns = append(q.turns[1:], of)
	}
	return r
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
