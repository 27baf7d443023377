package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// Effect is a rule's effect on a request.
type Effect string

const (
	// Delay waits for Rule.Delay before the request proceeds to the server.
	Delay Effect = "delay"
	// LateAnswer lets the request through at once and delays the answer by Rule.Delay. In a watch it delays every event.
	LateAnswer Effect = "late-answer"
	// Fail answers Rule.Code; the server sees nothing of it.
	Fail Effect = "fail"
	// FailAfter lets the server carry out the request, and answers Rule.Code.
	FailAfter Effect = "fail-after"
	// Reset breaks the connection; the server sees nothing of the request.
	Reset Effect = "reset"
	// DropAnswer lets the server carry out the request, and breaks the connection instead of answering.
	DropAnswer Effect = "drop-answer"
	// Crash ends the client (Options.Crash) at Rule.At.
	Crash Effect = "crash"
	// Cut ends a watch after Rule.After events. It ignores a watch that begins with a list, which would never complete.
	Cut Effect = "cut"
	// Expire answers 410 to a watch that continues from a resourceVersion, as a server that has compacted the version. The
	// client begins anew with a list, and misses what happened in between.
	Expire Effect = "expire"
	// Stale answers a list from Rule.Version, if the client permits one that old, and refuses watches that begin with a
	// list, as servers before 1.32 do. A lagging replica of the API server acts in this way.
	Stale Effect = "stale"
)

// Point is a moment in the life of a write.
type Point string

const (
	// Before is the moment before the server sees the request.
	Before Point = "before"
	// Committed is the moment after the server has answered, before the client receives the answer.
	Committed Point = "committed"
	// Answered is the moment after the client has the answer. Its next requests are lost.
	Answered Point = "answered"
)

// Rule selects requests and their effect. The first rule that applies to a request decides.
type Rule struct {
	// Name appears in the record. Default: the effect.
	Name string `json:"name,omitempty"`
	// Verb is one of the API's: get, list, watch, create, update, patch, delete; or read (the first three) or write (the
	// others). Default: any.
	Verb string `json:"verb,omitempty"`
	// Resource is the plural, such as persistentvolumes, with /status for a subresource, or a pattern (path.Match) for it.
	// Default: any.
	Resource string `json:"resource,omitempty"`
	// Object is a pattern (path.Match) for the object's name. Default: any, also none.
	Object string `json:"object,omitempty"`
	// At most one of First (the first n requests), Nth (the n-th alone, from 1) and Every (each n-th) is set. Default:
	// all.
	First int `json:"first,omitempty"`
	Nth   int `json:"nth,omitempty"`
	Every int `json:"every,omitempty"`

	Effect Effect `json:"effect"`
	// Delay of Delay and LateAnswer.
	Delay Duration `json:"delay,omitempty"`
	// Code is the HTTP status of Fail and FailAfter, and RetryAfter their header Retry-After, in seconds; 0 leaves it out.
	Code       int `json:"code,omitempty"`
	RetryAfter int `json:"retryAfter,omitempty"`
	// At is the moment of Crash. Default: Committed.
	At Point `json:"at,omitempty"`
	// After is the number of events before Cut.
	After int `json:"after,omitempty"`
	// Version is the resourceVersion of Stale.
	Version string `json:"version,omitempty"`
}

// Duration is a time.Duration that reads and writes as text, such as 200ms.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// The words that stand for several verbs.
const (
	anyRead  = "read"
	anyWrite = "write"
)

var (
	errOneCount  = errors.New("only one of first, nth and every can be set")
	errNegative  = errors.New("a count is negative")
	errWatchOnly = errors.New("the effect is for lists and watches")
)

// Validate returns an error for an invalid rule.
func (r Rule) Validate() error {
	if err := r.check(); err != nil {
		return fmt.Errorf("rule %q: %w", r.label(), err)
	}
	return nil
}

func (r Rule) check() error {
	counts := 0
	for _, n := range []int{r.First, r.Nth, r.Every} {
		if n < 0 {
			return errNegative
		}
		if n > 0 {
			counts++
		}
	}
	if counts > 1 {
		return errOneCount
	}
	if !slices.Contains([]string{"", "get", "list", "watch", "create", "update", "patch", "delete", anyRead, anyWrite},
		r.Verb) {
		return fmt.Errorf("verb %q is none", r.Verb)
	}
	for field, pattern := range map[string]string{"resource": r.Resource, "object": r.Object} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s %q: %w", field, pattern, err)
		}
	}
	return r.checkEffect()
}

func (r Rule) checkEffect() error {
	switch r.Effect {
	case Delay, LateAnswer:
		if r.Delay <= 0 {
			return errors.New("delay must be positive")
		}
	case Fail, FailAfter:
		if r.Code < 400 || r.Code > 599 {
			return fmt.Errorf("code %d is no HTTP error", r.Code)
		}
	case Crash:
		if !slices.Contains([]Point{"", Before, Committed, Answered}, r.At) {
			return fmt.Errorf("at %q is no moment", r.At)
		}
	case Cut, Expire, Stale:
		if !slices.Contains([]string{"", "list", "watch", anyRead}, r.Verb) {
			return errWatchOnly
		}
		if r.Effect == Stale && r.Version == "" {
			return errors.New("version is missing")
		}
	case Reset, DropAnswer:
	default:
		return fmt.Errorf("effect %q is none", r.Effect)
	}
	return nil
}

func (r Rule) label() string {
	if r.Name != "" {
		return r.Name
	}
	return string(r.Effect)
}

// picks reports whether the rule is about such requests. Rules about lists and watches leave other requests alone.
func (r Rule) picks(q Request) bool {
	verb := r.Verb == "" || r.Verb == q.Verb || r.Verb == anyWrite && q.Write() || r.Verb == anyRead && !q.Write()
	return r.Effect.possible(q) && verb && matches(r.Resource, q.Resource) && matches(r.Object, q.Name)
}

// possible reports whether a request can meet the effect.
func (e Effect) possible(q Request) bool {
	switch e {
	case Cut:
		return q.Verb == "watch" && !q.initial
	case Expire:
		return q.Verb == "watch" && !q.initial && q.version != "" && q.version != "0"
	case Stale:
		return q.initial || q.Verb == "list" && q.version != ""
	case Delay, LateAnswer, Fail, FailAfter, Reset, DropAnswer, Crash:
	}
	return true
}

// matches reports whether a name is as the pattern says; an empty one says nothing.
func matches(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return pattern == "" || matched && err == nil
}

// counted is a rule and how often it was met.
type counted struct {
	Rule
	matched, applied int
}

// due counts a request that the rule is about, and says whether it is this one's turn.
func (r *counted) due() bool {
	r.matched++
	switch {
	case r.First > 0:
		return r.matched <= r.First
	case r.Nth > 0:
		return r.matched == r.Nth
	case r.Every > 0:
		return r.matched%r.Every == 0
	}
	return true
}

// Request is a client's request and its outcome.
type Request struct {
	// Verb is the API's: get, list, watch, create, update, patch, delete. Verb and Resource are empty for URLs
	// that are no resources.
	Verb string
	// Resource is the plural, with the subresource: persistentvolumes/status.
	Resource, Namespace, Name string
	// Received is when the proxy had the whole request.
	Received time.Time
	// Rule is the label of the rule that decided, empty for none.
	Rule string
	// Code is the status that the server answered, 0 where it was not asked or has not answered.
	Code int

	// version is the resourceVersion that the client allows for a list, or with which a watch begins. initial means that
	// the watch begins with all objects.
	version string
	initial bool
}

// Write reports whether the request changes something.
func (q Request) Write() bool {
	return q.Verb == "create" || q.Verb == "update" || q.Verb == "patch" || q.Verb == "delete"
}

// String is a line of a history.
func (q Request) String() string {
	line := q.Verb + " " + q.Resource + " " + strings.TrimPrefix(q.Namespace+"/"+q.Name, "/")
	if q.Rule != "" {
		line += " [" + q.Rule + "]"
	}
	return line
}

// parse reads the request's verb and target from its method and URL.
func parse(r *http.Request) Request {
	q := Request{Received: time.Now()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return q
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		q.Namespace, parts = parts[1], parts[2:]
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Resource += "/" + parts[2]
	}
	query := r.URL.Query()
	q.version = query.Get("resourceVersion")
	q.initial = query.Get("sendInitialEvents") == "true"
	switch r.Method {
	case http.MethodPost:
		q.Verb = "create"
	case http.MethodPut:
		q.Verb = "update"
	case http.MethodPatch:
		q.Verb = "patch"
	case http.MethodDelete:
		q.Verb = "delete"
	default:
		q.Verb = readVerb(q.Name, query.Get("watch"))
	}
	return q
}

func readVerb(name, watch string) string {
	switch {
	case watch == "true" || watch == "1":
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}
