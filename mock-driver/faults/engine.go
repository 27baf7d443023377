package faults

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Config holds the settings that an engine needs of its driver.
type Config struct {
	// Base rules apply in addition to every plan, such as a driver's ordinary latency.
	Base []Rule
	// FirstPage is a token for the first page of a list, used by RepeatPage.
	FirstPage string
	// Crash ends the process without returning, by default with a kill -9 of itself.
	Crash func()
}

// Engine applies a plan to calls, and is safe for concurrent use.
type Engine struct {
	config   Config
	released chan struct{}
	release  func()

	mu    sync.Mutex
	plan  Plan
	rules []*counted
	// replaced is closed when another plan is set, which ends blocks.
	replaced chan struct{}
}

type counted struct {
	Rule
	base      bool
	matched   int
	applied   int
	perVolume map[string]int
}

// New returns an engine without a plan, or an error if the base rules are invalid.
func New(config Config) (*Engine, error) {
	if config.Crash == nil {
		config.Crash = killSelf
	}
	if err := (Plan{Rules: config.Base}).Validate(); err != nil {
		return nil, err
	}
	released := make(chan struct{})
	e := &Engine{config: config, released: released, release: sync.OnceFunc(func() { close(released) }),
		replaced: make(chan struct{})}
	return e, e.Set(Plan{})
}

// Set replaces the plan and resets all counters, unless the plan is invalid. Calls in progress keep their rules, and
// blocked ones continue.
func (e *Engine) Set(p Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	p = p.withNames()
	var rules []*counted
	for _, r := range e.config.Base {
		rules = append(rules, &counted{Rule: r, base: true, perVolume: map[string]int{}})
	}
	for _, r := range p.Rules {
		rules = append(rules, &counted{Rule: r, perVolume: map[string]int{}})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plan, e.rules = p, rules
	close(e.replaced)
	e.replaced = make(chan struct{})
	return nil
}

// Release ends all calls that hang or stay unanswered, and from then on no rule makes a call wait.
func (e *Engine) Release() { e.release() }

// Counter counts how often a rule matched a call, and how often it was applied.
type Counter struct {
	Rule    string `json:"rule"`
	Matched int    `json:"matched"`
	Applied int    `json:"applied"`
}

// Status is the plan with its counters, as served over HTTP.
type Status struct {
	Plan     Plan      `json:"plan"`
	Counters []Counter `json:"counters"`
}

// Status returns the current plan with its counters.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{Plan: e.plan, Counters: []Counter{}}
	for _, r := range e.rules {
		if !r.base {
			s.Counters = append(s.Counters, Counter{Rule: r.Name, Matched: r.matched, Applied: r.applied})
		}
	}
	return s
}

// Call holds the properties of a call that rules match.
type Call struct {
	Method string
	// Volume and VolumeName are the volume's id and name; empty for a call without them.
	Volume, VolumeName string
	// Place is the first topology that the call requests, or nil if it requests none.
	Place map[string]string
	// Token is the starting token of a list call, if any.
	Token string
}

// Work is the ordinary handling of a call, without faults.
type Work func(context.Context) (any, error)

// Do handles a call under the plan, and returns the call's answer and the names of the applied rules.
func (e *Engine) Do(ctx context.Context, c Call, work Work) (answer any, applied []string, err error) {
	v := e.decide(c)
	if err := e.wait(ctx, v.before, v.blockBefore); err != nil {
		return nil, v.names, err
	}
	if v.decisive != nil && !v.decisive.AfterWork {
		return nil, v.names, e.strike(ctx, *v.decisive)
	}
	answer, err = work(ctx)
	if waited := e.wait(ctx, v.after, v.blockAfter); waited != nil {
		return nil, v.names, waited
	}
	if v.decisive != nil {
		return nil, v.names, e.strike(ctx, *v.decisive)
	}
	if err == nil {
		for _, action := range v.onAnswer {
			answer = spoil(answer, action, c.Token, e.config.FirstPage)
		}
	}
	return answer, v.names, err
}

// verdict is the combined effect of the rules on one call.
type verdict struct {
	names         []string
	before, after time.Duration
	// blockBefore and blockAfter are closed when the plan is replaced; nil if the call is not blocked.
	blockBefore, blockAfter <-chan struct{}
	onAnswer                []Action
	decisive                *Rule
}

func (e *Engine) decide(c Call) verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	var v verdict
	for _, r := range e.rules {
		if !r.picks(c) || !r.due(c) {
			continue
		}
		rule := r.Rule
		switch {
		case rule.Action == Delay && rule.AfterWork:
			v.after += time.Duration(rule.Delay)
		case rule.Action == Delay:
			v.before += time.Duration(rule.Delay)
		case rule.Action == Block && rule.AfterWork:
			v.blockAfter = e.replaced
		case rule.Action == Block:
			v.blockBefore = e.replaced
		case rule.Action.onAnswer():
			v.onAnswer = append(v.onAnswer, rule.Action)
		case v.decisive == nil:
			v.decisive = &rule
		default:
			continue
		}
		r.applied++
		if !r.base {
			v.names = append(v.names, rule.Name)
		}
	}
	return v
}

// key identifies a volume in counts and shares: by the name, which never changes.
func (c Call) key() string {
	if c.VolumeName != "" {
		return c.VolumeName
	}
	return c.Volume
}

func (r *counted) picks(c Call) bool {
	switch {
	case !glob(r.Method, c.Method):
		return false
	case r.Volume != "" && (c.Volume == "" || !glob(r.Volume, c.Volume)):
		return false
	case r.VolumeName != "" && (c.VolumeName == "" || !glob(r.VolumeName, c.VolumeName)):
		return false
	case r.Place != "" && !segment(r.Place, c.Place):
		return false
	case r.Share > 0 && (c.key() == "" || fraction(c.key()) >= r.Share):
		return false
	case r.Action == ExpireToken && c.Token == "":
		return false
	}
	return true
}

// segment reports whether the place has a segment KEY=VALUE that matches the pattern.
func segment(pattern string, place map[string]string) bool {
	for key, value := range place {
		if glob(pattern, key+"="+value) {
			return true
		}
	}
	return false
}

// due counts the call and reports whether the rule applies to it.
func (r *counted) due(c Call) bool {
	r.matched++
	n := r.matched
	if r.PerVolume {
		r.perVolume[c.key()]++
		n = r.perVolume[c.key()]
	}
	switch {
	case r.First > 0:
		return n <= r.First
	case r.Nth > 0:
		return n == r.Nth
	case r.Every > 0:
		return n%r.Every == 0
	}
	return true
}

// fraction maps a name to a fixed number in [0, 1).
func fraction(name string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // Never fails.
	x := h.Sum64()
	x ^= x >> 33 // Names that differ only in their last letters must not land close together.
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// strike applies the decisive rule and returns the error for the client.
func (e *Engine) strike(ctx context.Context, r Rule) error {
	switch r.Action {
	case Hang:
		select {
		case <-ctx.Done():
		case <-e.released:
			return status.Error(codes.Unavailable, "driver is shutting down")
		}
		return status.FromContextError(ctx.Err()).Err()
	case Silence:
		<-e.released
		return status.Error(codes.Unavailable, "driver is shutting down")
	case Crash:
		e.config.Crash()
		return status.Error(codes.Unavailable, "driver crashes")
	case ExpireToken:
		return status.Error(codes.Aborted, "starting_token has expired")
	default:
	}
	code, _ := ParseCode(r.Code)
	message := r.Message
	if message == "" {
		message = "injected fault " + r.Name
	}
	return status.Error(code, message)
}

// wait waits for the duration, and then for the end of a block, if any.
func (e *Engine) wait(ctx context.Context, d time.Duration, block <-chan struct{}) error {
	if d > 0 {
		over := make(chan struct{})
		timer := time.AfterFunc(d, func() { close(over) })
		defer timer.Stop()
		if err := e.until(ctx, over); err != nil {
			return err
		}
	}
	if block == nil {
		return nil
	}
	return e.until(ctx, block)
}

// until waits until the channel is closed or the driver shuts down, and returns an error if ctx ends first.
func (e *Engine) until(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
	case <-e.released:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// Latency returns rules for [Config.Base] from latencies by method.
func Latency(byMethod map[string]time.Duration) []Rule {
	var rules []Rule
	for _, method := range slices.Sorted(maps.Keys(byMethod)) {
		rules = append(rules, Rule{Name: fmt.Sprintf("latency-%d", len(rules)), Method: method, Action: Delay,
			Delay: Duration(byMethod[method])})
	}
	return rules
}

// spoil applies one action to an answer, and returns other types of answers unchanged. The parameter token is the
// starting token of the call.
func spoil(answer any, action Action, token, firstPage string) any {
	original, is := answer.(proto.Message)
	if !is {
		return answer
	}
	spoiled := proto.Clone(original)
	var id, next *string
	switch a := spoiled.(type) {
	case *csi.ListVolumesResponse:
		next, a.Entries = &a.NextToken, entries(a.Entries, action)
		if len(a.Entries) > 0 {
			id = &a.Entries[0].GetVolume().VolumeId
		}
	case *csi.ListSnapshotsResponse:
		next, a.Entries = &a.NextToken, entries(a.Entries, action)
		if len(a.Entries) > 0 {
			id = &a.Entries[0].GetSnapshot().SnapshotId
		}
	case *csi.CreateVolumeResponse:
		id = &a.GetVolume().VolumeId
	case *csi.ControllerGetVolumeResponse:
		id = &a.GetVolume().VolumeId
	case *csi.CreateSnapshotResponse:
		id = &a.GetSnapshot().SnapshotId
	}
	switch {
	case action == BlankID && id != nil:
		*id = ""
	case action == RepeatPage && next != nil:
		*next = cmp.Or(token, firstPage)
	}
	return spoiled
}

func entries[E any](page []E, action Action) []E {
	if len(page) == 0 {
		return page
	}
	switch action {
	case Duplicate:
		return append(page, page[0])
	case Reorder:
		slices.Reverse(page)
	case Omit:
		return page[1:]
	default:
	}
	return page
}

// killSelf ends the process like kill -9, without deferred functions or flushes. It never returns, because the kernel
// may deliver the signal a moment later, and a crash before the work must prevent the work.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
