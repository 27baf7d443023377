package provision

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// TestUnfitHandleForm: the driver's id of a migrated volume may differ from the handle of its PersistentVolume, so it
// is no proof that the PersistentVolume names another volume.
func TestUnfitHandleForm(t *testing.T) {
	t.Parallel()
	unfit := plainOrders{spoil: func() error { return errors.New("too small") }}
	for migrated, want := range map[bool]bool{false: true, true: false} {
		r := &run{Controller: &Controller{requests: unfit}, track: &track{}}
		reply, err := r.judge(inflight.Request{Migrated: migrated}, &csi.Volume{VolumeId: "projects/p/zones/z/disks/d"})
		if err == nil || !reply.Unfit || reply.InPVForm != want {
			t.Errorf("migrated %v: %+v, %v; want the form %v", migrated, reply, err, want)
		}
	}
}

// copiedLog is a log whose Lease was replaced by a copy.
type copiedLog struct{ Log }

func (copiedLog) Confirm(context.Context, string) error     { return inflight.ErrUnreadable }
func (copiedLog) Put(context.Context, inflight.Entry) error { return inflight.ErrUnreadable }

// TestUnreadableLogHasItsReason: a log that turns unreadable while its entry is open is no failed request.
func TestUnreadableLogHasItsReason(t *testing.T) {
	t.Parallel()
	r := &run{Controller: &Controller{log: copiedLog{}, cfg: Config{Clock: clock.RealClock{}}}, track: &track{}}
	r.track.entry.Requests = make([]inflight.Request, 1)
	for name, step := range map[string]func(context.Context) error{
		"ConfirmEntry": r.confirmEntry, "MarkDiscarding": r.markDiscarding, "NoteVersion": r.noteVersion,
	} {
		if reason := reasonOf(step(t.Context())); reason != provision.ReasonLogUnreadable {
			t.Errorf("%s: reason %s", name, reason)
		}
	}
}
