package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// A panic over one object must not end volume-guard, whose controllers protect data.
func TestTablesAfterPanic(t *testing.T) {
	at := testclock.NewFakeClock(time.Now())
	f := newFake("a")
	url, h := serve(t, f, at, 10)
	c := connect(t, url)
	tables := func(rows, unread int) func() bool {
		return func() bool {
			now, _ := h.get()
			return len(now.rows) == rows && len(now.state.Unread) == unread
		}
	}
	eventually(t, "the tables are computed", at, gap, tables(1, 0))
	f.change(func() { f.breaks, f.claims["b"] = true, "Pending" })
	eventually(t, "the tables are out of date", at, gap, tables(1, 1))
	c.until("the page says so", func() bool { return len(c.rows) == 1 && len(c.state.Unread) == 1 })
	if !strings.Contains(c.state.Unread[0], "The tables: panic: bad object. So they are out of date") {
		t.Errorf("unread: %q", c.state.Unread)
	}
	f.mu.Lock()
	before := f.computed
	f.mu.Unlock()
	eventually(t, "they are computed again", at, gap, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.computed > before
	})
	f.change(func() { f.breaks = false })
	eventually(t, "they are up to date", at, gap, tables(2, 0))
}

func TestStreamEndsWithPanicOfAuthorization(t *testing.T) {
	at := testclock.NewFakeClock(time.Now())
	h := newHub(func() (source, error) { return newFake("a"), nil }, at, view.State{})
	s := &Server{hub: h, cfg: Config{Clock: at, Streams: 1,
		Authorize: func(http.ResponseWriter, *http.Request) bool { panic("bad token") }}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.stream(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody),
			func(ctx context.Context, _ *stream, _ source) error {
				<-ctx.Done()
				return nil
			})
	}()
	eventually(t, "the stream ends", at, recheck, func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}
