package podsafety

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// release makes a release on a clock on which waiting takes no time.
func (w *world) release() (Released, error) {
	w.cfg.Clock = kubetest.EagerClock{FakeClock: w.clock}
	return w.Release(w.Context())
}

func TestReleaseRemovesAll(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true, NodeCondition: true})
	w.live["ns/db"] = held(marked)
	w.live["ns/gone"] = held(terminating, func(o *v1.Pod) { o.Name, o.UID = "gone", "2" })
	w.live["ns/other"] = held(unheld, func(o *v1.Pod) { o.Name = "other" })
	w.locked["a"] = volumeLock{node: "a", object: "lock-of-a", volumes: map[string]holder{"pv-data": {}}}
	w.kept["db-data"] = claimOfPod(heldClaim)
	w.kept["other"] = claimOfPod(func(o *v1.PersistentVolumeClaim) { o.Name, o.Finalizers = "other", []string{"other"} })
	out, err := w.release()
	if err != nil || out.Pods != 2 || out.Claims != 1 || out.Locks != 1 || out.Conditions != 1 || len(out.Left) != 0 ||
		!slices.Equal(out.Unproven, []string{"ns/gone on node a"}) {
		t.Errorf("%+v, %v", out, err)
	}
	if len(w.live) != 2 || len(w.locked) != 0 || w.live["ns/db"].Finalizers != nil || isMarked(w.live["ns/db"]) {
		t.Errorf("left: %v, %v", w.live, w.locked)
	}
	if w.kept["db-data"].Finalizers != nil || len(w.kept["other"].Finalizers) != 1 {
		t.Errorf("claims: %v", w.kept)
	}
}

// TestReleaseRemovesLocksOfEarlierProcess expects a release without VolumeLocks to remove them all the same. An API
// server without the kind has none.
func TestReleaseRemovesLocksOfEarlierProcess(t *testing.T) {
	noKind := apierrors.NewGenericServerResponse(http.StatusNotFound, "list",
		schema.GroupResource{Group: lockGroup, Resource: lockResource}, "", "404 page not found", 0, true)
	for sentence, c := range map[string]struct {
		locks bool
		err   error
		gone  int
		fails bool
	}{
		"without locks":            {false, nil, 1, false},
		"without the kind":         {false, noKind, 0, false},
		"the kind is missing":      {true, noKind, 0, true},
		"no answer, without locks": {false, errNoAnswer, 0, true},
	} {
		w := newWorld(t, Config{VolumeLocks: c.locks})
		w.locked["a"] = volumeLock{node: "a", object: "lock-of-a", volumes: map[string]holder{"pv-data": {}}}
		w.fail["list locks"] = c.err
		if out, err := w.release(); out.Locks != c.gone || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", sentence, out, err)
		}
	}
}

// TestReleaseRemovesConditionsOfEarlierProcess expects a release without NodeCondition to remove them all the same.
func TestReleaseRemovesConditionsOfEarlierProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.live["ns/db"] = held(marked, unheld)
	if out, err := w.release(); err != nil || out.Conditions != 1 || isMarked(w.live["ns/db"]) {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestFailedReleaseNamesPod(t *testing.T) {
	for cause, want := range map[error]error{kube.ErrUndone: kube.ErrUndone, kube.ErrChanged: ErrRestored} {
		w := newWorld(t, Config{})
		w.live["ns/db"] = held()
		w.fail[removed] = cause
		out, err := w.release()
		if !errors.Is(err, want) || !slices.Equal(out.Left, []string{"ns/db"}) || out.Pods != 0 {
			t.Errorf("%+v, %v", out, err)
		}
	}
}

// restoring is a world in which something adds the finalizer again some seconds after each release, twice.
type restoring struct {
	*world
	pods, claims int
}

func (r *restoring) eachPod(ctx context.Context, ns, node string, visit func(*v1.Pod)) error {
	if r.pods++; r.pods == 4 || r.pods == 8 {
		r.live["ns/db"].Finalizers = []string{objects.RunningFinalizer}
	}
	return r.world.eachPod(ctx, ns, node, visit)
}

func (r *restoring) eachClaim(ctx context.Context, visit func(podsafety.Claim)) error {
	if r.claims++; r.claims == 4 || r.claims == 8 {
		r.kept["db-data"].Finalizers = []string{objects.RunningFinalizer}
	}
	return r.world.eachClaim(ctx, visit)
}

// API servers apply an admission policy for some seconds after its deletion.
func TestReleaseRepeatsUntilNoPassFindsMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.live["ns/db"] = held()
	w.live["ns/last"] = held(unheld, func(o *v1.Pod) { o.Name = "last" })
	w.kept["db-data"] = claimOfPod(heldClaim)
	w.kept["last"] = claimOfPod(func(o *v1.PersistentVolumeClaim) { o.Name = "last" })
	w.cluster = &restoring{world: w}
	out, err := w.release()
	if err != nil || out.Pods != 3 || out.Claims != 3 || w.live["ns/db"].Finalizers != nil ||
		w.kept["db-data"].Finalizers != nil {
		t.Errorf("%+v, %v", out, err)
	}
}

// refusing is a world in which a policy refuses the writes of the first three passes.
type refusing struct {
	*world
	pods, claims int
}

func (r *refusing) eachPod(ctx context.Context, ns, node string, visit func(*v1.Pod)) error {
	if r.pods++; r.pods == 4 {
		delete(r.fail, removed)
	}
	return r.world.eachPod(ctx, ns, node, visit)
}

func (r *refusing) eachClaim(ctx context.Context, visit func(podsafety.Claim)) error {
	if r.claims++; r.claims == 4 {
		delete(r.fail, removedFromClaim)
	}
	return r.world.eachClaim(ctx, visit)
}

func TestReleaseOutlastsPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.live["ns/db"], w.kept["db-data"] = held(), claimOfPod(heldClaim)
	refused := apierrors.NewForbidden(v1.Resource("pods"), "db", nil)
	w.fail[removed], w.fail[removedFromClaim] = refused, refused
	w.cluster = &refusing{world: w}
	out, err := w.release()
	if err != nil || out.Pods != 1 || out.Claims != 1 || len(out.Left) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// Only a write that was carried out counts. An object that is gone is no failure.
func TestReleaseCountsWrites(t *testing.T) {
	t.Parallel()
	for call, prepare := range map[string]func(w *world){
		"condition db remove=true": func(w *world) { w.live["ns/db"] = held(unheld, marked) },
		removedFromClaim:           func(w *world) { w.kept["db-data"] = claimOfPod(heldClaim) },
		"delete lock": func(w *world) {
			w.locked["a"] = volumeLock{node: "a", object: "lock-of-a", volumes: map[string]holder{"pv-data": {}}}
		},
	} {
		for _, cause := range []error{errNoAnswer, kube.ErrGone} {
			w := newWorld(t, Config{VolumeLocks: true})
			prepare(w)
			w.fail[call] = cause
			out, err := w.release()
			if out.Conditions+out.Claims+out.Locks != 0 || errors.Is(err, errNoAnswer) != errors.Is(cause, errNoAnswer) ||
				errors.Is(err, kube.ErrGone) && call != "delete lock" {
				t.Errorf("%s fails with %v: %+v, %v", call, cause, out, err)
			}
		}
	}
}

func TestReleaseNamesPodsThatMayRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	named := func(name string) func(*v1.Pod) { return func(o *v1.Pod) { o.Name = name } }
	for _, o := range []*v1.Pod{held(named("runs")), held(named("deleted"), terminating),
		held(named("ended"), terminating, finished), held(named("unbound"), terminating, func(o *v1.Pod) {
			o.Spec.NodeName = ""
		})} {
		w.live["ns/"+o.Name] = o
	}
	out, err := w.release()
	if err != nil || out.Pods != 4 || !slices.Equal(out.Unproven, []string{"ns/deleted on node a"}) {
		t.Errorf("%+v, %v", out, err)
	}
}
