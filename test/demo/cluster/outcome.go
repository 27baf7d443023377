//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// Outcome is the end of a scenario in the API server, in the driver's record and on the driver's disk.
type Outcome struct {
	// PV is the PV's phase, or Gone.
	PV string
	// Protected means that csi-reclaimer's finalizer was on the PV at some time, and Held that it still is.
	Protected, Held bool
	// DeleteCalls is the number of DeleteVolume calls that the driver received for the volume.
	DeleteCalls int
	// Late means that the PV was gone before the driver had answered DeleteVolume. A crash between the two would have
	// leaked the volume.
	Late bool
	// OnDisk means that the volume's folder exists.
	OnDisk bool
}

// Cells are the parts of the outcome in words.
func (o Outcome) Cells() []string {
	finalizer := "never protected"
	switch {
	case o.Held:
		finalizer = "still protected"
	case o.Protected:
		finalizer = "was protected"
	}
	calls := stage.Count(o.DeleteCalls, "DeleteVolume call")
	if o.Late {
		calls += " (too late)"
	}
	volume := "volume gone"
	if o.OnDisk {
		volume = "volume on disk"
	}
	return []string{"PV " + o.PV, finalizer, calls, volume}
}

// Look asks the API server, the driver's record and the disk; never csi-reclaimer. The watch has seen the PV before.
func (c *CSI) Look(ctx context.Context, vol *objects.Volume, w *Watcher) (none Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	pv, err := vol.PV(ctx)
	if err != nil {
		return none, err
	}
	protected, goneAt := w.observed()
	seen := Outcome{PV: Phase(pv), Held: IsProtected(pv), Protected: protected || IsProtected(pv)}
	calls, err := c.Driver.Calls("DeleteVolume")
	if err != nil {
		return none, err
	}
	for _, call := range calls {
		if call.Volume != vol.Handle {
			continue
		}
		seen.DeleteCalls++
		seen.Late = seen.Late || tooLate(call.Answered, goneAt)
	}
	_, err = os.Stat(filepath.Join(c.Driver.VolumesDir(), vol.Handle))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, err
	}
	seen.OnDisk = err == nil
	return seen, nil
}

// tooLate reports whether a PV was gone before the driver had answered. Both times are from this machine, and gone is
// never earlier than the truth, so that the verdict is never wrong.
func tooLate(answered, goneAt time.Time) bool {
	return !goneAt.IsZero() && (answered.IsZero() || answered.After(goneAt))
}

// RecordDisk records how many volumes an ls of the driver's disk shows: each is a folder.
func (c *CSI) RecordDisk(t *stage.Timeline) error {
	entries, err := os.ReadDir(c.Driver.VolumesDir())
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })
	t.Disk(stage.Count(len(entries), "volume"))
	return nil
}

// RecordCalls records the driver's calls for a volume.
func (c *CSI) RecordCalls(t *stage.Timeline, vol *objects.Volume) error {
	calls, err := c.Driver.Calls("CreateVolume", "DeleteVolume")
	if err != nil {
		return err
	}
	for _, call := range calls {
		if call.Volume != vol.Handle {
			continue
		}
		answer := "does not answer"
		if call.Code != "" {
			answer = fmt.Sprintf("answers %s after %v", call.Code, stage.Rounded(call.Answered.Sub(call.Received)))
		}
		t.Driver(call.Received, fmt.Sprintf("receives %s, %s", call.Method, answer))
	}
	return nil
}
