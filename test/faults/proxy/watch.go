package proxy

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// frame is one event of a watch, as it came.
type frame struct {
	data    []byte
	arrived time.Time
	// change means that the event is about an object, and is no bookmark or error.
	change bool
}

// frames holds the events that have come and were not passed on.
type frames struct {
	mu    sync.Mutex
	queue []frame
	ended bool
	// came holds a token when the queue or its end has changed.
	came chan struct{}
}

// stream passes a watch on, event by event.
func (p *Proxy) stream(ctx context.Context, w http.ResponseWriter, f *flight, rule Rule, response *http.Response) {
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return
	}
	waiting := &frames{came: make(chan struct{}, 1)}
	var reading sync.WaitGroup
	reading.Go(func() { waiting.read(response.Body) })
	defer reading.Wait()
	defer func() { _ = response.Body.Close() }()

	left := -1
	if rule.Effect == Cut {
		left = rule.After
	}
	lag := time.Duration(0)
	if rule.Effect == LateAnswer {
		lag = time.Duration(rule.Delay)
	}
	for left != 0 {
		if !waiting.wait(ctx) {
			break // the server ended the watch, and all of it was passed on
		}
		if p.flow(ctx, f.Resource) != nil || waiting.mature(ctx, lag) != nil {
			break
		}
		burst, sent := waiting.take(lag, left)
		if left > 0 {
			left -= sent
		}
		if _, err := w.Write(burst); err != nil {
			break
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			break
		}
	}
	if context.Cause(ctx) == errCut { //nolint:errorlint // this very cause, as cut gave it
		panic(http.ErrAbortHandler) // broken off, where a server that ends a watch says so
	}
}

func (f *frames) read(body io.Reader) {
	decoder := json.NewDecoder(body)
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		f.mu.Lock()
		if err != nil {
			f.ended = true
		} else {
			f.queue = append(f.queue, frame{data: append(raw, '\n'), arrived: time.Now(), change: tellsOfObject(raw)})
		}
		f.mu.Unlock()
		select {
		case f.came <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func tellsOfObject(raw []byte) bool {
	var event struct{ Type string }
	return json.Unmarshal(raw, &event) == nil && event.Type != "BOOKMARK" && event.Type != "ERROR"
}

// wait returns true once an event is there, and false when none will come.
func (f *frames) wait(ctx context.Context) bool {
	for {
		f.mu.Lock()
		there, ended := len(f.queue) > 0, f.ended
		f.mu.Unlock()
		if there || ended || ctx.Err() != nil {
			return there && ctx.Err() == nil
		}
		select {
		case <-f.came:
		case <-ctx.Done():
		}
	}
}

// mature waits until the first event has the lag.
func (f *frames) mature(ctx context.Context, lag time.Duration) error {
	f.mu.Lock()
	left := lag - time.Since(f.queue[0].arrived)
	f.mu.Unlock()
	if left <= 0 {
		return nil
	}
	return sleep(ctx, left)
}

// take returns the events that are late enough, with at most so many changes among them; a negative number is no limit.
func (f *frames) take(lag time.Duration, most int) (burst []byte, changes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, next := range f.queue {
		if lag > 0 && time.Since(next.arrived) < lag || changes == most {
			break
		}
		if next.change {
			changes++
		}
		burst = append(burst, next.data...)
		n++
	}
	f.queue = f.queue[n:]
	return burst, changes
}
