package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Line shows progress: on a terminal it redraws one line, elsewhere it writes a line for each run of a suite.
type Line struct {
	mu     sync.Mutex
	out    io.Writer
	redraw bool
	title  string
	began  time.Time
}

// NewLine returns a line on out, which is redrawn if it is a terminal.
func NewLine(out io.Writer, terminal bool) *Line { return &Line{out: out, redraw: terminal} }

// done is what Kubernetes' end-to-end suite says of its progress (test/e2e/reporters.ProgressReporter).
type done struct{ Total, Completed, Failed int }

func (l *Line) begin(r Result) {
	l.mu.Lock()
	l.title, l.began = fmt.Sprintf("%s, %s", r.Suite.Name, r.Parts), time.Now()
	l.mu.Unlock()
	l.show(done{})
}

// show draws the state of a run. Elsewhere than on a terminal only the first one is written.
func (l *Line) show(d done) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.title
	if d.Total > 0 {
		text += fmt.Sprintf(": %d of %d specs, %d failed, %s", d.Completed+d.Failed, d.Total, d.Failed,
			time.Since(l.began).Round(time.Second))
	}
	switch {
	case l.redraw:
		_, _ = fmt.Fprintf(l.out, "\r\x1b[K%s", text)
	case d.Total == 0:
		_, _ = fmt.Fprintln(l.out, text)
	}
}

func (l *Line) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.redraw {
		_, _ = fmt.Fprintln(l.out)
	}
}

// progressServer receives the progress of a run.
type progressServer struct {
	url    string
	server *http.Server
	ended  chan struct{}
}

func (l *Line) listen(ctx context.Context) (*progressServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &progressServer{url: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	p.server = &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var d done
			if err := json.NewDecoder(r.Body).Decode(&d); err == nil && d.Total > 0 {
				l.show(d)
			}
		})}
	go func() {
		defer close(p.ended)
		_ = p.server.Serve(listener) // until it is closed
	}()
	return p, nil
}

func (p *progressServer) close() {
	_ = p.server.Close()
	<-p.ended
}
