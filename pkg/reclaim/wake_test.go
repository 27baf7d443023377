package reclaim

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// What the watches tell wakes the PVs that may wait for it; nothing else does, for nothing is
// looked at by a timer without need.
func TestWhatTheWatchesTellWakesThoseThatWait(t *testing.T) {
	attach := attachment{"pv"}
	cases := map[string]struct {
		before, happens func(*world, *Reclaimer)
		want            []string
	}{
		"a PV that is new":  {nil, func(w *world, r *Reclaimer) { w.store(r, sibling()) }, []string{"other", "pv"}},
		"a PV that changes": {nil, func(w *world, r *Reclaimer) { w.pv.Policy = volume.PolicyRetain; w.store(r, w.pv) }, []string{"pv"}},
		"a PV that is gone": {nil, func(w *world, r *Reclaimer) { w.end(r) }, []string{"pv"}},
		"an attachment":     {nil, func(_ *world, r *Reclaimer) { attachmentChanges{r.observer}.Added(attach) }, nil},
		"an attachment's end": {
			func(_ *world, r *Reclaimer) { attachmentChanges{r.observer}.Added(attach) },
			func(_ *world, r *Reclaimer) { attachmentChanges{r.observer}.Deleted(attach, true) }, []string{"pv"},
		},
		"an attachment that is another PV's now": {
			func(_ *world, r *Reclaimer) { attachmentChanges{r.observer}.Added(attach) },
			func(_ *world, r *Reclaimer) {
				attachmentChanges{r.observer}.Updated(attach, attachment{"elsewhere"})
			}, []string{"pv"},
		},
		"the end of an attachment of a PV that is gone": {
			func(w *world, r *Reclaimer) { attachmentChanges{r.observer}.Added(attach); w.end(r) },
			func(_ *world, r *Reclaimer) { attachmentChanges{r.observer}.Deleted(attach, true) }, []string{"pv"},
		},
		"the end of a PV that shares the volume": {
			func(w *world, r *Reclaimer) { w.store(r, sibling()) },
			func(w *world, r *Reclaimer) {
				last := w.stored["other"]
				delete(w.stored, "other")
				pvChanges{r.observer}.Deleted(last, true)
			}, []string{"other", "pv"},
		},
		"a PV of another driver": {nil, func(w *world, r *Reclaimer) {
			w.store(r, volume.PV{Name: "foreign", UID: types.UID("f"), Driver: "another", Handle: "vol-1"})
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			var woken []string
			r.observer.wake = func(pv string) {
				if !slices.Contains(woken, pv) {
					woken = append(woken, pv)
				}
			}
			if c.before != nil {
				c.before(w, r)
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

// A replica that waits to lead would pile up the names of all that changes, for as long as it waits.
func TestNobodyIsWokenBeforeThereIsSomebodyToWork(t *testing.T) {
	_, r := newWorld(t)
	seen := make(chan string, 2)
	var err error
	r.reclaiming, err = controller.New(controller.Config{Name: "t", Workers: 1}, func(_ context.Context, pv string) controller.Next {
		seen <- pv
		return controller.Next{}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wake("while it waits")
	r.awake.Store(true)
	r.wake("while it leads")
	done := make(chan struct{})
	go func() { defer close(done); r.reclaiming.Run(t.Context()) }()
	if got := <-seen; got != "while it leads" {
		t.Errorf("worked on a PV that changed %s", got)
	}
	r.reclaiming.Stop()
	<-done
}
