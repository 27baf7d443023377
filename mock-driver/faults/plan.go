package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Action is the effect of a rule on a call.
type Action string

const (
	// Fail answers with the error of Code and Message.
	Fail Action = "fail"
	// Delay waits for the duration in Delay, or until the call's deadline.
	Delay Action = "delay"
	// Block waits until the plan is replaced or cleared, or until the call's deadline.
	Block Action = "block"
	// Hang answers only after the call's deadline, or when the client cancels the call.
	Hang Action = "hang"
	// Silence never answers, not even after the deadline, and the call ends when the driver shuts down.
	Silence Action = "silence"
	// Crash ends the process at once, like kill -9.
	Crash Action = "crash"
	// ExpireToken answers Aborted to a list call with a token, and does not affect first pages.
	ExpireToken Action = "expire-token"
	// RepeatPage sets the page's next token so that it leads to the same page again.
	RepeatPage Action = "repeat-page"
	// Duplicate lists the first entry of a page twice, if necessary beyond max_entries.
	Duplicate Action = "duplicate"
	// Reorder reverses the entries of a page.
	Reorder Action = "reorder"
	// Omit drops the first entry of a page.
	Omit Action = "omit"
	// BlankID empties the id of the volume or snapshot in the answer; for a list, of its first entry.
	BlankID Action = "blank-id"
)

// Actions lists all actions.
func Actions() []Action {
	return []Action{Fail, Delay, Block, Hang, Silence, Crash, ExpireToken, RepeatPage, Duplicate, Reorder, Omit, BlankID}
}

// onAnswer reports whether the action modifies the answer of the work.
func (a Action) onAnswer() bool {
	return a == RepeatPage || a == Duplicate || a == Reorder || a == Omit || a == BlankID
}

// Plan is a list of rules. Each rule counts its matching calls. If several rules match a call, delays add up and
// precede a block, every action on the answer applies, and otherwise the first rule wins.
type Plan struct {
	Rules []Rule `json:"rules"`
}

// Rule selects calls by their properties and by count, and applies an action to them.
type Rule struct {
	// Name identifies the rule in the ledger and in the counters, by default as rule-1 for the first rule, and so on.
	Name string `json:"name,omitempty"`
	// Method is the name of an RPC, such as DeleteVolume, or a pattern with * and ?.
	Method string `json:"method"`
	// Volume and VolumeName are patterns with * and ? for the volume's id and for its name in CreateVolume. A call
	// without a volume matches neither, and CreateVolume, which has no id yet, matches only VolumeName.
	Volume     string `json:"volume,omitempty"`
	VolumeName string `json:"volumeName,omitempty"`
	// Place is a pattern with * and ? for KEY=VALUE, a segment of the first topology that the call requests: the most
	// preferred one. A call without requested topology does not match.
	Place string `json:"place,omitempty"`
	// Share selects this fraction of the volumes, between 0 and 1, by a hash of the name, so that the same volumes are
	// always selected. The default is all.
	Share float64 `json:"share,omitempty"`
	// At most one of First (the first n calls), Nth (only the n-th) and Every (each n-th) is set. Without them, the rule
	// applies to each call.
	First int `json:"first,omitempty"`
	Nth   int `json:"nth,omitempty"`
	Every int `json:"every,omitempty"`
	// PerVolume counts the calls of each volume separately.
	PerVolume bool `json:"perVolume,omitempty"`

	Action Action `json:"action"`
	// AfterWork applies the action after the work of the call. Without it, the call changes nothing (Fail, Hang,
	// Silence, Crash) or waits before the work (Delay, Block).
	AfterWork bool `json:"afterWork,omitempty"`
	// Code is the gRPC code of Fail, such as Internal or INTERNAL, and Message its message. Default message: "injected
	// fault <name>".
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Delay is the duration of action Delay, such as "200ms".
	Delay Duration `json:"delay,omitempty"`
}

// Duration is a time.Duration with the JSON form "1m30s".
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

// ParsePlan reads a plan from JSON and validates it, with an error that names the invalid field in one line.
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

// Validate returns an error that names the first invalid field, and nil for a valid plan.
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

// withNames returns a copy of the plan with a name for each rule.
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
	for _, check := range []func() (string, string){r.wrongPick, r.wrongCount, r.missingField, r.extraField} {
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
	switch {
	case !slices.ContainsFunc(Methods(), func(m string) bool { return glob(r.Method, m) }):
		return "method", fmt.Sprintf("%q matches no RPC of the driver", r.Method)
	case !(r.Share >= 0 && r.Share <= 1): // Also rejects NaN.
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

// missingField returns an invalid or missing field that the action needs, or "".
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

// extraField returns a set field that has no meaning for the action, or "".
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

// ParseCode parses the name of a gRPC code in either spelling, DeadlineExceeded or DEADLINE_EXCEEDED.
func ParseCode(name string) (codes.Code, bool) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if name != "" && (plain(c.String()) == plain(name) || c == codes.Canceled && plain(name) == "cancelled") {
			return c, true
		}
	}
	return codes.Unknown, false
}

// glob matches all of s against a pattern; * stands for any sequence of bytes, and ? for one byte.
func glob(pattern, s string) bool {
	star, mark, p, i := -1, 0, 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p, i = p+1, i+1
		case star >= 0: // Let the last * match one more byte.
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Methods returns the method names of all RPCs that the driver serves.
func Methods() []string {
	var names []string
	for _, service := range []grpc.ServiceDesc{csi.Identity_ServiceDesc, csi.Controller_ServiceDesc,
		csi.Node_ServiceDesc} {
		for _, m := range service.Methods {
			names = append(names, m.MethodName)
		}
	}
	return names
}
