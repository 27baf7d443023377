package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"slices"
	"strings"
	"testing"
)

func TestPVsFollowsCache(t *testing.T) {
	w, r := newWorld(t)
	pvs := r.PVs()
	var reported []string
	pvs.Follow(func(pv volume.PV) {
		shown := "gone"
		if now, found := pvs.Get(pv.Name); found && now.UID == pv.UID {
			shown = "there"
		}
		reported = append(reported, pv.Name+" "+shown)
	})
	if pv, found := pvs.Get("pv"); !found || pv.Handle != w.pv.Handle || pv.Claim != w.pv.Claim {
		t.Errorf("the PV is %+v, %v", pv, found)
	}
	if _, found := pvs.Get("nobody"); found || pvs.Shared(w.pv.Handle, "pv") || !pvs.Shared(w.pv.Handle, "nobody") ||
		pvs.Shared("", "pv") {
		t.Error("there is more than the one PV of the volume")
	}
	w.store(r, sibling())
	if !pvs.Shared(w.pv.Handle, "pv") || !pvs.Shared(strings.ToUpper(w.pv.Handle), "pv") {
		t.Error("the second PV of the volume is not known")
	}
	w.alter(r, retain)
	again := w.pv
	again.UID = "made again"
	w.store(r, again)
	w.end(r)
	if want := []string{"other there", "pv gone", "pv there", "pv gone"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
	lists := 0
	pvs.FollowLists(func() { lists++ })
	if (pvEvents{r}).Listed(); lists != 1 {
		t.Errorf("a list was reported %d times", lists)
	}
	if pvs.Reached("1") {
		t.Error("a cache that shows no version is past one")
	}
	if pvs.Synced() {
		t.Error("nothing watches, and the PVs are known")
	}
}
