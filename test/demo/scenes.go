//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// scene is one scenario and what is right at its end.
type scene struct {
	name, title, story string
	// moral is said when the scene ended as it should.
	moral string

	policy     v1.PersistentVolumeReclaimPolicy
	pvFirst    bool
	sidecarOff bool

	want outcome
}

func scenes() []scene {
	return []scene{
		{
			name: "claim-first", title: "Claim deleted first",
			story:  "A claim's whole life, in the usual order: csi-reclaimer makes its volume; the claim goes, the\npolicy is Delete, so the volume goes too.",
			moral:  "Deleted once; only then the PV was let go.",
			policy: v1.PersistentVolumeReclaimDelete,
			want:   outcome{pv: gone, protected: true, deleteCalls: 1},
		},
		{
			name: "pv-first", title: "PV deleted first",
			story:  "The order that leaks: the PV is deleted while its claim still uses the volume.",
			moral:  "The finalizer held the PV until its claim was gone and its volume deleted.",
			policy: v1.PersistentVolumeReclaimDelete, pvFirst: true,
			want: outcome{pv: gone, protected: true, deleteCalls: 1},
		},
		{
			name: "retain", title: "Policy Retain",
			story:  "The claim goes. The volume is to stay, and its PV too, for an administrator.",
			moral:  "Kept: no finalizer was put on, and the driver was never asked to delete.",
			policy: v1.PersistentVolumeReclaimRetain,
			want:   outcome{pv: string(v1.VolumeReleased), onDisk: true},
		},
		{
			name: "leak", title: "PV deleted first, csi-reclaimer off",
			story: "What a cluster does by itself: csi-reclaimer is stopped before the PV is made.",
			moral: "Leaked: the policy said Delete, the volume stays, and no object names it any more. An\n" +
				"operator now has to compare the backend's volumes with the PVs, by hand, and delete it\n" +
				"there; until then it stays on the bill.",
			policy: v1.PersistentVolumeReclaimDelete, pvFirst: true, sidecarOff: true,
			want: outcome{pv: gone, onDisk: true},
		},
	}
}

// protects says that csi-reclaimer is to put its finalizer on the scene's PV.
func (sc scene) protects() bool {
	return sc.policy == v1.PersistentVolumeReclaimDelete && !sc.sidecarOff
}

// sight is what a scene leaves to look at.
type sight struct {
	vol *storage.Volume
	// protected as in outcome, and when the PV was seen to be gone, zero if it was not.
	protected bool
	goneAt    time.Time
}

// result is a scene with how it ended.
type result struct {
	scene scene
	sight sight
	seen  outcome
}

func (r result) verdict() verdict {
	return verdict{title: r.scene.title, moral: r.scene.moral, leaks: r.scene.sidecarOff, want: r.scene.want, seen: r.seen}
}

// play plays one scene. What csi-reclaimer fails to do in time is a matter of the verdict;
// the error is for what the demo itself could not do.
func (s *stage) play(ctx context.Context, sc scene) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*patience)
	defer cancel()
	t := s.p.timeline()
	defer t.print()
	if sc.sidecarOff {
		t.user("stops csi-reclaimer")
		if err := s.program.Terminate(); err != nil {
			return result{}, err
		}
	}
	watch, err := s.watch(ctx, t, sc.name)
	if err != nil {
		return result{}, err
	}
	defer watch.stop()
	claim, err := s.watchClaim(ctx, t, sc.name)
	if err != nil {
		return result{}, err
	}
	defer claim.stop()
	vol, err := s.make(ctx, t, sc)
	if err != nil {
		return result{}, err
	}
	if err := watch.until(ctx, "bound", isBound); err != nil {
		return result{}, err
	}
	if err := errors.Join(s.disk(t), s.deleteBoth(ctx, t, sc, vol, watch, claim)); err != nil {
		return result{}, err
	}
	if err := watch.until(ctx, sc.want.pv, func(pv *v1.PersistentVolume) bool { return phase(pv) == sc.want.pv }); err != nil {
		return result{}, err
	}
	if !sc.sidecarOff {
		if err := s.fence(ctx, t); err != nil {
			return result{}, err
		}
	}
	watch.stop() // before the last look, so that lines come in order
	r := result{scene: sc, sight: watch.sight(vol)}
	if err := errors.Join(s.calls(t, vol), s.disk(t)); err != nil {
		return result{}, err
	}
	err = s.look(ctx, &r)
	return r, err
}

// make makes the scene's claim, for which csi-reclaimer makes the volume and its PV; without
// csi-reclaimer it makes all three.
func (s *stage) make(ctx context.Context, t *timeline, sc scene) (*storage.Volume, error) {
	making, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if sc.sidecarOff {
		t.user(fmt.Sprintf("makes volume, PV and claim %q, policy %s", sc.name, sc.policy))
		return s.maker.Make(making, storage.Spec{Name: sc.name, Policy: sc.policy})
	}
	t.user(fmt.Sprintf("makes claim %q of a StorageClass with policy %s", sc.name, sc.policy))
	claim, err := s.maker.MakeClaim(making, storage.ClaimSpec{Name: sc.name, Class: className(sc.policy)})
	if err != nil {
		return nil, err
	}
	vol, err := claim.WaitBound(making)
	if err == nil && sc.policy == v1.PersistentVolumeReclaimRetain {
		s.retained = vol.Name
	}
	return vol, err
}

// deleteBoth deletes PV and claim in the scene's order, as a user would.
func (s *stage) deleteBoth(ctx context.Context, t *timeline, sc scene, vol *storage.Volume, w *watcher, claim *claimWatcher) error {
	if sc.protects() {
		if err := w.until(ctx, "protected by csi-reclaimer's finalizer", isProtected); err != nil {
			return err
		}
	}
	if sc.pvFirst {
		t.user("deletes the PV")
		if err := vol.DeletePV(ctx); err != nil {
			return err
		}
		if err := w.until(ctx, "terminating", isTerminating); err != nil {
			return err
		}
	}
	t.user("deletes the claim")
	if err := vol.DeleteClaim(ctx); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return claim.waitGone(waiting)
}

// fence has csi-reclaimer reclaim a volume of its own: whatever it was about to do to the
// scene's volume has had its chance then.
func (s *stage) fence(ctx context.Context, t *timeline) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	vol, err := s.maker.Make(waiting, storage.Spec{Name: fmt.Sprintf("other-%d", time.Now().UnixNano()), Policy: v1.PersistentVolumeReclaimDelete})
	if err != nil {
		return err
	}
	err = vol.WaitPV(waiting, "protected", isProtected)
	if err == nil {
		if err := vol.DeleteClaim(waiting); err != nil {
			return err
		}
		err = vol.WaitGone(waiting)
	}
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		t.demo(fmt.Sprintf("another volume is not reclaimed within %v", patience))
	default:
		t.demo("another volume was made and reclaimed meanwhile, to leave time for a late call")
	}
	return nil
}

// look asks the API server, the driver's record and the disk; never csi-reclaimer.
func (s *stage) look(ctx context.Context, r *result) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	vol := r.sight.vol
	pv, err := vol.PV(ctx)
	if err != nil {
		return err
	}
	seen := outcome{pv: phase(pv), held: isProtected(pv), protected: r.sight.protected || isProtected(pv)}
	calls, err := s.driver.Calls("DeleteVolume")
	if err != nil {
		return err
	}
	for _, call := range calls {
		if call.Volume != vol.Handle {
			continue
		}
		seen.deleteCalls++
		seen.late = seen.late || tooLate(call.Answered, r.sight.goneAt)
	}
	_, err = os.Stat(filepath.Join(s.driver.VolumesDir(), vol.Handle))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	seen.onDisk = err == nil
	r.seen = seen
	return nil
}

// tooLate says that a PV was gone before the driver had answered. Both times are of this
// machine, and gone is never earlier than the truth, so that nobody is blamed wrongly.
func tooLate(answered, goneAt time.Time) bool {
	return !goneAt.IsZero() && (answered.IsZero() || answered.After(goneAt))
}

// disk notes how many volumes an ls of the driver's disk shows: each is a folder.
func (s *stage) disk(t *timeline) error {
	entries, err := os.ReadDir(s.driver.VolumesDir())
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })
	t.disk(len(entries))
	return nil
}

// calls notes what the driver was asked for a volume.
func (s *stage) calls(t *timeline, vol *storage.Volume) error {
	calls, err := s.driver.Calls("CreateVolume", "DeleteVolume")
	if err != nil {
		return err
	}
	for _, call := range calls {
		if call.Volume != vol.Handle {
			continue
		}
		answer := "no answer"
		if call.Code != "" {
			answer = call.Code
		}
		t.driver(call.Received, fmt.Sprintf("receives %s, answers %s after %v", call.Method, answer, rounded(call.Answered.Sub(call.Received))))
	}
	return nil
}
