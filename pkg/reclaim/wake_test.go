package reclaim

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Events of the watches enqueue the PVs that may wait for them. No timer polls without need.
func TestWatchEventsEnqueueWaitingPVs(t *testing.T) {
	type step = func(*world, *Controller)
	added := func(_ *world, r *Controller) { attachmentEvents{r}.Added("pv") }
	updated := func(from, to string) step {
		return func(_ *world, r *Controller) { attachmentEvents{r}.Updated(from, to) }
	}
	deleted := func(_ *world, r *Controller) { attachmentEvents{r}.Deleted("pv", true) }
	end := func(w *world, r *Controller) { w.end(r) }
	joined := func(w *world, r *Controller) { w.store(r, sibling()) }
	cases := map[string]struct {
		before  []step
		happens step
		want    []string
	}{
		"a PV that is new":                       {nil, joined, []string{"other"}},
		"a PV that changes":                      {nil, func(w *world, r *Controller) { w.alter(r, retain) }, []string{"pv"}},
		"a PV that is gone":                      {nil, end, []string{"pv"}},
		"an attachment":                          {nil, added, nil},
		"an attachment's end":                    {[]step{added}, deleted, []string{"pv"}},
		"an attachment that is another PV's now": {[]step{added}, updated("pv", "elsewhere"), []string{"pv"}},
		"an attachment that changes otherwise":   {[]step{added}, updated("pv", "pv"), nil},
		"the end of an attachment that became this PV's": {[]step{updated("elsewhere", "pv"), func(w *world, r *Controller) {
			r.reconcile(t.Context(), "pv")
			w.expect(t) // attached
		}}, deleted, []string{"pv"}},
		"the end of an attachment of a PV that is gone": {[]step{added, end}, deleted, []string{"pv"}},
		"the end of a PV that shares the volume": {[]step{joined},
			func(w *world, r *Controller) { w.vanish(r, "other", true) }, []string{"other", "pv"}},
		"a PV of another driver": {nil, func(w *world, r *Controller) {
			w.store(r, volume.PV{Name: "foreign", UID: types.UID("f"), Driver: "another", Handle: "vol-1"})
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			var woken []string
			r.enqueue = func(pv string) {
				if !slices.Contains(woken, pv) {
					woken = append(woken, pv)
				}
			}
			for _, step := range c.before {
				step(w, r)
			}
			woken = nil
			c.happens(w, r)
			slices.Sort(woken)
			if !slices.Equal(woken, c.want) {
				t.Errorf("woken: %q, want %q", woken, c.want)
			}
		})
	}
}

// A replica that waits to lead would otherwise pile up the names of all changed PVs.
func TestStandbyReplicaEnqueuesNoPVs(t *testing.T) {
	w, r := newWorld(t)
	w.store(r, w.pv) // its event enqueues nothing
	other := sibling()
	other.Handle = "vol-2"
	w.join(r, other)
	w.at("release", func() { r.Stop() })
	r.reclaiming.Add("other")
	r.reclaiming.Run(t.Context())
	w.expect(t, "read claim", "read other", "delete volume", "delete PV", "release")
}
