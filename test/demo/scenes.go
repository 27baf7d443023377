//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// scene is one scenario and what is right at its end.
type scene struct {
	name, title, story, moral string

	policy     v1.PersistentVolumeReclaimPolicy
	pvFirst    bool
	sidecarOff bool

	want outcome
}

// outcome is what the API server, the driver's record and the driver's disk show.
type outcome struct {
	pv          string
	deleteCalls int
	onDisk      bool
}

// gone is what outcome.pv says of a PV that left the API server.
const gone = "gone"

func scenes() []scene {
	return []scene{
		{
			name: "claim-first", title: "The claim is deleted first",
			story:  "The usual order: the claim goes, the policy is Delete, so the volume goes too.",
			moral:  "Deleted once, and only then the PV was let go.",
			policy: v1.PersistentVolumeReclaimDelete,
			want:   outcome{pv: gone, deleteCalls: 1},
		},
		{
			name: "pv-first", title: "The PV is deleted first",
			story:  "The order that leaks: the PV is deleted while its claim still uses the volume.",
			moral:  "The finalizer held the PV until its claim was gone and its volume deleted.",
			policy: v1.PersistentVolumeReclaimDelete, pvFirst: true,
			want: outcome{pv: gone, deleteCalls: 1},
		},
		{
			name: "retain", title: "The policy is Retain",
			story:  "The claim goes, and the volume is to stay, with its PV, for an administrator.",
			moral:  "Kept: no finalizer was put on, and the driver was never called.",
			policy: v1.PersistentVolumeReclaimRetain,
			want:   outcome{pv: "Released", onDisk: true},
		},
		{
			name: "without", title: "The PV is deleted first, without csi-reclaimer",
			story:  "What a cluster does by itself: csi-reclaimer is stopped before the PV is made.",
			moral:  "Leaked: nothing in the cluster knows of this volume any more; it stays on the bill\nuntil someone finds it.",
			policy: v1.PersistentVolumeReclaimDelete, pvFirst: true, sidecarOff: true,
			want: outcome{pv: gone, onDisk: true},
		},
	}
}

// play plays one scene and returns how it ended.
func (s *stage) play(ctx context.Context, sc scene) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	t := s.p.timeline()
	defer t.print()
	if sc.sidecarOff {
		if err := s.sidecar.Terminate(); err != nil {
			return outcome{}, err
		}
		t.user("stops csi-reclaimer")
	}
	vol, err := s.maker.Make(ctx, storage.Spec{Name: sc.name, Policy: sc.policy})
	if err != nil {
		return outcome{}, err
	}
	t.user(fmt.Sprintf("makes claim %s, bound to PV %s, volume %s", sc.name, sc.name, short(vol.Handle)))
	if err := s.disk(t); err != nil {
		return outcome{}, err
	}
	watch, err := s.watch(ctx, t, vol)
	if err != nil {
		return outcome{}, err
	}
	defer watch.stop()
	if err := s.deleteBoth(ctx, t, sc, vol, watch); err != nil {
		return outcome{}, err
	}
	if err := watch.until(ctx, sc.want.pv); err != nil {
		return outcome{}, err
	}
	if !sc.sidecarOff {
		if err := s.fence(ctx); err != nil {
			return outcome{}, err
		}
	}
	watch.stop() // before the last look, so that lines come in order
	if err := s.calls(t, vol); err != nil {
		return outcome{}, err
	}
	if err := s.disk(t); err != nil {
		return outcome{}, err
	}
	return s.look(ctx, vol)
}

// deleteBoth deletes PV and claim in the scene's order, as a user would.
func (s *stage) deleteBoth(ctx context.Context, t *timeline, sc scene, vol *storage.Volume, w *watcher) error {
	if sc.policy == v1.PersistentVolumeReclaimDelete && !sc.sidecarOff {
		if err := w.until(ctx, "protected"); err != nil {
			return err
		}
	}
	if sc.pvFirst {
		t.user("deletes the PV")
		if err := vol.DeletePV(ctx); err != nil {
			return err
		}
		if err := w.until(ctx, "terminating"); err != nil {
			return err
		}
	}
	t.user("deletes the claim")
	if err := vol.DeleteClaim(ctx); err != nil {
		return err
	}
	if err := vol.WaitClaimGone(ctx); err != nil {
		return err
	}
	t.api("the claim is gone")
	if sc.pvFirst {
		return nil
	}
	return w.until(ctx, "released")
}

// fence has csi-reclaimer reclaim a volume of its own: whatever it was about to do to the
// scene's volume has had its chance then.
func (s *stage) fence(ctx context.Context) error {
	vol, err := s.maker.Make(ctx, storage.Spec{Name: fmt.Sprintf("fence-%d", time.Now().UnixNano()), Policy: v1.PersistentVolumeReclaimDelete})
	if err != nil {
		return err
	}
	if err := vol.WaitPV(ctx, "protected", isProtected); err != nil {
		return err
	}
	if err := vol.DeleteClaim(ctx); err != nil {
		return err
	}
	return vol.WaitGone(ctx)
}

// look asks the API server, the driver's record and the disk; never csi-reclaimer.
func (s *stage) look(ctx context.Context, vol *storage.Volume) (outcome, error) {
	seen := outcome{pv: gone}
	pv, err := vol.PV(ctx)
	if err != nil {
		return outcome{}, err
	}
	if pv != nil {
		seen.pv = string(pv.Status.Phase)
		if isProtected(pv) {
			seen.pv += ", finalizer"
		}
	}
	calls, err := s.driver.Calls("DeleteVolume")
	if err != nil {
		return outcome{}, err
	}
	for _, call := range calls {
		if call.Volume == vol.Handle {
			seen.deleteCalls++
		}
	}
	volumes, err := s.driver.Volumes()
	if err != nil {
		return outcome{}, err
	}
	for _, v := range volumes {
		seen.onDisk = seen.onDisk || v.ID == vol.Handle
	}
	return seen, nil
}

// disk notes what the driver's disk holds.
func (s *stage) disk(t *timeline) error {
	n, err := s.volumesOnDisk()
	if err != nil {
		return err
	}
	t.disk(n)
	return nil
}

// calls notes the DeleteVolume calls that the driver received for a volume.
func (s *stage) calls(t *timeline, vol *storage.Volume) error {
	calls, err := s.driver.Calls("DeleteVolume")
	if err != nil {
		return err
	}
	for _, call := range calls {
		if call.Volume == vol.Handle {
			t.driver(call.Received, fmt.Sprintf("received DeleteVolume %s, answered %s", short(vol.Handle), call.Code))
		}
	}
	return nil
}

// short is a handle cut to what tells it from the others.
func short(handle string) string {
	const enough = 12
	if len(handle) <= enough {
		return handle
	}
	return handle[:enough] + "…"
}
