package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/web/view"
)

// fake is a cluster of claims.
type fake struct {
	mu       sync.Mutex
	claims   map[string]string // phases
	state    view.State
	computed int
	changed  chan struct{}
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
	var all []*v1.PersistentVolumeClaim
	for name, phase := range f.claims {
		all = append(all, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:   v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.PersistentVolumeClaimPhase(phase)}})
	}
	return view.Facts{AllClaims: explain.Found(all), Object: func(string) *v1.PersistentVolume { return nil },
		Users: func(string, string) (none explain.Read[[]pvc.Pod]) { return none }}
}

func (f *fake) State() view.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *fake) Changed() <-chan struct{} { return f.changed }

// set changes the phase of a claim, empty to delete it.
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
	h = newHub(f, at, view.State{Cluster: "test"})
	s := &Server{cfg: Config{Clock: at, Streams: streams}, hub: h}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.stream(w, r, func(ctx context.Context, to *stream) error { return to.list(ctx, h) })
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
	beats int
	end   func()
}

func connect(t *testing.T, url string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
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
		case strings.HasPrefix(line, ":"):
			c.beats++
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
	case "state":
		c.state = view.State{}
		err = json.Unmarshal(data, &c.state)
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

func TestClientsGetWhatChanges(t *testing.T) {
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

func TestTheStateIsSentWhenItChanges(t *testing.T) {
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

func TestStreamsAreBounded(t *testing.T) {
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

func TestChangesAreCoalescedAndNothingIsComputedForNobody(t *testing.T) {
	at := testclock.NewFakeClock(time.Now())
	f := newFake("a")
	url, h := serve(t, f, at, 10)
	step := func(d time.Duration) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !at.HasWaiters(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nobody waits")
			}
		}
		at.Step(d)
	}
	step(time.Hour)
	step(time.Hour)
	if f.computed != 0 {
		t.Errorf("computed %d times for nobody", f.computed)
	}
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
		at.Step(gap)
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
	_ = h
}

func TestAStreamEndsWithTheServer(t *testing.T) {
	f := newFake("a")
	h := newHub(f, clock.RealClock{}, view.State{})
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
