package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Options of a Proxy.
type Options struct {
	// Crash ends the client as kill -9 does and returns once it is gone. Required for rules with effect Crash.
	Crash func()
}

// mode is how the whole line behaves.
type mode uint8

const (
	through mode = iota
	frozen
	parted
)

// Proxy is a running proxy. Its methods may be called from any goroutine.
type Proxy struct {
	options  Options
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup
	upstream http.RoundTripper
	base     *url.URL

	// ending is held while the client is being ended.
	ending sync.Mutex

	mu     sync.Mutex
	rules  []*counted
	record []Request
	mode   mode
	// crashing means that the client is being ended, and no request passes.
	crashing bool
	// held are the resources with watches on hold.
	held map[string]bool
	// turned is closed, and replaced, whenever mode, crashing, held or open changes; knocked whenever a request arrives.
	turned, knocked chan struct{}
	open            map[*flight]bool
}

// flight is a request under way.
type flight struct {
	Request
	cancel context.CancelCauseFunc
}

// errCut ends a request to break its connection.
var errCut = errors.New("connection cut")

// Start listens on a free port of the loopback interface. It forwards requests to the API server of config with
// config's identity, and ignores the client's. Close ends the proxy.
func Start(config *rest.Config, o Options) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	return start(listener, config, o)
}

// start is Start on a listener, which the proxy closes.
func start(listener net.Listener, config *rest.Config, o Options) (*Proxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{
		options: o, listener: listener, upstream: transport, base: base,
		held: map[string]bool{}, open: map[*flight]bool{}, turned: make(chan struct{}), knocked: make(chan struct{}),
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	p.serving.Go(func() { _ = p.server.Serve(p.listener) }) // ends with Close
	return p, nil
}

// Config is how a client reaches the API server by way of the proxy. It holds no credentials: the proxy has them.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: "http://" + p.listener.Addr().String(), QPS: -1}
}

// Close breaks all connections and ends the proxy.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.CutAll()
	p.serving.Wait()
	return errors.Join(err, p.await(context.Background(), func() (bool, error) { return len(p.open) == 0, nil }))
}

// SetRules replaces the rules and begins to count anew. Requests under way keep the rule that they met.
func (p *Proxy) SetRules(rules ...Rule) error {
	var all []*counted
	for _, r := range rules {
		if err := r.Validate(); err != nil {
			return err
		}
		if r.Effect == Crash && p.options.Crash == nil {
			return fmt.Errorf("rule %q: nothing says how to end the client", r.label())
		}
		all = append(all, &counted{Rule: r})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = all
	return nil
}

// Applied counts the requests that any of the present rules was applied to.
func (p *Proxy) Applied() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.rules {
		n += r.applied
	}
	return n
}

// Requests returns the requests so far, in order of arrival.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.record)
}

// Hold has all watches of a resource, also those yet to come, stand still: open, without events.
func (p *Proxy) Hold(resource string) { p.turn(func() { p.held[resource] = true }) }

// Release ends Hold. The events of that time arrive at once.
func (p *Proxy) Release(resource string) { p.turn(func() { delete(p.held, resource) }) }

// Freeze has nothing answered and nothing passed on, on connections that stay open. Heal lets all go on.
func (p *Proxy) Freeze() { p.turn(func() { p.mode = frozen }) }

// Partition breaks all connections, and refuses new ones until Heal.
func (p *Proxy) Partition() {
	p.turn(func() { p.mode = parted })
	p.CutAll()
}

// Heal ends Freeze, Partition and every Hold, and drops the rules.
func (p *Proxy) Heal() {
	p.turn(func() {
		p.mode, p.rules = through, nil
		clear(p.held)
	})
}

// Cut breaks the connections of a resource's watches and returns their number.
func (p *Proxy) Cut(resource string) int {
	return p.cut(func(q Request) bool { return q.Verb == "watch" && q.Resource == resource })
}

// CutAll breaks all connections with a request under way.
func (p *Proxy) CutAll() { p.cut(func(Request) bool { return true }) }

func (p *Proxy) cut(which func(Request) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for f := range p.open {
		if which(f.Request) {
			f.cancel(errCut)
			n++
		}
	}
	return n
}

// turn changes a lasting state and wakes its waiters.
func (p *Proxy) turn(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.turned)
	p.turned = make(chan struct{})
}

// pass waits until requests go on. An error means that the connection is to break.
func (p *Proxy) pass(ctx context.Context) error {
	return p.await(ctx, func() (bool, error) {
		if p.mode == parted {
			return false, errCut
		}
		return p.mode == through && !p.crashing, nil
	})
}

// flow waits until events of a resource go on.
func (p *Proxy) flow(ctx context.Context, resource string) error {
	return p.await(ctx, func() (bool, error) { return p.mode == through && !p.crashing && !p.held[resource], nil })
}

// await returns once ready, called with the lock held, says so or fails, or when ctx has ended.
func (p *Proxy) await(ctx context.Context, ready func() (bool, error)) error {
	for {
		p.mu.Lock()
		ok, err := ready()
		turned := p.turned
		p.mu.Unlock()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-turned:
		case <-ctx.Done():
		}
	}
}

// begin takes a request in.
func (p *Proxy) begin(ctx context.Context, q Request) (_ context.Context, _ *flight, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &flight{Request: q, cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[f] = true
	close(p.knocked)
	p.knocked = make(chan struct{})
	return ctx, f, func() {
		cancel(nil)
		p.turn(func() { delete(p.open, f) })
	}
}

// decide finds the rule for a request and puts both on record. answered notes the server's status.
func (p *Proxy) decide(q Request) (rule Rule, answered func(code int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.picks(q) && r.due() && rule.Effect == "" {
			r.applied++
			rule = r.Rule
			q.Rule = rule.label()
		}
	}
	at := len(p.record)
	p.record = append(p.record, q)
	return rule, func(code int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.record[at].Code = code
	}
}

// arrival is how long after an answer a crash waits for the client's next request, which shows that the
// answer was read. A client that has nothing more to ask is given this time.
const arrival = 100 * time.Millisecond

// Crash ends the client. last, if it is not nil, happens before: nothing that the client makes of it comes through.
func (p *Proxy) Crash(last func()) {
	p.ending.Lock()
	defer p.ending.Unlock()
	p.turn(func() { p.crashing = true })
	if last != nil {
		p.mu.Lock()
		knocked := p.knocked
		p.mu.Unlock()
		last()
		select {
		case <-knocked:
		case <-time.After(arrival):
		}
	}
	p.options.Crash()
	p.CutAll()
	p.turn(func() { p.crashing = false })
}
