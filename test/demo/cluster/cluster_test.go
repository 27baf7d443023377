//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestFolderIsRemovedUnlessLogsAreKept(t *testing.T) {
	for _, stays := range []bool{false, true} {
		var out bytes.Buffer
		c := &Cluster{Printer: stage.NewPrinter(&out, false), dir: filepath.Join(t.TempDir(), "demo")}
		must.OK(t, os.Mkdir(c.dir, 0o755))
		var failure error
		if stays {
			failure = errors.New("no etcd")
		}
		if err := c.End(t.Context(), failure); !errors.Is(err, failure) {
			t.Errorf("%v, want %v", err, failure)
		}
		_, err := os.Stat(c.dir)
		if errors.Is(err, fs.ErrNotExist) == stays {
			t.Errorf("logs to stay: %v, folder: %v", stays, err)
		}
		if strings.Contains(out.String(), c.dir) != stays {
			t.Errorf("logs to stay: %v, printed %q", stays, out.String())
		}
	}
}

func TestInterruptedClusterLeavesNoLogs(t *testing.T) {
	c := &Cluster{Printer: stage.NewPrinter(&bytes.Buffer{}, false), dir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.End(ctx, ctx.Err()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
}

// The control plane is started first, and what ends after it would find no API server.
func TestEndStopsInReverseOrderAndReturnsAllErrors(t *testing.T) {
	var stopped []string
	c := &Cluster{Printer: stage.NewPrinter(&bytes.Buffer{}, false)}
	for _, part := range []string{"plane", "driver", "program"} {
		c.OnEnd(func() error {
			stopped = append(stopped, part)
			return errors.New(part + " hangs")
		})
	}
	err := c.End(t.Context(), nil)
	if !slices.Equal(stopped, []string{"program", "driver", "plane"}) {
		t.Errorf("stopped in the order %q", stopped)
	}
	for _, part := range stopped {
		if err == nil || !strings.Contains(err.Error(), part+" hangs") {
			t.Errorf("%v, want the error of %s", err, part)
		}
	}
}

func TestDeletionAfterPVIsTooLate(t *testing.T) {
	goneAt := time.Now()
	cases := map[string]struct {
		answered, goneAt time.Time
		want             bool
	}{
		"the PV is still there":     {goneAt, time.Time{}, false},
		"answered, then gone":       {goneAt.Add(-time.Millisecond), goneAt, false},
		"gone, then answered":       {goneAt.Add(time.Millisecond), goneAt, true},
		"gone, and never answered":  {time.Time{}, goneAt, true},
		"there, and never answered": {time.Time{}, time.Time{}, false},
	}
	for name, c := range cases {
		if got := tooLate(c.answered, c.goneAt); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
