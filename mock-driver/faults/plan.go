package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Action is what a rule does to a call.
type Action string

const (
	// Fail answers with Code.
	Fail Action = "fail"
	// Delay waits for the time given in Delay, or until the call's deadline.
	Delay Action = "delay"
	// Block waits until another plan is set or this one cleared, or until the call's deadline.
	Block Action = "block"
	// Hang answers only when the call's deadline has passed or the client has given up.
	Hang Action = "hang"
	// Silence never answers, not even after the deadline. The call ends when the driver shuts down.
	Silence Action = "silence"
	// Crash ends the process at once, as kill -9 does.
	Crash Action = "crash"
	// ExpireToken answers Aborted to a list call that carries a token, and leaves first pages alone.
	ExpireToken Action = "expire-token"
	// RepeatPage gives a page a token that leads to that same page again.
	RepeatPage Action = "repeat-page"
	// Duplicate lists the first entry of a page twice, beyond max_entries if need be.
	Duplicate Action = "duplicate"
	// Reorder reverses the entries of a page.
	Reorder Action = "reorder"
	// Omit leaves the first entry of a page out.
	Omit Action = "omit"
	// BlankID empties the id of the volume or snapshot, or of the first one of a page, in the answer.
	BlankID Action = "blank-id"
)

// Actions lists all actions.
func Actions() []Action {
	return []Action{Fail, Delay, Block, Hang, Silence, Crash, ExpireToken, RepeatPage, Duplicate, Reorder, Omit, BlankID}
}

// onAnswer reports whether the action works on the answer of a call that was carried out.
func (a Action) onAnswer() bool {
	return a == RepeatPage || a == Duplicate || a == Reorder || a == Omit || a == BlankID
}

// Plan is a list of rules. Each rule counts the calls that it picks. For one call, the delays of all rules that
// apply add up, and a block comes after them; actions on the answer are all carried out, and of the others the first
// one decides.
type Plan struct {
	Rules []Rule `json:"rules"`
}

// Rule says what happens to which calls.
type Rule struct {
	// Name appears in the ledger and in the counters. Default: rule-1 for the first rule, and so on.
	Name string `json:"name,omitempty"`
	// Method is the bare name of an RPC, such as DeleteVolume, or a pattern with * and ?.
	Method string `json:"method"`
	// Volume and VolumeName are patterns with * and ? for the volume's id and for the name it was created under. A
	// call without a volume matches neither. CreateVolume has no id yet: pick by name.
	Volume     string `json:"volume,omitempty"`
	VolumeName string `json:"volumeName,omitempty"`
	// Place is a pattern with * and ? for KEY=VALUE, a segment of the topology that the call asks for first: the place
	// it prefers, of those it can do with. A call that asks for no place does not match.
	Place string `json:"place,omitempty"`
	// Share picks this share of the volumes, between 0 and 1: always the same ones, chosen by a hash of the name.
	// Default: all.
	Share float64 `json:"share,omitempty"`
	// At most one of First (the first n calls), Nth (the n-th alone) and Every (each n-th) is set. Default: each call.
	First int `json:"first,omitempty"`
	Nth   int `json:"nth,omitempty"`
	Every int `json:"every,omitempty"`
	// PerVolume counts the calls of each volume apart.
	PerVolume bool `json:"perVolume,omitempty"`

	Action Action `json:"action"`
	// AfterWork does the work first. Without it, the call changes nothing (Fail, Hang, Silence, Crash) or waits
	// beforehand (Delay, Block).
	AfterWork bool `json:"afterWork,omitempty"`
	// Code is the gRPC code of Fail, such as Internal or INTERNAL, and Message its message. Default: "injected fault
	// <name>".
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Delay is how long Delay waits, such as "200ms".
	Delay Duration `json:"delay,omitempty"`
}

// Duration is a time.Duration that reads and writes JSON as "1m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("delay: %q is not a duration such as 200ms", text)
	}
	*d = Duration(parsed)
	return nil
}

// ParsePlan reads a plan from JSON and validates it. What is wrong is said in one line that names the field.
func ParsePlan(data []byte) (Plan, error) {
	var p Plan
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Plan{}, explain(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Plan{}, errors.New("fault plan: more follows after the plan")
	}
	if err := p.Validate(); err != nil {
		return Plan{}, err
	}
	return p, nil
}

func explain(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		field := wrong.Field
		if field == "" {
			field = "the plan"
		}
		return fmt.Errorf("fault plan: %s: a JSON %s does not fit", field, wrong.Value)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("fault plan: the JSON ends too early")
	}
	return fmt.Errorf("fault plan: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// Validate reports the first field that is wrong.
func (p Plan) Validate() error {
	names := map[string]bool{}
	for i, r := range p.withNames().Rules {
		if field, why := r.wrong(); field != "" {
			return fmt.Errorf("fault plan: rules[%d].%s: %s", i, field, why)
		}
		if names[r.Name] {
			return fmt.Errorf("fault plan: rules[%d].name: %q is taken", i, r.Name)
		}
		names[r.Name] = true
	}
	return nil
}

// withNames returns a copy in which each rule has a name.
func (p Plan) withNames() Plan {
	rules := make([]Rule, len(p.Rules))
	copy(rules, p.Rules)
	for i := range rules {
		if rules[i].Name == "" {
			rules[i].Name = fmt.Sprintf("rule-%d", i+1)
		}
	}
	return Plan{Rules: rules}
}

func (r Rule) wrong() (field, why string) {
	for _, check := range []func() (string, string){r.wrongPick, r.wrongCount, r.wrongAction} {
		if field, why = check(); field != "" {
			return field, why
		}
	}
	return "", ""
}

func (r Rule) wrongPick() (field, why string) {
	if r.Method == "" {
		return "method", "must name an RPC such as DeleteVolume, or a pattern such as *"
	}
	known := false
	for _, m := range Methods() {
		known = known || glob(r.Method, m)
	}
	switch {
	case !known:
		return "method", fmt.Sprintf("%q matches no RPC of the driver", r.Method)
	case !(r.Share >= 0 && r.Share <= 1): // Also refuses NaN.
		return "share", fmt.Sprintf("%v is not between 0 and 1", r.Share)
	case r.Place != "" && !glob(r.Method, "CreateVolume") && !glob(r.Method, "CreateSnapshot"):
		return "place", "goes with CreateVolume and CreateSnapshot, which alone ask for one"
	}
	return "", ""
}

func (r Rule) wrongCount() (field, why string) {
	given := 0
	for _, c := range []struct {
		name string
		n    int
	}{{"first", r.First}, {"nth", r.Nth}, {"every", r.Every}} {
		if c.n < 0 {
			return c.name, fmt.Sprintf("%d is negative", c.n)
		}
		if c.n == 0 {
			continue
		}
		if given++; given > 1 {
			return c.name, "only one of first, nth and every can be set"
		}
	}
	return "", ""
}

func (r Rule) wrongAction() (field, why string) {
	if field, why = r.missingField(); field != "" {
		return field, why
	}
	return r.extraField()
}

// missingField returns the field that the action needs and that is wrong, empty for none.
func (r Rule) missingField() (field, why string) {
	switch r.Action {
	case Fail:
		if code, ok := ParseCode(r.Code); !ok || code == codes.OK {
			return "code", fmt.Sprintf("%q is not a gRPC error code such as Internal or Unavailable", r.Code)
		}
	case Delay:
		if r.Delay <= 0 {
			return "delay", "must be a positive duration such as 200ms"
		}
	case Block, Hang, Silence, Crash:
	case ExpireToken, RepeatPage, Duplicate, Reorder, Omit:
		if r.Method != "ListVolumes" && r.Method != "ListSnapshots" && r.Method != "List*" {
			return "method", fmt.Sprintf("action %s is for ListVolumes, ListSnapshots or List*", r.Action)
		}
	case BlankID:
	default:
		return "action", fmt.Sprintf("%q is not one of %v", r.Action, Actions())
	}
	return "", ""
}

// extraField returns the field that is set and has no meaning with the action, empty for none.
func (r Rule) extraField() (field, why string) {
	switch {
	case r.Action != Fail && (r.Code != "" || r.Message != ""):
		return "code", fmt.Sprintf("code and message go with action %s, not with %s", Fail, r.Action)
	case r.Action != Delay && r.Delay != 0:
		return "delay", fmt.Sprintf("goes with action %s, not with %s", Delay, r.Action)
	case r.AfterWork && (r.Action.onAnswer() || r.Action == ExpireToken):
		return "afterWork", fmt.Sprintf("means nothing with action %s", r.Action)
	}
	return "", ""
}

// ParseCode reads the name of a gRPC code in either of its spellings, DeadlineExceeded or DEADLINE_EXCEEDED.
func ParseCode(name string) (codes.Code, bool) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if name != "" && (plain(c.String()) == plain(name) || c == codes.Canceled && plain(name) == "cancelled") {
			return c, true
		}
	}
	return codes.Unknown, false
}

// glob matches the whole of s against a pattern in which * stands for any run of bytes and ? for one byte.
func glob(pattern, s string) bool {
	star, mark, p, i := -1, 0, 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p, i = p+1, i+1
		case star >= 0: // Let the last * take one byte more.
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
