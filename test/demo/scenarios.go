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

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// scenario is one scenario and its right end.
type scenario struct {
	name, title, description, ends string
	// conclusion is printed when the scenario ended as wanted.
	conclusion string

	policy     v1.PersistentVolumeReclaimPolicy
	pvFirst    bool
	sidecarOff bool

	want outcome
}

func scenarios() []scenario {
	return []scenario{
		{
			name: "claim-first", title: "Claim deleted first",
			description: "A claim's whole life, in the usual order: csi-reclaimer makes its volume; the claim is " +
				"deleted,\nthe policy is Delete, so the volume is deleted too.",
			ends:       "the volume is deleted",
			conclusion: "Deleted once; only then the PV was released.",
			policy:     v1.PersistentVolumeReclaimDelete,
			want:       outcome{pv: gone, protected: true, deleteCalls: 1},
		},
		{
			name: "pv-first", title: "PV deleted first",
			description: "The order that leaks: the PV is deleted while its claim still uses the volume.",
			ends:        "the volume is deleted",
			conclusion:  "The finalizer held the PV until its claim was gone and its volume deleted.",
			policy:      v1.PersistentVolumeReclaimDelete, pvFirst: true,
			want: outcome{pv: gone, protected: true, deleteCalls: 1},
		},
		{
			name: "retain", title: "Policy Retain",
			description: "The claim is deleted. The volume and its PV stay, for an administrator.",
			ends:        "the volume stays",
			conclusion:  "Kept: no finalizer was added, and the driver received no DeleteVolume.",
			policy:      v1.PersistentVolumeReclaimRetain,
			want:        outcome{pv: string(v1.VolumeReleased), onDisk: true},
		},
		{
			name: "leak", title: "PV deleted first, policy not honored",
			description: "csi-reclaimer is stopped before the PV is made, and no other provisioner runs. So it is with\n" +
				"external-provisioner before 5.0, on Kubernetes before 1.31, or with the feature gate\n" +
				"HonorPVReclaimPolicy off. external-provisioner 5.0 and newer honors the policy by itself on\n" +
				"Kubernetes 1.31 and newer; make tour shows what it leaks.",
			ends: "the volume leaks",
			conclusion: "Leaked: the policy said Delete, the volume stays, and no object names it. An\n" +
				"operator now has to compare the backend's volumes with the PVs, manually, and delete it\n" +
				"there; until then it stays on the bill.",
			policy: v1.PersistentVolumeReclaimDelete, pvFirst: true, sidecarOff: true,
			want: outcome{pv: gone, onDisk: true},
		},
	}
}

// protects says that csi-reclaimer is to add its finalizer to the scenario's PV.
func (sc scenario) protects() bool {
	return sc.policy == v1.PersistentVolumeReclaimDelete && !sc.sidecarOff
}

// observation is the watch's record of a scenario.
type observation struct {
	vol *objects.Volume
	// protected as in outcome, and when the PV was seen to be gone, zero if it was not.
	protected bool
	goneAt    time.Time
}

// result is a scenario with how it ended.
type result struct {
	scenario scenario
	sight    observation
	seen     outcome
}

func (r result) verdict() verdict {
	return verdict{title: r.scenario.title, conclusion: r.scenario.conclusion, harm: leakedIf(r.scenario.sidecarOff),
		want: r.scenario.want,
		seen: r.seen}
}

// play plays one scenario. The verdict covers failures of csi-reclaimer, and the error covers failures of the demo
// itself.
func (env *environment) play(ctx context.Context, sc scenario) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*patience)
	defer cancel()
	t := env.p.timeline()
	defer t.print()
	if sc.sidecarOff {
		t.user("stops csi-reclaimer")
		if err := env.program.Terminate(); err != nil {
			return result{}, err
		}
	}
	watch, err := env.watch(ctx, t, sc.name)
	if err != nil {
		return result{}, err
	}
	defer watch.stop()
	claim, err := env.watchClaim(ctx, t, sc.name)
	if err != nil {
		return result{}, err
	}
	defer claim.stop()
	vol, err := env.make(ctx, t, sc)
	if err != nil {
		return result{}, err
	}
	if err := watch.until(ctx, "bound", isBound); err != nil {
		return result{}, err
	}
	if err := errors.Join(env.disk(t), env.deleteBoth(ctx, t, sc, vol, watch, claim)); err != nil {
		return result{}, err
	}
	if err := watch.until(ctx, sc.want.pv,
		func(pv *v1.PersistentVolume) bool { return phase(pv) == sc.want.pv }); err != nil {
		return result{}, err
	}
	if !sc.sidecarOff {
		if err := env.barrier(ctx, t); err != nil {
			return result{}, err
		}
	}
	watch.stop() // before the last look, so that lines come in order
	r := result{scenario: sc, sight: watch.observe(vol)}
	if err := errors.Join(env.calls(t, vol), env.disk(t)); err != nil {
		return result{}, err
	}
	err = env.look(ctx, &r)
	return r, err
}

// make creates the scenario's claim, for which csi-reclaimer creates the volume and its PV. Without csi-reclaimer it
// creates all three.
func (env *environment) make(ctx context.Context, t *timeline, sc scenario) (*objects.Volume, error) {
	making, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if sc.sidecarOff {
		t.user(fmt.Sprintf("makes volume, PV and claim %q, policy %s", sc.name, sc.policy))
		return env.maker.Make(making, objects.Spec{Name: sc.name, Policy: sc.policy})
	}
	t.user(fmt.Sprintf("makes claim %q of a StorageClass with policy %s", sc.name, sc.policy))
	claim, err := env.maker.MakeClaim(making, objects.ClaimSpec{Name: sc.name, Class: className(sc.policy)})
	if err != nil {
		return nil, err
	}
	vol, err := claim.WaitBound(making)
	if err == nil && sc.policy == v1.PersistentVolumeReclaimRetain {
		env.retained = vol.Name
	}
	return vol, err
}

// deleteBoth deletes PV and claim in the scenario's order, as a user would.
func (env *environment) deleteBoth(ctx context.Context, t *timeline, sc scenario, vol *objects.Volume, w *watcher,
	claim *claimWatcher) error {
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

// barrier has csi-reclaimer reclaim another volume. csi-reclaimer has then done its pending work on the scenario's
// volume.
func (env *environment) barrier(ctx context.Context, t *timeline) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	vol, err := env.maker.Make(waiting, objects.Spec{Name: fmt.Sprintf("other-%d", time.Now().UnixNano()),
		Policy: v1.PersistentVolumeReclaimDelete})
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
func (env *environment) look(ctx context.Context, r *result) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	vol := r.sight.vol
	pv, err := vol.PV(ctx)
	if err != nil {
		return err
	}
	seen := outcome{pv: phase(pv), held: isProtected(pv), protected: r.sight.protected || isProtected(pv)}
	calls, err := env.driver.Calls("DeleteVolume")
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
	_, err = os.Stat(filepath.Join(env.driver.VolumesDir(), vol.Handle))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	seen.onDisk = err == nil
	r.seen = seen
	return nil
}

// tooLate reports whether a PV was gone before the driver had answered. Both times are from this machine, and gone is
// never earlier than the truth, so that the verdict is never wrong.
func tooLate(answered, goneAt time.Time) bool {
	return !goneAt.IsZero() && (answered.IsZero() || answered.After(goneAt))
}

// disk notes how many volumes an ls of the driver's disk shows: each is a folder.
func (env *environment) disk(t *timeline) error {
	entries, err := os.ReadDir(env.driver.VolumesDir())
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })
	t.disk(len(entries))
	return nil
}

// calls notes the driver's calls for a volume.
func (env *environment) calls(t *timeline, vol *objects.Volume) error {
	calls, err := env.driver.Calls("CreateVolume", "DeleteVolume")
	if err != nil {
		return err
	}
	for _, call := range calls {
		if call.Volume != vol.Handle {
			continue
		}
		answer := "does not answer"
		if call.Code != "" {
			answer = fmt.Sprintf("answers %s after %v", call.Code, rounded(call.Answered.Sub(call.Received)))
		}
		t.driver(call.Received, fmt.Sprintf("receives %s, %s", call.Method, answer))
	}
	return nil
}
