package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServeHTTP carries one request through, or does not.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// With the body read to its end, the server notices when the client goes away.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		reset(w)
		return
	}
	ctx, f, end := p.begin(r.Context(), parse(r))
	defer end()
	if err := p.pass(ctx); err != nil {
		reset(w)
		return
	}
	rule, answered := p.decide(f.Request)
	if err := p.before(ctx, w, f, rule); err != nil {
		return
	}
	response, err := p.ask(ctx, r, f, rule, body)
	if err != nil {
		reset(w)
		return
	}
	defer func() { _ = response.Body.Close() }()
	answered(response.StatusCode)
	if f.Verb == "watch" && response.StatusCode == http.StatusOK {
		p.stream(ctx, w, f, rule, response)
		return
	}
	p.answer(ctx, w, rule, response)
}

// before plays the effects before the server sees the request. After an error the server never sees it, and the client
// has its answer.
func (p *Proxy) before(ctx context.Context, w http.ResponseWriter, f *flight, rule Rule) error {
	switch rule.Effect {
	case Delay:
		if err := sleep(ctx, time.Duration(rule.Delay)); err != nil {
			reset(w)
			return err
		}
	case Fail:
		fail(w, rule.Code, rule.RetryAfter)
		return errCut
	case Reset:
		reset(w)
		return errCut
	case Expire:
		fail(w, http.StatusGone, 0)
		return errCut
	case Stale:
		if f.Verb == "watch" {
			fail(w, http.StatusUnprocessableEntity, 0)
			return errCut
		}
	case Crash:
		if rule.At == Before {
			p.Crash(nil)
			reset(w)
			return errCut
		}
	case LateAnswer, FailAfter, DropAnswer, Cut:
	}
	// The world may have changed while the request was delayed.
	if err := p.pass(ctx); err != nil {
		reset(w)
		return err
	}
	return nil
}

// ask sends the request to the server.
func (p *Proxy) ask(ctx context.Context, r *http.Request, f *flight, rule Rule, body []byte) (*http.Response, error) {
	to := *p.base
	to.Path, to.RawQuery = r.URL.Path, r.URL.RawQuery
	if rule.Effect == Stale {
		query := r.URL.Query()
		query.Set("resourceVersion", later(f.version, rule.Version))
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
		to.RawQuery = query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = r.Header.Clone()
	request.Header.Del("Accept-Encoding") // the transport requests the encoding that it decodes itself
	if f.Verb == "watch" || f.Verb == "list" {
		request.Header.Set("Accept", "application/json")
	}
	return p.upstream.RoundTrip(request)
}

// later returns the greater of two resourceVersions. A client's 0 permits any.
func later(a, b string) string {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	if errX != nil || errY == nil && y > x {
		return b
	}
	return a
}

// answer passes the server's answer on, or does not.
func (p *Proxy) answer(ctx context.Context, w http.ResponseWriter, rule Rule, response *http.Response) {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		reset(w)
		return
	}
	send := func() {
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(response.StatusCode)
		_, _ = w.Write(body) // the client may be gone
		_ = http.NewResponseController(w).Flush()
	}
	switch rule.Effect {
	case FailAfter:
		fail(w, rule.Code, rule.RetryAfter)
		return
	case DropAnswer:
		reset(w)
		return
	case Crash:
		if rule.At == Answered {
			// Later requests use another connection, where they are seen at once.
			w.Header().Set("Connection", "close")
			p.Crash(send)
			return
		}
		p.Crash(nil)
		reset(w)
		return
	case LateAnswer:
		if err := sleep(ctx, time.Duration(rule.Delay)); err != nil {
			reset(w)
			return
		}
	case Delay, Fail, Reset, Cut, Expire, Stale:
	}
	// The answer of a request under way is lost when the line freezes or breaks.
	if err := p.pass(ctx); err != nil {
		reset(w)
		return
	}
	send()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fail answers an error as an API server words it.
func fail(w http.ResponseWriter, code, retryAfter int) {
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusForbidden:           metav1.StatusReasonForbidden,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
	}
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: "injected fault: " + strings.ToLower(http.StatusText(code)), Reason: reasons[code], Code: int32(code),
	})
	if err != nil {
		reset(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}

// reset breaks the connection, so that the client sees "connection reset" and no end of an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the answer has begun
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
