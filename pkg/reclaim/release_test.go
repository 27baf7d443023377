package reclaim

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// TestReleaseNeedsTheLog: without the log, each PV would seem to be in flight, and the release to have succeeded.
func TestReleaseNeedsTheLog(t *testing.T) {
	w, r := newWorldWith(t, Config{Mode: ModeRelease, InFlight: inFlightLog{}})
	if out, err := r.Release(t.Context()); err == nil || !strings.Contains(err.Error(), "has not been read") {
		t.Errorf("%+v, %v; diary %q", out, err, w.diary)
	}
}

// TestReleaseListsLive: a PV that the watch does not have yet is released too.
func TestReleaseListsLive(t *testing.T) {
	w, r := newWorldWith(t, Config{Mode: ModeRelease})
	w.pvs.content = []volume.PV{w.pv, sibling()}
	if out, err := r.Release(t.Context()); err != nil || out.PVs != 2 {
		t.Errorf("%+v, %v; diary %q", out, err, w.diary)
	}
	w.fail["each PV"] = errors.New("no answer")
	if out, err := r.Release(t.Context()); err == nil || out.PVs != 0 {
		t.Errorf("without a list: %+v, %v; diary %q", out, err, w.diary)
	}
}

// TestReleaseNamesPVDeletedMeanwhile: the PV is deleted after it was listed, so the first write fails.
func TestReleaseNamesPVDeletedMeanwhile(t *testing.T) {
	for name, before := range map[string][]volume.PV{"the first PV": nil, "another PV": {sibling()}} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorldWith(t, Config{Mode: ModeRelease})
			listed, writes := w.pv, 0
			w.at("drop", func() {
				writes++
				if delete(w.fail, "drop"); writes == len(before)+1 {
					w.pv.Terminating, w.fail["drop"] = true, kube.ErrChanged
				}
			})
			out, err := r.releaseAll(t.Context(), append(before, listed))
			if err != nil || out.PVs != len(before)+1 || !slices.Equal(out.Abandoned, []string{"pv"}) {
				t.Errorf("%+v, %v; diary %q", out, err, w.diary)
			}
		})
	}
}
