package provision

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

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
