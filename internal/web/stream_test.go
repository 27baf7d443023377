package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/watch"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// fake is a cluster of claims.
type fake struct {
	mu       sync.Mutex
	claims   map[string]string // phases
	state    view.State
	computed int
	changed  chan struct{}
	// breaks: a computation ends in a panic. refuses: claims cannot be read.
	breaks, refuses bool
	// begun and ended count the calls of Run.
	begun, ended atomic.Int32
}

func newFake(names ...string) *fake {
	f := &fake{claims: map[string]string{}, state: view.State{Synced: true, Connected: true},
		changed: make(chan struct{}, 1)}
	for _, name := range names {
		f.claims[name] = "Pending"
	}
	return f
}

func (f *fake) Facts(context.Context) view.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.computed++
	if f.breaks {
		panic("bad object")
	}
	var all []*v1.PersistentVolumeClaim
	for name, phase := range f.claims {
		all = append(all, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:   v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.PersistentVolumeClaimPhase(phase)}})
	}
	claims := explain.Found(all)
	if f.refuses {
		claims = explain.Failed[[]*v1.PersistentVolumeClaim](errors.New("forbidden"))
	}
	return view.Facts{AllClaims: claims, Object: func(string) *v1.PersistentVolume { return nil },
		Users: func(string, string) (none explain.Read[[]pvc.Pod]) { return none }}
}

func (f *fake) State(context.Context) view.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *fake) Changed() <-chan struct{} { return f.changed }

func (f *fake) Run(ctx context.Context) {
	f.begun.Add(1)
	<-ctx.Done()
	f.ended.Add(1)
}

func (f *fake) Open(context.Context, view.Ref) (*watch.Page, error) {
	return nil, errors.New("it has no pages")
}

// set changes the phase of a claim; an empty phase deletes it.
func (f *fake) set(name, phase string) {
	f.change(func() {
		if f.claims[name] = phase; phase == "" {
			delete(f.claims, name)
		}
	})
}

func (f *fake) change(do func()) {
	f.mu.Lock()
	do()
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// serve runs a hub on a fake cluster, and serves its list.
func serve(t *testing.T, f *fake, at clock.WithTicker, streams int) (url string, h *hub) {
	t.Helper()
	h = newHub(func() (source, error) { return f, nil }, at, view.State{Cluster: "test"})
	s := &Server{cfg: Config{Clock: at, Streams: streams}, hub: h}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.stream(w, r, func(ctx context.Context, to *stream, _ source) error { return to.list(ctx, h) })
	}))
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, h
}

// client reads a stream.
type client struct {
	*testing.T
	lines *bufio.Scanner
	rows  map[string]view.Row
	state view.State
	// summary is the latest one.
	summary view.Summary
	beats   int
	end     func()
}

func connect(t *testing.T, url string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))(t)
	answer, err := http.DefaultClient.Do(r) //nolint:bodyclose // end closes it
	if err != nil {
		t.Fatal(err)
	}
	c := &client{T: t, lines: bufio.NewScanner(answer.Body), rows: map[string]view.Row{}}
	c.lines.Buffer(nil, 1<<24)
	c.end = func() {
		cancel()
		_ = answer.Body.Close()
	}
	t.Cleanup(c.end)
	return c
}

// until reads events until done.
func (c *client) until(what string, done func() bool) {
	c.Helper()
	event := ""
	for !done() {
		if !c.lines.Scan() {
			c.Fatalf("%s: the stream has ended: %v", what, c.lines.Err())
		}
		line := c.lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			event = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			c.take(event, []byte(line[len("data: "):]))
		}
	}
}

func (c *client) take(event string, data []byte) {
	c.Helper()
	var err error
	switch event {
	case "alive":
		c.beats++
	case "state":
		c.state = view.State{}
		err = json.Unmarshal(data, &c.state)
	case "summary":
		c.summary = view.Summary{}
		err = json.Unmarshal(data, &c.summary)
	case "rows":
		var rows view.Rows
		err = json.Unmarshal(data, &rows)
		if rows.Reset {
			clear(c.rows)
		}
		for _, row := range rows.Set {
			c.rows[row.ID] = row
		}
		for _, id := range rows.Remove {
			if _, known := c.rows[id]; !known {
				c.Errorf("%s is removed, and was never there", id)
			}
			delete(c.rows, id)
		}
	}
	if err != nil {
		c.Fatalf("event %s: %v: %s", event, err, data)
	}
}

func (c *client) phase(name string) string { return c.rows["claim/ns/"+name].Phase }

func TestListStreamSendsChanges(t *testing.T) {
	f := newFake("a", "b")
	url, _ := serve(t, f, clock.RealClock{}, 10)
	first := connect(t, url)
	first.until("all rows", func() bool { return len(first.rows) == 2 })
	f.set("a", "Bound")
	first.until("a change", func() bool { return first.phase("a") == "Bound" })
	second := connect(t, url)
	second.until("all rows, later", func() bool { return len(second.rows) == 2 && second.phase("a") == "Bound" })
	f.set("b", "")
	f.set("c", "Lost")
	for _, c := range []*client{first, second} {
		c.until("an end and a new one", func() bool { return len(c.rows) == 2 && c.phase("c") == "Lost" })
	}
	if first.state.Cluster != "test" || !first.state.Synced {
		t.Errorf("state is %+v", first.state)
	}
	first.end()
	again := connect(t, url)
	again.until("all rows after a reconnect", func() bool { return len(again.rows) == 2 && again.phase("c") == "Lost" })
}

func TestListStreamSendsChangesOfWaitingObjects(t *testing.T) {
	f := newFake("a")
	f.change(func() { f.state.Synced = false })
	url, _ := serve(t, f, clock.RealClock{}, 10)
	c := connect(t, url)
	c.until("all rows", func() bool { return len(c.rows) == 1 })
	if c.summary.Changes != nil {
		t.Errorf("before all is read, changes are %+v", c.summary.Changes)
	}
	f.change(func() { f.state.Synced = true })
	c.until("all is read", func() bool { return c.summary.Changes != nil })
	f.set("a", "Lost")
	f.set("b", "Bound")
	c.until("a begins to wait", func() bool { return len(c.summary.Changes) == 1 })
	f.set("a", "")
	c.until("a is gone", func() bool { return len(c.summary.Changes) == 2 })
	for i, kind := range []view.ChangeKind{view.ChangeBegan, view.ChangeGone} {
		if change := c.summary.Changes[i]; change.Kind != kind || change.Row.Name != "a" {
			t.Errorf("change %d is %+v", i, change)
		}
	}
}

// An object that cannot be read for a while has neither ended nor begun to wait.
func TestUnreadObjectsNeitherEndNorBeginToWait(t *testing.T) {
	f := newFake("a")
	url, _ := serve(t, f, clock.RealClock{}, 10)
	c := connect(t, url)
	c.until("all rows", func() bool { return len(c.rows) == 1 })
	f.set("a", "Lost")
	c.until("it begins to wait", func() bool { return c.phase("a") == "Lost" })
	f.change(func() { f.refuses = true })
	c.until("its row is away", func() bool { return len(c.rows) == 0 })
	f.change(func() { f.refuses = false })
	c.until("its row is back", func() bool { return len(c.rows) == 1 })
	f.set("a", "")
	c.until("it is gone", func() bool { return len(c.rows) == 0 })
	var kinds []view.ChangeKind
	for _, change := range c.summary.Changes {
		kinds = append(kinds, change.Kind)
	}
	if want := []view.ChangeKind{view.ChangeBegan, view.ChangeGone}; !slices.Equal(kinds, want) {
		t.Errorf("changes are %q, want %q", kinds, want)
	}
}

func TestListStreamSendsStateChanges(t *testing.T) {
	f := newFake("a")
	url, _ := serve(t, f, clock.RealClock{}, 10)
	c := connect(t, url)
	c.until("all rows", func() bool { return len(c.rows) == 1 && c.state.Synced })
	f.change(func() { f.state.Connected, f.state.Problem = false, "connection refused" })
	c.until("the API server is away", func() bool { return c.state.Problem != "" && !c.state.Connected })
	if len(c.rows) != 1 {
		t.Error("the rows are gone with the API server")
	}
	f.change(func() { f.state.Connected, f.state.Problem = true, "" })
	c.until("it is back", func() bool { return c.state.Connected && c.state.Problem == "" })
}

func TestStreamLimit(t *testing.T) {
	url, h := serve(t, newFake("a"), clock.RealClock{}, 1)
	first := connect(t, url)
	first.until("all rows", func() bool { return len(first.rows) == 1 })
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("status %d", answer.StatusCode)
	}
	first.end()
	for deadline := time.Now().Add(time.Minute); h.watched(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a stream whose client is gone still counts")
		}
	}
	second := connect(t, url)
	second.until("all rows", func() bool { return len(second.rows) == 1 })
}

func TestChangesAreCoalesced(t *testing.T) {
	at := testclock.NewFakeClock(time.Now())
	f := newFake("a")
	url, _ := serve(t, f, at, 10)
	c := connect(t, url)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		done := f.computed == 1
		f.mu.Unlock()
		if done {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not computed for somebody")
		}
	}
	c.until("all rows", func() bool { return len(c.rows) == 1 })
	for i := range 100 {
		f.set(fmt.Sprint("new", i), "Pending")
	}
	f.mu.Lock()
	if f.computed > 1 {
		t.Errorf("computed %d times within the gap", f.computed)
	}
	f.mu.Unlock()
	stop := make(chan struct{})
	go func() { // time passes
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				at.Step(gap)
			}
		}
	}()
	defer close(stop)
	c.until("all rows", func() bool { return len(c.rows) == 101 })
	c.until("a heartbeat", func() bool { return c.beats > 0 })
}

// eventually polls a condition while time passes.
func eventually(t *testing.T, what string, at *testclock.FakeClock, step time.Duration, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
		at.Step(step)
	}
}

// expectRead waits for the row of a new claim, which the hub shows only after it has decided whether to end the source.
// The source may have begun as often as given, and its last run must go on.
func expectRead(t *testing.T, f *fake, h *hub, at *testclock.FakeClock, begun int32) {
	t.Helper()
	f.set("new", "Pending")
	eventually(t, "a new claim is shown", at, gap, func() bool {
		now, _ := h.get()
		return now.rows["claim/ns/new"] != nil || f.ended.Load() >= begun
	})
	if f.begun.Load() > begun || f.ended.Load() >= begun {
		t.Fatalf("a client is connected, and the cluster was read %d times, of which %d have ended", f.begun.Load(),
			f.ended.Load())
	}
	f.set("new", "")
}

// The cluster is not read before the first client connects, nor long after the last one leaves.
func TestNoReadsWithoutClients(t *testing.T) {
	at := testclock.NewFakeClock(time.Now())
	f := newFake("a")
	url, h := serve(t, f, at, 10)
	at.Step(time.Hour)
	if f.begun.Load() != 0 || h.source() != nil {
		t.Error("the cluster is read before somebody looks")
	}
	for round := int32(1); round <= 2; round++ {
		c := connect(t, url)
		eventually(t, "the tables are computed", at, gap, func() bool {
			now, _ := h.get()
			return len(now.rows) == 1
		})
		c.until("all rows", func() bool { return len(c.rows) == 1 })
		at.Step(time.Hour)
		expectRead(t, f, h, at, round)
		c.end()
		eventually(t, "the cluster is not read any more", at, time.Second, func() bool { return f.ended.Load() == round })
		if now, closed := h.get(); f.begun.Load() != round || h.source() != nil || len(now.rows) != 0 || closed {
			t.Errorf("read %d times, %d rows are kept", f.begun.Load(), len(now.rows))
		}
	}
}

// A client that comes back soon waits for nothing.
func TestReloadKeepsCaches(t *testing.T) {
	at := testclock.NewFakeClock(time.Now())
	f := newFake("a")
	url, h := serve(t, f, at, 10)
	c := connect(t, url)
	c.until("the first state", func() bool { return c.state.Cluster == "test" })
	c.end()
	eventually(t, "nobody looks", at, 0, func() bool { return !h.watched() })
	at.Step(linger - time.Second)
	again := connect(t, url)
	again.until("the first state", func() bool { return again.state.Cluster == "test" })
	at.Step(time.Hour)
	expectRead(t, f, h, at, 1)
}

func TestStreamEndsWithPermission(t *testing.T) {
	at := testclock.NewFakeClock(time.Now())
	var asked atomic.Int32
	var refused atomic.Bool
	h := newHub(func() (source, error) { return newFake("a"), nil }, at, view.State{})
	s := &Server{hub: h, cfg: Config{Clock: at, Streams: 1,
		Authorize: func(w http.ResponseWriter, _ *http.Request) bool {
			asked.Add(1)
			if refused.Load() {
				http.Error(w, "no more", http.StatusForbidden)
			}
			return !refused.Load()
		}}}
	ended := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		s.stream(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody),
			func(ctx context.Context, _ *stream, _ source) error {
				<-ctx.Done()
				return nil
			})
		ended <- w
	}()
	eventually(t, "it is asked again, twice", at, recheck, func() bool { return asked.Load() >= 2 })
	select {
	case <-ended:
		t.Fatal("the stream has ended although it is authorized")
	default:
	}
	refused.Store(true)
	var w *httptest.ResponseRecorder
	eventually(t, "the stream ends", at, recheck, func() bool {
		select {
		case w = <-ended:
			return true
		default:
			return false
		}
	})
	if body := w.Body.String(); w.Code != http.StatusOK || strings.Contains(body, "no more") {
		t.Errorf("what is refused is written into the stream: %d %q", w.Code, body)
	}
	if h.watched() {
		t.Error("a stream that has ended counts")
	}
}

func TestStreamEndsWithServer(t *testing.T) {
	h := newHub(func() (source, error) { return newFake("a"), nil }, clock.RealClock{}, view.State{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	ended := make(chan error, 1)
	go func() {
		ended <- newStream(httptest.NewRecorder(), clock.RealClock{}).list(context.Background(), h)
	}()
	cancel()
	running.Wait()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the stream has not ended")
	}
}
