//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func pv(phase v1.PersistentVolumePhase, terminating bool, finalizers ...string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Finalizers: finalizers},
		Status:     v1.PersistentVolumeStatus{Phase: phase},
	}
	if terminating {
		pv.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return pv
}

func TestChanges(t *testing.T) {
	const theirs = "kubernetes.io/pv-protection"
	cases := map[string]struct {
		before, now *v1.PersistentVolume
		want        []string
	}{
		"made": {nil, pv(v1.VolumePending, false, theirs),
			[]string{"the PV is there", "finalizer kubernetes.io/pv-protection is added to the PV"}},
		"bound and protected at once": {pv(v1.VolumeAvailable, false, theirs),
			pv(v1.VolumeBound, false, theirs, volume.Finalizer),
			[]string{"the PV is Bound", "csi-reclaimer's finalizer is added to the PV"}},
		"deleted": {pv(v1.VolumeBound, false), pv(v1.VolumeBound, true), []string{"the PV is terminating, phase Bound"}},
		"one finalizer of two goes": {pv(v1.VolumeReleased, true, theirs, volume.Finalizer),
			pv(v1.VolumeReleased, true, volume.Finalizer),
			[]string{"finalizer kubernetes.io/pv-protection is removed from the PV"}},
		"ours goes last": {pv(v1.VolumeReleased, true, volume.Finalizer), nil,
			[]string{"csi-reclaimer's finalizer is removed, and the PV is gone"}},
		"gone without":                  {pv(v1.VolumeReleased, true, theirs), nil, []string{"the PV is gone"}},
		"nothing that a person notices": {pv(v1.VolumeBound, false), pv(v1.VolumeBound, false), nil},
	}
	for name, c := range cases {
		if got := changes("PV", c.before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestClaimChanges(t *testing.T) {
	claim := func(terminating bool, finalizers ...string) *v1.PersistentVolumeClaim {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: pv("", terminating, finalizers...).ObjectMeta}
		claim.Status.Phase = v1.ClaimBound
		return claim
	}
	cases := map[string]struct {
		before, now *v1.PersistentVolumeClaim
		want        []string
	}{
		"made":                          {nil, claim(false), []string{"the claim is there"}},
		"deleted":                       {claim(false), claim(true), []string{"the claim is terminating"}},
		"still there":                   {claim(true), claim(true), nil},
		"gone":                          {claim(true), nil, []string{"the claim is gone"}},
		"nothing that a person notices": {claim(false), claim(false), nil},
	}
	for name, c := range cases {
		if got := claimChanges("claim", c.before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWaitForExistingTwin(t *testing.T) {
	stream := watch.NewFake()
	w := followPV(stage.NewPrinter(&bytes.Buffer{}, false).Timeline(), "twin", stream)
	if err := w.UntilGoneAgain(t.Context()); err != nil {
		t.Errorf("no twin: %v", err)
	}
	stream.Add(pv(v1.VolumeReleased, false))
	must.OK(t, w.Until(t.Context(), "there", func(*v1.PersistentVolume) bool { return true }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.UntilGoneAgain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a twin that stays: %v, want canceled", err)
	}
	stream.Delete(pv(v1.VolumeReleased, true))
	if err := w.UntilGoneAgain(t.Context()); err != nil {
		t.Errorf("a twin that goes: %v", err)
	}
	w.Stop()
}

func TestWatchRecordsProtectionAndDeletionTime(t *testing.T) {
	var out bytes.Buffer
	line := stage.NewPrinter(&out, false).Timeline()
	stream := watch.NewFake()
	w := followPV(line, "PV", stream)
	stream.Add(pv(v1.VolumeBound, false, volume.Finalizer))
	must.OK(t, w.Until(t.Context(), "protected", IsProtected))
	if _, goneAt := w.observed(); !goneAt.IsZero() {
		t.Error("gone while it is there")
	}
	stream.Modify(pv(v1.VolumeReleased, true))
	stream.Delete(pv(v1.VolumeReleased, true))
	must.OK(t, w.UntilGone(t.Context()))
	w.Stop()
	if protected, goneAt := w.observed(); !protected || goneAt.IsZero() {
		t.Errorf("protected %v, gone at %v, want protected and gone", protected, goneAt)
	}
	line.Print()
	if !strings.HasSuffix(out.String(), "the PV is gone\n") {
		t.Errorf("printed\n%s", out.String())
	}
}

func TestUntilEndsWithContextOrWatch(t *testing.T) {
	stream := watch.NewFake()
	w := followPV(stage.NewPrinter(&bytes.Buffer{}, false).Timeline(), "PV", stream)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Until(ctx, "terminating", IsTerminating); !errors.Is(err, context.Canceled) {
		t.Errorf("until = %v, want canceled", err)
	}
	w.Stop()
	if err := w.Until(t.Context(), "terminating", IsTerminating); !errors.Is(err, errWatchEnded) {
		t.Errorf("until = %v, want errWatchEnded", err)
	}
}
