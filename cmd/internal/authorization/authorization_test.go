package authorization

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

// answers is a fake API server with a decision for each token.
type answers struct {
	mu    sync.Mutex
	of    map[string]decision
	err   error
	asked atomic.Int32
	// wait, if set, delays each answer until it is closed.
	wait chan struct{}
	// breaks: each answer ends in a panic.
	breaks bool
}

func (a *answers) ask(ctx context.Context, token, _ string) (decision, error) {
	a.asked.Add(1)
	if a.breaks {
		panic("bad answer")
	}
	if a.wait != nil {
		select {
		case <-a.wait:
		case <-ctx.Done():
			return decision{}, ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[token], a.err
}

func (a *answers) set(token string, d decision, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[token], a.err = d, err
}

func newFilter() (*Filter, *answers, *testclock.FakeClock) {
	at := testclock.NewFakeClock(time.Now())
	a := &answers{of: map[string]decision{"good": {user: "ann", allowed: true}, "poor": {user: "bob"}}}
	return &Filter{reviews: newReviews(a, at)}, a, at
}

// send sends a request with an Authorization header, unless the header is empty.
func send(f *Filter, authorization string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/page/part", http.NoBody)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	for _, do := range change {
		do(r)
	}
	w := httptest.NewRecorder()
	f.Handler("/page/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("protected paths"))
	})).ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	basic := func(password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth("anything", password) }
	}
	for name, c := range map[string]struct {
		authorization string
		change        func(*http.Request)
		want          int
		text          string
	}{
		"a token that may":                   {"Bearer good", nil, 200, ""},
		"the scheme in small letters":        {"bearer good", nil, 200, ""},
		"a browser":                          {"", basic("good"), 200, ""},
		"no token":                           {"", nil, 401, "a token is required"},
		"an empty token":                     {"Bearer ", nil, 401, "a token is required"},
		"a browser without a password":       {"", basic(""), 401, "a token is required"},
		"another scheme":                     {"Digest good", nil, 401, "a token is required"},
		"no scheme":                          {"good", nil, 401, "a token is required"},
		"an unknown token":                   {"Bearer wrong", nil, 401, "not valid"},
		"the same from a browser":            {"", basic("wrong"), 401, "not valid"},
		"a token of more than 64 KiB":        {"Bearer " + strings.Repeat("x", maxToken+1), nil, 401, "a token is required"},
		"a token without the permission":     {"Bearer poor", nil, 403, `user "bob" may not get /page/`},
		"the user name in place of a token":  {"", func(r *http.Request) { r.SetBasicAuth("good", "x") }, 401, "not valid"},
		"a token in the address":             {"", func(r *http.Request) { r.URL.RawQuery = "access_token=good" }, 401, ""},
		"POST, which is not another request": {"Bearer good", func(r *http.Request) { r.Method = http.MethodPost }, 200, ""},
	} {
		f, _, _ := newFilter()
		var changes []func(*http.Request)
		if c.change != nil {
			changes = append(changes, c.change)
		}
		w := send(f, c.authorization, changes...)
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%s: %d %q, want %d and %q", name, w.Code, w.Body, c.want, c.text)
		}
		if passed := strings.Contains(w.Body.String(), "protected paths"); passed != (c.want == 200) {
			t.Errorf("%s: passed: %v", name, passed)
		}
		if asks := len(w.Header().Values("WWW-Authenticate")); (asks == 2) != (c.want == 401) {
			t.Errorf("%s: %d challenges", name, asks)
		}
	}
}

// Requests of an open page do not open the browser's prompt.
func TestBasicChallengeOnlyForNavigation(t *testing.T) {
	f, _, _ := newFilter()
	for mode, want := range map[string]int{"": 2, "navigate": 2, "cors": 1, "no-cors": 1, "same-origin": 1} {
		w := send(f, "", func(r *http.Request) {
			if mode != "" {
				r.Header.Set("Sec-Fetch-Mode", mode)
			}
		})
		if got := w.Header().Values("WWW-Authenticate"); len(got) != want || w.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d, challenges %q", mode, w.Code, got)
		}
	}
}

func TestForbiddenNamesMissingRule(t *testing.T) {
	f, _, _ := newFilter()
	for path, want := range map[string]string{
		"/web/":    `{nonResourceURLs: ["/web/"], verbs: ["get"]}`,
		"/metrics": `{nonResourceURLs: ["/metrics"], verbs: ["get"]}`,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Header.Set("Authorization", "Bearer poor")
		if f.For(path)(w, r) || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %q, want %q", path, w.Code, w.Body, want)
		}
	}
}

func TestUnavailableAPIServer(t *testing.T) {
	f, a, at := newFilter()
	a.set("good", decision{user: "ann", allowed: true}, errors.New("connection refused: good"))
	if w := send(f, "Bearer good"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		strings.Contains(w.Body.String(), "refused") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	a.set("good", decision{user: "ann", allowed: true}, nil)
	if w := send(f, "Bearer good"); w.Code != http.StatusOK { // errors are not cached
		t.Errorf("it is back, and the answer is %d", w.Code)
	}
	a.set("good", decision{}, errors.New("connection refused"))
	at.Step(allowedFor - time.Second)
	if w := send(f, "Bearer good"); w.Code != http.StatusOK {
		t.Errorf("within the minute: %d", w.Code)
	}
	at.Step(time.Second)
	if w := send(f, "Bearer good"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("after the minute: %d, want 503", w.Code)
	}
}

func TestPanicOfReviewRefuses(t *testing.T) {
	f, a, _ := newFilter()
	a.breaks = true
	if w := send(f, "Bearer good"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	a.breaks = false
	if w := send(f, "Bearer good"); w.Code != http.StatusOK {
		t.Errorf("afterwards: status %d", w.Code)
	}
}

func TestDecisionsExpire(t *testing.T) {
	f, a, at := newFilter()
	expect := func(token string, want int, asked int32) {
		t.Helper()
		if w := send(f, "Bearer "+token); w.Code != want || a.asked.Load() != asked {
			t.Errorf("%s: %d, want %d; asked %d times, want %d", token, w.Code, want, a.asked.Load(), asked)
		}
	}
	expect("good", 200, 1)
	expect("good", 200, 1)
	expect("poor", 403, 2)
	expect("wrong", 401, 3)
	expect("wrong", 401, 3)
	a.set("good", decision{user: "ann"}, nil) // the role is removed
	a.set("poor", decision{user: "bob", allowed: true}, nil)
	expect("good", 200, 3)
	expect("poor", 403, 3)
	at.Step(refusedFor)
	expect("poor", 200, 4)
	at.Step(allowedFor - refusedFor)
	expect("good", 403, 5)
	at.Step(time.Hour)
	expect("wrong", 401, 6)
	// Another path needs its own review.
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("Authorization", "Bearer wrong")
	if f.For("/other")(w, r); a.asked.Load() != 7 {
		t.Errorf("asked %d times", a.asked.Load())
	}
}

// The requests arrive at the same time.
func TestConcurrentRequestsShareReview(t *testing.T) {
	synctest.Test(t, testConcurrentRequestsShareReview)
}

func testConcurrentRequestsShareReview(t *testing.T) {
	f, a, _ := newFilter()
	a.wait = make(chan struct{})
	gone, leave := context.WithCancel(t.Context())
	var first, others sync.WaitGroup
	first.Go(func() { // its client goes away
		send(f, "Bearer good", func(r *http.Request) { *r = *r.WithContext(gone) })
	})
	synctest.Wait() // until it is asked
	for range 20 {
		others.Go(func() {
			if w := send(f, "Bearer good"); w.Code != http.StatusOK {
				t.Errorf("%d %q", w.Code, w.Body)
			}
		})
	}
	synctest.Wait() // until all have joined
	leave()
	first.Wait()
	close(a.wait)
	others.Wait()
	if asked := a.asked.Load(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// slowClock blocks the first call of Now until the channel answer is closed.
type slowClock struct {
	*testclock.FakeClock
	first          atomic.Bool
	called, answer chan struct{}
}

func (c *slowClock) Now() time.Time {
	if c.first.CompareAndSwap(false, true) {
		close(c.called)
		<-c.answer
	}
	return c.FakeClock.Now()
}

// The other review ends after the slow request has found no decision, and before it starts a review.
func TestSlowRequestReusesReview(t *testing.T) {
	f, a, at := newFilter()
	send(f, "Bearer good")
	at.Step(allowedFor)
	slow := &slowClock{FakeClock: at, called: make(chan struct{}), answer: make(chan struct{})}
	f.reviews.clock = slow
	var behind sync.WaitGroup
	behind.Go(func() {
		if w := send(f, "Bearer good"); w.Code != http.StatusOK {
			t.Errorf("%d %q", w.Code, w.Body)
		}
	})
	<-slow.called
	send(f, "Bearer good")
	close(slow.answer)
	behind.Wait()
	if asked := a.asked.Load(); asked != 2 {
		t.Errorf("asked %d times, want once before the minute and once after", asked)
	}
}

// The flood does not lock out earlier senders either.
func TestUnknownTokensAreLimited(t *testing.T) {
	f, a, at := newFilter()
	send(f, "Bearer good")
	at.Step(allowedFor)
	count := map[int]int{}
	for i := range 3 * maxDecisions {
		w := send(f, fmt.Sprint("Bearer wrong", i))
		count[w.Code]++
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Fatal("it is not said when to try again")
		}
	}
	if asked := int(a.asked.Load()); asked > newBurst+1 || count[429] != 3*maxDecisions-(asked-1) {
		t.Errorf("the API server is asked %d times; answers %v", asked, count)
	}
	if w := send(f, "Bearer good"); w.Code != http.StatusOK {
		t.Errorf("one who was let in before is answered with %d", w.Code)
	}
	at.Step(time.Second)
	if w := send(f, "Bearer poor"); w.Code != http.StatusForbidden {
		t.Errorf("a second later: %d", w.Code)
	}
}

func TestTokensAreNotCached(t *testing.T) {
	f, _, _ := newFilter()
	send(f, "Bearer good")
	send(f, "Bearer an-invented-token")
	keys := f.reviews.kept.Keys()
	if text := fmt.Sprint(keys); len(keys) != 2 || strings.Contains(text, "good") || strings.Contains(text, "invented") {
		t.Errorf("kept are %s", text)
	}
}
