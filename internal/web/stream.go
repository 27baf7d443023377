package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/watch"
)

const (
	// heartbeat is the interval of events on an otherwise silent stream, which a proxy, a browser or the page may take
	// for dead. The page does after three intervals.
	heartbeat = 15 * time.Second
	// writeTimeout limits one write to a client. A client that does not read for this long is disconnected and has to
	// reconnect; nothing is buffered for it.
	writeTimeout = 30 * time.Second
	// lookGap is the maximum interval between two looks at a page's object, whose live explanation may be due.
	lookGap = 2 * time.Second
)

type stream struct {
	w     http.ResponseWriter
	to    *http.ResponseController
	clock clock.WithTicker
	state *view.State
	wrote time.Time // time of the last write
}

func newStream(w http.ResponseWriter, clock clock.WithTicker) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, to: http.NewResponseController(w), clock: clock, wrote: clock.Now()}
}

func (s *stream) send(event string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write event %q: %w", event, err)
	}
	var b bytes.Buffer
	b.Grow(len(data) + len(event) + 16)
	fmt.Fprintf(&b, "event: %s\ndata: ", event)
	b.Write(data) // JSON has no line breaks of its own
	b.WriteString("\n\n")
	return s.write(b.Bytes())
}

func (s *stream) write(text []byte) error {
	// A ResponseWriter without deadlines, as in a test, is used without them.
	_ = s.to.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:forbidigo // the network goes by the time of day
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	s.wrote = s.clock.Now()
	return s.to.Flush()
}

// beat writes a heartbeat if nothing was written for this interval.
func (s *stream) beat() error {
	if s.clock.Since(s.wrote) < heartbeat {
		return nil
	}
	return s.send("alive", struct{}{})
}

// sendState writes the state if it differs from the last one sent.
func (s *stream) sendState(state view.State) error {
	if s.state != nil && reflect.DeepEqual(*s.state, state) {
		return nil
	}
	s.state = &state
	return s.send("state", state)
}

// follow sends the state and then the rest of each snapshot of the tables, until the client leaves or the server ends.
// gap returns the time after which rest is called again without a newer snapshot.
func (s *stream) follow(ctx context.Context, h *hub, gap func() time.Duration, rest func(*tables) error) error {
	for {
		t, closed := h.get()
		if closed || ctx.Err() != nil {
			return nil //nolint:nilerr // the client has left
		}
		if err := s.sendState(t.state); err != nil {
			return err
		}
		if err := rest(t); err != nil {
			return err
		}
		if err := s.beat(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-t.next:
		case <-s.clock.After(gap()):
		}
	}
}

// list sends the tables, and then their changes.
func (s *stream) list(ctx context.Context, h *hub) error {
	var sent map[string]*view.Row
	var summary *view.Summary
	untilBeat := func() time.Duration { return heartbeat - s.clock.Since(s.wrote) }
	return s.follow(ctx, h, untilBeat, func(t *tables) error {
		if summary == nil || !reflect.DeepEqual(*summary, t.summary) {
			summary = &t.summary
			if err := s.send("summary", t.summary); err != nil {
				return err
			}
		}
		rows := diff(sent, t.rows)
		rows.Reset = sent == nil
		sent = t.rows
		if !rows.Reset && len(rows.Set)+len(rows.Remove) == 0 {
			return nil
		}
		return s.send("rows", rows)
	})
}

// object sends the view of an object, and then its changes.
func (s *stream) object(ctx context.Context, h *hub, page *watch.Page) error {
	var sent []byte
	entries := map[string]view.Entry{}
	return s.follow(ctx, h, func() time.Duration { return lookGap }, func(t *tables) error {
		object, timeline := page.Look(ctx, t.row)
		text, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("write event \"object\": %w", err)
		}
		if !bytes.Equal(text, sent) && (sent != nil || t.state.Synced || object.Exists) {
			sent = text
			if err := s.send("object", json.RawMessage(text)); err != nil {
				return err
			}
		}
		if news := unsent(entries, timeline); len(news) > 0 {
			return s.send("timeline", news)
		}
		return nil
	})
}

// maxEntries limits the entries of a timeline.
const maxEntries = 10000

// unsent returns the entries that are new or changed since they were sent, and notes them as sent. all has the oldest
// first. The latest of the new entries have room first, and one entry says that others are left out.
func unsent(sent map[string]view.Entry, all []view.Entry) (news []view.Entry) {
	for _, entry := range slices.Backward(all) {
		if _, was := sent[entry.ID]; !was && len(sent) >= maxEntries {
			entry = view.LeftOut(maxEntries, entry.Time)
			if _, was := sent[entry.ID]; was {
				continue
			}
		}
		if before, was := sent[entry.ID]; was && before == entry {
			continue
		}
		sent[entry.ID] = entry
		news = append(news, entry)
	}
	slices.Reverse(news)
	return slices.Clip(news)
}
