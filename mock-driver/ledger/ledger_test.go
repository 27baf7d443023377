package ledger_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func at(s int) time.Time { return time.Date(2030, 1, 1, 0, 0, s, 0, time.UTC) }

func open(t *testing.T, path string) *ledger.Writer {
	t.Helper()
	w := must.Get(ledger.Open(path, "test", time.Now))(t)
	return w
}

func read(t *testing.T, path string) []ledger.Entry {
	t.Helper()
	entries := must.Get(ledger.Read(path))(t)
	return entries
}

func TestCalls(t *testing.T) {
	entries := []ledger.Entry{
		{Time: at(0), Boot: "a", Seq: 1, Phase: ledger.Started},
		{Time: at(1), Boot: "a", Seq: 2, Phase: ledger.Received, Method: "CreateVolume", Name: "pvc-1",
			SecretKeys: []string{"password"}},
		{Time: at(2), Boot: "a", Seq: 3, Phase: ledger.Received, Method: "DeleteVolume", Volume: "v0"},
		{Time: at(3), Boot: "a", Seq: 4, Phase: ledger.Changed, Call: 2, Method: "CreateVolume", Name: "pvc-1",
			Volume: "v1", Changed: true},
		{Time: at(4), Boot: "a", Seq: 5, Phase: ledger.Answered, Call: 2, Method: "CreateVolume", Name: "pvc-1",
			Volume: "v1", Changed: true,
			Code: "Internal", Did: "OK", Error: "injected", Faults: []string{"liar"}},
		{Time: at(5), Boot: "b", Seq: 1, Phase: ledger.Started},
		{Time: at(6), Boot: "b", Seq: 2, Phase: ledger.Received, Method: "DeleteVolume", Volume: "v1"},
	}
	want := []ledger.Call{
		{Boot: "a", Seq: 2, Method: "CreateVolume", Volume: "v1", Name: "pvc-1", SecretKeys: []string{"password"},
			Received: at(1), Done: at(3),
			Answered: at(4), Code: "Internal", Did: "OK", Error: "injected", Changed: true, Faults: []string{"liar"}},
		{Boot: "a", Seq: 3, Method: "DeleteVolume", Volume: "v0", Received: at(2), Lost: true},
		{Boot: "b", Seq: 2, Method: "DeleteVolume", Volume: "v1", Received: at(6)},
	}
	calls := ledger.Calls(entries)
	if !cmp.Equal(calls, want) {
		t.Error(cmp.Diff(want, calls))
	}
	if got := ledger.Select(calls, "DeleteVolume"); !cmp.Equal(got, want[1:]) {
		t.Error(cmp.Diff(want[1:], got))
	}
}

func TestTornLines(t *testing.T) {
	started := `{"time":"2030-01-01T00:00:00Z","boot":"a","seq":1,"phase":"started"}` + "\n"
	call := `{"time":"2030-01-01T00:00:01Z","boot":"a","seq":2,"phase":"received","method":"Probe"}` + "\n"
	for name, c := range map[string]struct {
		content string
		entries int
		damaged bool
	}{
		"no ledger yet":                    {entries: 0},
		"whole lines":                      {content: started + call, entries: 2},
		"a torn last line":                 {content: started + call[:40], entries: 1},
		"a torn line, then a new process":  {content: started + call[:40] + "\n" + started + call, entries: 3},
		"a torn line that ends the ledger": {content: started + call[:40] + "\n", entries: 1},
		"a torn line in the middle of a process": {content: started + call[:40] + "\n" + call, entries: 1,
			damaged: true},
		"two torn lines in a row": {content: started + call[:40] + "\n" + call[:30] + "\n" + started,
			entries: 1, damaged: true},
		"a line of zeroes, as after a machine's crash": {content: started + "\x00\x00\x00\n" + call, entries: 1,
			damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.jsonl")
			if c.content != "" {
				must.OK(t, os.WriteFile(path, []byte(c.content), 0o644))
			}
			entries, err := ledger.Read(path)
			if len(entries) != c.entries || errors.Is(err, ledger.ErrDamaged) != c.damaged || err != nil && !c.damaged {
				t.Errorf("got %d entries, %v, want %d, damaged %v", len(entries), err, c.entries, c.damaged)
			}
		})
	}
}

func TestReopenAfterTornWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	w := open(t, path)
	w.Write(ledger.Entry{Phase: ledger.Received, Method: "DeleteVolume", Volume: "v1"})
	data := must.Get(os.ReadFile(path))(t)
	must.OK(t, os.WriteFile(path, data[:len(data)-10], 0o644))
	again := open(t, path)
	again.Write(ledger.Entry{Phase: ledger.Received, Method: "DeleteVolume", Volume: "v1"})
	must.OK(t, again.Close())
	var phases []ledger.Phase
	for _, e := range read(t, path) {
		phases = append(phases, e.Phase)
	}
	if want := []ledger.Phase{ledger.Started, ledger.Started, ledger.Received, ledger.Stopped}; !cmp.Equal(phases, want) {
		t.Errorf("got %v, want %v", phases, want)
	}
}

func TestConcurrentWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	w := open(t, path)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				w.Write(ledger.Entry{Phase: ledger.Received, Method: "Probe", Error: strings.Repeat("x", 500)})
			}
		})
	}
	all.Wait()
	must.OK(t, w.Close())
	entries := read(t, path)
	if len(entries) != 8*200+2 {
		t.Fatalf("got %d entries", len(entries))
	}
	for i, e := range entries {
		if e.Seq != uint64(i+1) || e.Boot != entries[0].Boot {
			t.Fatalf("entry %d: got %s/%d", i, e.Boot, e.Seq)
		}
	}
}

func TestLongFieldsAreTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	w := open(t, path)
	w.Write(ledger.Entry{Phase: ledger.Received, Volume: strings.Repeat("漢", 1<<20), Name: "bad \xff utf-8"})
	must.OK(t, w.Close())
	e := read(t, path)[1]
	if len(e.Volume) > 1100 || !utf8.ValidString(e.Volume) || !strings.HasSuffix(e.Volume, "…") {
		t.Errorf("got %d bytes", len(e.Volume))
	}
}

func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w, err := ledger.Open(path, "test", time.Now)
		if err != nil {
			t.Error(err)
			return
		}
		for range 3 {
			w.Write(ledger.Entry{Phase: ledger.Received, Method: "DeleteVolume"})
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	calls, err := ledger.Wait(ctx, path, func(calls []ledger.Call) bool { return len(calls) >= 3 })
	if err != nil || len(calls) != 3 {
		t.Errorf("got %d calls, %v", len(calls), err)
	}
	<-written
	over, cancel := context.WithCancel(t.Context())
	cancel()
	calls, err = ledger.Wait(over, path, func(calls []ledger.Call) bool { return len(calls) > 3 })
	if !errors.Is(err, context.Canceled) || len(calls) != 3 {
		t.Errorf("wait in vain: got %d calls, %v", len(calls), err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"boot":"a","seq":1,"phase":"started"}` + "\n{\n" + `{"boot":"b","seq":1,"phase":"started"}` + "\n"))
	f.Add([]byte("\n\n{}\nnull\n[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "ledger.jsonl")
		must.OK(t, os.WriteFile(path, data, 0o644))
		entries, _ := ledger.Read(path) // Must not panic, whatever the file holds.
		ledger.Calls(entries)
	})
}
