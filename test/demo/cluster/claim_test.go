//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
)

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
		if got := claimChanges(c.before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestClaimWaitEndsWithClaimWatchOrContext(t *testing.T) {
	line := stage.NewPrinter(&bytes.Buffer{}, false).Timeline()
	w := &ClaimWatcher{gone: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Patient(ctx, line); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, want canceled", err)
	}
	close(w.ended)
	if err := w.Patient(t.Context(), line); !errors.Is(err, errWatchEnded) {
		t.Errorf("the watch ended: %v, want errWatchEnded", err)
	}
	w = &ClaimWatcher{gone: make(chan struct{}), ended: make(chan struct{})}
	close(w.gone)
	if err := w.Patient(t.Context(), line); err != nil {
		t.Errorf("gone: %v", err)
	}
}
