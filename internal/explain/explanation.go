package explain

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// Explanation describes the next step for one PV, claim, pod or namespace, and the reason.
type Explanation struct {
	// Object names the explained object: "PV name", "claim namespace/name", "pod namespace/name" or "namespace name".
	Object     string      `json:"object"`
	Headline   string      `json:"headline"`
	Facts      []Fact      `json:"facts,omitempty"`
	Finalizers []Finalizer `json:"finalizers,omitempty"`
	Decision   *Decision   `json:"decision,omitempty"`
	// InFlight holds the in-flight log's entries for the claim, or for the PV's volume.
	InFlight []InFlight `json:"inFlight,omitempty"`
	// WaitsFor lists the conditions that have to be met first.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Missing lists, for a terminating pod that is held, the gap in each kind of evidence that its processes have ended.
	Missing []Missing `json:"missing,omitempty"`
	Risks   []string  `json:"risks,omitempty"`
	Advice  []string  `json:"advice,omitempty"`
	Events  []string  `json:"events,omitempty"`
	// Unread lists the reads that failed, and the questions they leave open.
	Unread []string `json:"unread,omitempty"`
	// PV explains the claim's PV; nil if it has none.
	PV *Explanation `json:"pv,omitempty"`
	// Holder explains the terminating pod that a claim, or a pod that is not scheduled, waits for; nil if it waits for
	// none.
	Holder *Explanation `json:"holder,omitempty"`
}

type Finalizer struct {
	Name string `json:"name"`
	// Owner is the program that removes the finalizer, empty if it is unknown.
	Owner string `json:"owner,omitempty"`
	// When is the condition under which the owner removes it.
	When string `json:"when,omitempty"`
	// Stuck is the reason why no program removes it, empty if a program may.
	Stuck string `json:"stuck,omitempty"`
	// AddedBy is the field manager that added it, empty if managedFields do not show one.
	AddedBy string `json:"addedBy,omitempty"`
}

func (f Finalizer) text(wide bool) string {
	text := f.Name + ": "
	switch {
	case f.Stuck != "":
		text += "no program removes it: " + f.Stuck
	case f.Owner == "":
		text += "its owner is unknown"
	default:
		text += f.Owner + " removes it " + f.When
	}
	if wide && f.AddedBy != "" {
		text += " (added by " + f.AddedBy + ")"
	}
	return text
}

// Decision is the decision on a PV or a claim, and the program that makes it.
type Decision struct {
	// By is the program that decides, with its role.
	By string `json:"by"`
	// Action is the next step: Wait if no step can be taken now, empty if the step is unknown.
	Action string `json:"action,omitempty"`
	// Reason is the word for the decision in Events, metrics and logs.
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Missing is one kind of evidence, and the reason why it does not count.
type Missing struct {
	Evidence string `json:"evidence"`
	Text     string `json:"text"`
}

type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Command is a command of this program's own, as an argument of Sentence.
type Command string

// Sentence formats a sentence whose commands are for a person to copy. They come from format and from a Command. All
// other texts may be those of a tenant, such as the holder of a Lease, and are made inert.
func Sentence(format string, args ...any) string {
	for i, arg := range args {
		if _, own := arg.(Command); !own && !reflect.ValueOf(arg).CanInt() {
			args[i] = text.Inert(fmt.Sprint(arg))
		}
	}
	return fmt.Sprintf(format, args...)
}

// AddFact adds a line to Facts. AddWait does the same for WaitsFor, and Advise adds a Sentence to Advice.
func (s *Explanation) AddFact(name, format string, args ...any) {
	s.Facts = append(s.Facts, Fact{name, fmt.Sprintf(format, args...)})
}

func (s *Explanation) AddWait(format string, args ...any) {
	s.WaitsFor = append(s.WaitsFor, fmt.Sprintf(format, args...))
}

func (s *Explanation) Advise(format string, args ...any) {
	s.Advice = append(s.Advice, Sentence(format, args...))
}

// NoteUnread adds to Unread the object of a failed read, and the question that it leaves open. It adds nothing if the
// read succeeded or was not made, or if the API server does not serve the fencing API, which leaves no question open.
func NoteUnread[T any](s *Explanation, r Read[T], what, open string) {
	if r.Err != nil && !NoFencing(r) {
		s.Unread = append(s.Unread, fmt.Sprintf("%s: %v. So it is not known %s.", what, r.Err, open))
	}
}

// RefusalError is the reason why a command does not go on.
type RefusalError struct{ Cause, Next string }

func (r *RefusalError) Error() string { return r.Cause }

// NextStep returns the action open to a person.
func (r *RefusalError) NextStep() string { return r.Next }

// maxEvents limits the number of Events shown; maxMessage limits the text of each, in bytes.
const (
	maxEvents  = 3
	maxMessage = 512
)

// AddEvents adds the latest of the Events, which SortEvents must have sorted before.
func (s *Explanation) AddEvents(events Read[[]v1.Event], now time.Time) {
	NoteUnread(s, events, "Events", "which Events it has")
	for i := len(events.Value) - 1; i >= 0 && len(s.Events) < maxEvents; i-- {
		e := events.Value[i]
		s.Events = append(s.Events, fmt.Sprintf("%s ago, %s: %s: %s", Age(now, lastSeen(e)),
			cmp.Or(e.ReportingController, e.Source.Component), e.Reason,
			text.Truncate(strings.ReplaceAll(e.Message, "\n", " "), maxMessage)))
	}
}

// SortEvents sorts Events for AddEvents, the latest last.
func SortEvents(all []v1.Event) {
	slices.SortStableFunc(all, func(a, b v1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
}

// lastSeen returns the time of the last occurrence, which an Event of each API generation keeps in another field.
func lastSeen(e v1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

// Age formats the time from then to now as kubectl does.
func Age(now, then time.Time) string { return duration.HumanDuration(now.Sub(then)) }

// AtTime converts a time for JSON, nil for the zero time.
func AtTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// WithoutPeriod prepares a sentence for use inside a longer one.
func WithoutPeriod(sentence string) string { return strings.TrimSuffix(sentence, ".") }

// labelWidth is the column width of fact names.
const labelWidth = 12

// Wrapped formats the explanation for people and a terminal of a width, with one line for each fact. If wide is set, it
// names the field manager of each finalizer. Lines are broken between words, but for the commands in advice. The
// headline of a claim has a short name of its PV, which is whole below. A width of 0 breaks and shortens nothing.
func (s Explanation) Wrapped(wide bool, width int) string {
	var b strings.Builder
	headline := s.Headline
	if s.PV != nil && width > 0 {
		pv := strings.TrimPrefix(s.PV.Object, "PV ")
		headline = strings.ReplaceAll(headline, pv, ShortName(pv))
	}
	for _, part := range wrap(headline, width) {
		fmt.Fprintln(&b, part)
	}
	fmt.Fprintln(&b)
	printParts := func(name string, parts []string) {
		for _, part := range parts {
			fmt.Fprintf(&b, "%-*s %s\n", labelWidth, name, part)
			name = ""
		}
	}
	line := func(name, text string) { printParts(name, wrap(text, width-labelWidth-1)) }
	for _, f := range s.Facts {
		line(f.Name, f.Text)
	}
	lines := func(name string, all []string) {
		for _, text := range all {
			line(name, text)
			name = ""
		}
	}
	var finalizers []string
	for _, f := range s.Finalizers {
		finalizers = append(finalizers, f.text(wide))
	}
	lines("Finalizers", finalizers)
	if d := s.Decision; d != nil {
		what := d.Reason
		if d.Action != "" {
			what = d.Action + ", " + d.Reason
		}
		line("Decision", what+" (by "+d.By+")")
		if !strings.Contains(s.Headline, WithoutPeriod(d.Text)) {
			line("", d.Text)
		}
	}
	lines("Waits for", s.WaitsFor)
	var missing []string
	for _, m := range s.Missing {
		missing = append(missing, m.Evidence+": "+m.Text)
	}
	lines("No evidence", missing)
	lines("Force risks", s.Risks)
	for i, text := range s.Advice {
		printParts([]string{"You can", ""}[min(i, 1)], wrapAdvice(text, width-labelWidth-1))
	}
	lines("Events", s.Events)
	lines("Not read", s.Unread)
	for _, other := range []*Explanation{s.PV, s.Holder} {
		if other != nil {
			fmt.Fprintln(&b)
			fmt.Fprint(&b, other.Wrapped(wide, width))
		}
	}
	return b.String()
}

// minWidth is the width below which nothing is wrapped.
const minWidth = 20

// wrapAdvice is wrap for a Sentence. A command to copy stays whole, and gets a line of its own.
func wrapAdvice(text string, width int) []string {
	text = oneLine(text)
	const command = ": kubectl "
	if at := strings.Index(text, command); at >= 0 && !fits(text, width) {
		return append(wrap(text[:at+1], width), text[at+2:])
	}
	return wrap(text, width)
}

// oneLine makes each control character a space, because texts of other writers are part of a line, and must not begin
// one.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func fits(text string, width int) bool {
	return width < minWidth || utf8.RuneCountInString(text) <= width
}

// wrap breaks a text into lines of a width between words. A word that is longer stays whole.
func wrap(text string, width int) (lines []string) {
	text = oneLine(text)
	if fits(text, width) {
		return []string{text}
	}
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// uuidName matches the names that provisioners give to volumes: a prefix and a UUID.
var uuidName = regexp.MustCompile(`^(.*?[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// ShortName shortens the name of a provisioned PV to its prefix and the first part of its UUID, "pvc-8a5c0f1e…". Any
// other name stays whole. It is for places where the claim identifies the PV.
func ShortName(pv string) string {
	if of := uuidName.FindStringSubmatch(pv); of != nil {
		return of[1] + "…"
	}
	return pv
}
