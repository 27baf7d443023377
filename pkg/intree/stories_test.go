package intree

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

var seed = flag.Uint64("seed", 0, "seed of the random stories (default: the time)")

// pvFirst deletes a PV and then its claim, and settles the world after each step.
func pvFirst(w *world, name string) {
	w.settle()
	w.deletePVBy(name)
	w.settle()
	delete(w.claims, "claim-"+name)
	w.settle()
}

func TestTwinLifecycle(t *testing.T) {
	w := newWorld(t, "a")
	pvFirst(w, "a")
	want := []string{
		"patch a +[kubernetes.io/pv-controller] -[]",
		"create a-reclaim Retain",
		"turn a-reclaim to Delete",
		"plugin deletes /disks/a by a-reclaim",
		"patch a +[] -[kubernetes.io/pv-controller]",
	}
	if got := w.wroteDown(); !slices.Equal(got, want) {
		t.Errorf("written:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.expectGone("a")
}

// expectGone reports an error if anything is left of a PV whose volume was to be deleted.
func (w *world) expectGone(name string) {
	w.t.Helper()
	if w.disks["/disks/"+name] {
		w.t.Errorf("the disk of %s is left", name)
	}
	w.expectNoPV(name)
}

// expectKept reports an error if a volume was deleted that was to be kept.
func (w *world) expectKept(name string) {
	w.t.Helper()
	if !w.disks["/disks/"+name] {
		w.t.Errorf("the disk of %s is deleted", name)
	}
}

func (w *world) expectNoPV(name string) {
	w.t.Helper()
	for _, left := range w.names() {
		if left == name || left == volume.TwinName(name) {
			w.t.Errorf("PV %s is left: %+v", left, w.pvs[left].ObjectMeta)
		}
	}
}

func TestPVControllerAloneLeaks(t *testing.T) {
	w := newWorld(t)
	w.c.observer.enqueue = func(string) {}
	w.queue = nil
	w.provision("a")
	pvFirst(w, "a")
	if !w.disks["/disks/a"] || len(w.pvs) != 0 {
		t.Error("the world shows no leak, so that no test here shows anything")
	}
}

func TestEndOfEachStory(t *testing.T) {
	cases := map[string]struct {
		play func(w *world)
		kept bool // the disk
		stay bool // the PV
	}{
		"claim first": {play: func(w *world) {
			w.settle()
			delete(w.claims, "claim-a")
			w.settle()
		}},
		"a name at the limit": {play: func(w *world) {
			long := strings.Repeat("n", maxName)
			w.provision(long)
			pvFirst(w, long)
			w.expectGone(long)
			pvFirst(w, "a")
		}},
		"a claim is made again under the same name": {play: func(w *world) {
			w.settle()
			w.deletePVBy("a")
			w.settle()
			w.claims["claim-a"] = claimObject{uid: "newer"}
			w.settle()
		}},
		"an administrator takes the PV back while the twin waits": {kept: true, stay: true, play: func(w *world) {
			w.upTo("create")
			w.edit("a", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID, pv.Status.Phase = "", v1.VolumeAvailable })
			w.settle()
		}},
		"the PV is bound to another claim while the twin waits": {kept: true, stay: true, play: func(w *world) {
			w.upTo("create")
			w.claims["claim-b"] = claimObject{uid: "claim-b", volume: "a"}
			w.edit("a", func(pv *v1.PersistentVolume) {
				pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "claim-b", UID: "claim-b"}
			})
			w.settle()
		}},
		"turned to Retain before the twin is set to Delete": {kept: true, play: func(w *world) {
			w.upTo("create")
			w.edit("a", setPolicy(v1.PersistentVolumeReclaimRetain))
			w.settle()
		}},
		"turned to Retain after the twin was set to Delete, before the PV controller looks": {kept: true,
			play: func(w *world) {
				w.upTo("turn")
				w.edit("a", setPolicy(v1.PersistentVolumeReclaimRetain))
				for w.delivered() || w.worked() {
				}
				w.settle()
			}},
		"turned to Retain after the volume was deleted": {play: func(w *world) {
			w.upTo("turn")
			for len(w.disks) > 0 {
				w.controllers()
			}
			w.edit("a", setPolicy(v1.PersistentVolumeReclaimRetain))
			w.settle()
		}},
		"held while the twin waits, and released": {play: func(w *world) {
			w.upTo("create")
			w.edit("a", hold)
			w.settle()
			w.expectKept("a")
			w.edit("a", func(pv *v1.PersistentVolume) { delete(pv.Annotations, volume.HoldAnnotation) })
			w.settle()
		}},
		"the finalizer is removed by hand while the twin waits": {kept: true, play: func(w *world) {
			w.upTo("create")
			w.edit("a", guard(false, ""))
			w.settle()
		}},
		"the twin is deleted before it is set to Delete": {play: func(w *world) {
			w.upTo("create")
			w.deletePVBy("a-reclaim")
			w.settle()
		}},
		"attached until later": {play: func(w *world) {
			w.attached = []string{"a"}
			w.deleteBoth()
			w.settleOnce()
			w.expectKept("a")
			w.attached = nil
			w.settle()
		}},
		"another PV of the volume, until later": {play: func(w *world) {
			w.edit("b", func(pv *v1.PersistentVolume) { pv.Spec.HostPath.Path = "/disks/a/" })
			pvFirst(w, "a")
			w.expectKept("a")
			pvFirst(w, "b")
			w.expectNoPV("b")
		}},
		"a PV that is not ours has the twin's name": {kept: true, stay: true, play: func(w *world) {
			w.provision("a-reclaim")
			pvFirst(w, "a")
			if w.pvs["a-reclaim"] == nil || !w.disks["/disks/a-reclaim"] {
				t.Error("another's PV was touched")
			}
		}},
		"a CSI PV has the twin's name": {kept: true, stay: true, play: func(w *world) {
			w.set(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a-reclaim", UID: "csi"},
				Spec: v1.PersistentVolumeSpec{
					PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d",
						VolumeHandle: "v"}}}})
			pvFirst(w, "a")
			if got := w.c.recorder.Waiting(); got[intree.ReasonTwinNameTaken] != 1 {
				t.Errorf("waiting: %v, want one %s", got, intree.ReasonTwinNameTaken)
			}
		}},
		"the plugin fails, then recovers": {play: func(w *world) {
			w.stuck["/disks/a"] = "device or resource busy"
			w.deleteBoth()
			w.settleOnce()
			if twin := w.pvs["a-reclaim"]; twin != nil && twin.DeletionTimestamp == nil &&
				twin.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete {
				t.Error("the twin stays set to Delete after it failed")
			}
			delete(w.stuck, "/disks/a")
			w.settle()
		}},
		"there is no plugin any more": {kept: true, stay: true, play: func(w *world) {
			w.stuck["/disks/a"] = "error getting deleter volume plugin for volume \"a\": no volume plugin matched name: " +
				"kubernetes.io/rbd"
			w.deleteBoth()
			w.settleOnce()
			if got := w.c.recorder.Waiting(); got[intree.ReasonPluginGone] != 1 {
				t.Errorf("waiting: %v, want one %s", got, intree.ReasonPluginGone)
			}
		}},
		"migration is switched on while the PV is in use": {kept: true, stay: true, play: func(w *world) {
			w.settle()
			w.edit("a", func(pv *v1.PersistentVolume) {
				pv.Annotations["pv.kubernetes.io/migrated-to"] = "disk.csi.example.com"
				pv.Finalizers = append(pv.Finalizers, volume.Finalizer)
			})
			w.settle()
			if got := w.pvs["a"].Finalizers; slices.Contains(got, intree.Finalizer) || !slices.Contains(got, volume.Finalizer) {
				t.Errorf("migrated, and the finalizers are %v", got)
			}
			w.edit("a", unmigrate)
			w.settle()
			if got := w.pvs["a"].Finalizers; !slices.Contains(got, intree.Finalizer) || slices.Contains(got, volume.Finalizer) {
				t.Errorf("not migrated any more, and the finalizers are %v", got)
			}
		}},
		"migration is taken back while the PV is being deleted": {play: func(w *world) {
			w.settle()
			w.edit("a", func(pv *v1.PersistentVolume) {
				guard(false, "")(pv)
				pv.Annotations["pv.kubernetes.io/migrated-to"] = "disk.csi.example.com"
				pv.Finalizers = append(pv.Finalizers, volume.Finalizer)
			})
			w.deletePVBy("a")
			w.settle()
			w.edit("a", unmigrate)
			w.settle()
			delete(w.claims, "claim-a")
			w.settle()
		}},
		"a static PV": {kept: true, play: func(w *world) {
			w.edit("a", func(pv *v1.PersistentVolume) { delete(pv.Annotations, "pv.kubernetes.io/provisioned-by") })
			pvFirst(w, "a")
			if w.writes > 0 {
				t.Errorf("written: %q", w.wroteDown())
			}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			if strings.Contains(name, "another PV") {
				w.provision("b")
			}
			c.play(w)
			if w.disks["/disks/a"] != c.kept {
				t.Errorf("the disk is there: %v, want %v\n%s", w.disks["/disks/a"], c.kept, strings.Join(w.diary, "\n"))
			}
			if _, left := w.pvs["a"]; left != c.stay {
				t.Errorf("the PV is there: %v, want %v\n%s", left, c.stay, strings.Join(w.diary, "\n"))
			}
			for _, left := range w.names() {
				if w.pvs[left].Labels[volume.TwinLabel] != "" {
					t.Errorf("a twin is left: %s\n%s", left, strings.Join(w.diary, "\n"))
				}
			}
		})
	}
}

// settleOnce runs the world until it rests, without time passing.
func (w *world) settleOnce() {
	for w.delivered() || w.worked() || w.controllers() {
	}
}

// upTo plays a deletion of PV a, PV first, up to and including the first call with the prefix.
func (w *world) upTo(call string) {
	w.t.Helper()
	w.settle()
	w.deletePVBy("a")
	w.settle()
	delete(w.claims, "claim-a")
	for range 1000 {
		if slices.ContainsFunc(w.diary, func(line string) bool { return strings.HasPrefix(line, call) }) {
			return
		}
		if !w.delivered() && !w.worked() && !w.controllers() {
			break
		}
	}
	w.t.Fatalf("it never comes to %q:\n%s", call, strings.Join(w.diary, "\n"))
}

// TestRandomStories interleaves users, the watch, the PV controller and crashes at random. The world itself reports
// forbidden states; this test checks the final state.
func TestRandomStories(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", *seed)
	stories := 300
	if testing.Short() {
		stories = 50
	}
	for story := range stories {
		w := newWorld(t)
		r := rand.New(rand.NewPCG(*seed, uint64(story)))
		names := []string{"a", "b", "c"}
		for _, name := range names {
			w.provision(name)
		}
		retained := map[string]bool{}
		for range 60 + r.IntN(200) {
			w.randomStep(r, names[r.IntN(len(names))], retained)
		}
		w.stuck = map[string]string{}
		w.settle()
		for _, name := range names {
			w.expectEnd(name, retained[name])
		}
		if t.Failed() {
			t.Fatalf("story %d:\n%s", story, strings.Join(w.diary, "\n"))
		}
	}
}

func (w *world) randomStep(r *rand.Rand, name string, retained map[string]bool) {
	pv := w.pvs[name]
	switch what := r.IntN(30); {
	case what < 9:
		w.delivered()
	case what < 18:
		w.worked()
	case what < 24:
		if names := w.names(); len(names) > 0 {
			w.controller(names[r.IntN(len(names))])
		}
	case what == 24 && pv != nil && slices.Contains(pv.Finalizers, intree.Finalizer):
		w.note("user deletes PV %s", name)
		w.deletePVBy(name)
	case what == 25:
		w.note("user deletes the claim of %s", name)
		delete(w.claims, "claim-"+name)
	case what == 26 && w.claims["claim-"+name] == claimObject{}:
		w.claims["claim-"+name] = claimObject{uid: "newer"}
	case what == 27 && pv != nil && r.IntN(4) == 0:
		w.note("user turns %s to Retain", name)
		retained[name] = true
		w.edit(name, setPolicy(v1.PersistentVolumeReclaimRetain))
	case what == 28 && !w.dead:
		w.note("crash")
		w.start()
	case what == 29 && r.IntN(3) == 0:
		w.stuck["/disks/"+name] = "busy"
	default:
		w.pass(time.Second)
		if r.IntN(3) == 0 {
			delete(w.stuck, "/disks/"+name)
		}
	}
}

// expectEnd reports an error if a story about a PV did not reach its final state.
func (w *world) expectEnd(name string, retained bool) {
	w.t.Helper()
	claim := w.claims["claim-"+name]
	pv, there := w.pvs[name]
	disk := w.disks["/disks/"+name]
	switch {
	case claim.volume == name && !disk:
		w.t.Errorf("the disk of %s is gone, and its claim lives", name)
	case claim.volume == name && !there:
		w.t.Errorf("PV %s is gone, and its claim lives", name)
	case claim.volume != name && !retained && (disk || there):
		w.t.Errorf("%s: disk %v, PV %v, and both are to be gone", name, disk, there)
	case claim.volume != name && retained && there && pv.DeletionTimestamp != nil:
		w.t.Errorf("PV %s hangs", name)
	}
	for _, left := range w.names() {
		if w.pvs[left].Labels[volume.TwinLabel] != "" {
			w.t.Errorf("a twin is left: %s", left)
		}
	}
}
