package explain

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/text"
)

// Story is what happens to one PV or claim, and why.
type Story struct {
	// Of is what it is about: "PV name" or "claim namespace/name".
	Of string `json:"of"`
	// Headline is the story in one sentence.
	Headline string `json:"headline"`
	// Facts are what is known of the object, in the order in which they are told.
	Facts      []Fact      `json:"facts,omitempty"`
	Finalizers []Finalizer `json:"finalizers,omitempty"`
	Decision   *Decision   `json:"decision,omitempty"`
	// InFlight are the entries of the in-flight log for the claim, or for the PV's volume.
	InFlight []InFlight `json:"inFlight,omitempty"`
	// WaitsFor is what has to come about before the object goes on its way.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Advice is what a person can do.
	Advice []string `json:"advice,omitempty"`
	// Said are the latest Events about the object, the latest first.
	Said []string `json:"said,omitempty"`
	// Unread is what could not be read, and so is not in the story.
	Unread []string `json:"unread,omitempty"`
	// PV is the story of the claim's PV, nil for none.
	PV *Story `json:"pv,omitempty"`
}

// Fact is one thing that is known of an object.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (s *Story) fact(name, format string, args ...any) {
	s.Facts = append(s.Facts, Fact{name, fmt.Sprintf(format, args...)})
}

func (s *Story) waitsFor(format string, args ...any) {
	s.WaitsFor = append(s.WaitsFor, fmt.Sprintf(format, args...))
}

func (s *Story) advise(format string, args ...any) {
	s.Advice = append(s.Advice, fmt.Sprintf(format, args...))
}

// unread notes what a read that failed leaves open.
func unread[T any](s *Story, r Read[T], what, open string) {
	if r.Made && r.Err != nil {
		s.Unread = append(s.Unread, fmt.Sprintf("%s: %v. So it is not known %s.", what, r.Err, open))
	}
}

// maxSaid bounds how many Events are told, and maxWords each one's text, in bytes.
const (
	maxSaid  = 3
	maxWords = 512
)

// said tells the latest Events. They come sorted, the latest last.
func (s *Story) said(events Read[[]v1.Event], now time.Time) {
	unread(s, events, "Events", "what programs have said of it")
	for i := len(events.Value) - 1; i >= 0 && len(s.Said) < maxSaid; i-- {
		e := events.Value[i]
		s.Said = append(s.Said, fmt.Sprintf("%s ago, %s: %s: %s", age(now, said(e)), from(e), e.Reason, text.Text(strings.ReplaceAll(e.Message, "\n", " "), maxWords)))
	}
}

// said returns when an Event was last told.
func said(e v1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func from(e v1.Event) string {
	if e.ReportingController != "" {
		return e.ReportingController
	}
	return e.Source.Component
}

// age is a time span as kubectl writes it.
func age(now, then time.Time) string { return duration.HumanDuration(now.Sub(then)) }

// stuck returns the finalizers that nobody takes off.
func stuck(all []Finalizer) (left []Finalizer) {
	for _, f := range all {
		if f.Stuck != "" {
			left = append(left, f)
		}
	}
	return left
}

// takeOff is how a person takes a finalizer off.
func takeOff(kind, name, finalizer string) string {
	return fmt.Sprintf(`kubectl patch %s %s -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["%s"]}}'`, kind, name, finalizer)
}

// bare is a sentence without its end, to go on with.
func bare(sentence string) string { return strings.TrimSuffix(sentence, ".") }
