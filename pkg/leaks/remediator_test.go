package leaks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

// errStopped ends a run in the middle of a write.
var errStopped = errors.New("stopped")

// ward is an API server with PVs, a PV controller, and a sidecar that deletes the volumes of released PVs at once,
// all in memory. It can fail one write by number.
type ward struct {
	corev1.PersistentVolumeInterface // unused methods panic
	*testing.T
	pvs     map[string]*v1.PersistentVolume
	inline  inlineAttachments
	volumes map[string]bool
	calls   []string
	version int

	// writes counts the writes. Number stopAt ends the run, after the write was stored if lost is set.
	writes, stopAt int
	lost           bool
	// away: the PV controller does not run.
	away bool
	// beforeWrite receives the number of each write before it is applied.
	beforeWrite func(number int)
}

func newWard(t *testing.T) *ward {
	w := &ward{T: t, pvs: map[string]*v1.PersistentVolume{}, volumes: map[string]bool{"leak": true, "kept": true}}
	w.put("pvc-kept", "kept")
	return w
}

// put stores a PV with policy Retain for a volume.
func (w *ward) put(name, handle string) {
	pv := pvOf(name, handle)
	pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
	w.store(pv)
}

func (w *ward) store(pv *v1.PersistentVolume) {
	w.version++
	pv.ResourceVersion = strconv.Itoa(w.version)
	w.pvs[pv.Name] = pv
	w.controllers(pv)
}

// controllers plays the PV controller and the sidecar, without any delay.
func (w *ward) controllers(pv *v1.PersistentVolume) {
	if claim := pv.Spec.ClaimRef; claim == nil || claim.UID == "" || w.away {
		return
	}
	if pv.Status.Phase == "" {
		pv.Status.Phase = v1.VolumeReleased
		w.version++
		pv.ResourceVersion = strconv.Itoa(w.version)
	}
	if pv.Status.Phase == v1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete {
		handle := pv.Spec.CSI.VolumeHandle
		w.calls = append(w.calls, handle)
		delete(w.volumes, handle)
		delete(w.pvs, pv.Name)
	}
}

// write applies a write, or ends the run before or after it.
func (w *ward) write(do func() (*v1.PersistentVolume, error)) (*v1.PersistentVolume, error) {
	w.writes++
	if w.beforeWrite != nil {
		w.beforeWrite(w.writes)
	}
	if w.writes != w.stopAt {
		return do()
	}
	if w.lost {
		_, _ = do()
	}
	return nil, errStopped
}

func (w *ward) List(context.Context, metav1.ListOptions) (*v1.PersistentVolumeList, error) {
	list := &v1.PersistentVolumeList{}
	for _, name := range slices.Sorted(maps.Keys(w.pvs)) {
		list.Items = append(list.Items, *w.pvs[name].DeepCopy())
	}
	return list, nil
}

func (w *ward) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.PersistentVolume, error) {
	if pv, found := w.pvs[name]; found {
		return pv.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
}

func (w *ward) Create(_ context.Context, pv *v1.PersistentVolume, _ metav1.CreateOptions) (*v1.PersistentVolume,
	error) {
	return w.write(func() (*v1.PersistentVolume, error) {
		if _, found := w.pvs[pv.Name]; found {
			return nil, apierrors.NewAlreadyExists(v1.Resource("persistentvolumes"), pv.Name)
		}
		made := pv.DeepCopy()
		made.UID = types.UID(fmt.Sprint("uid-", w.writes))
		stored := made.DeepCopy()
		w.store(made)
		return stored, nil
	})
}

func (w *ward) Patch(_ context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions,
	_ ...string) (*v1.PersistentVolume, error) {
	var patch v1.PersistentVolume
	if err := json.Unmarshal(body, &patch); err != nil {
		w.Fatal(err)
	}
	return w.write(func() (*v1.PersistentVolume, error) {
		pv, found := w.pvs[name]
		switch {
		case !found:
			return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
		case patch.UID != pv.UID || patch.ResourceVersion != pv.ResourceVersion:
			return nil, apierrors.NewConflict(v1.Resource("persistentvolumes"), name, errors.New("it has changed"))
		}
		pv.Spec.PersistentVolumeReclaimPolicy = patch.Spec.PersistentVolumeReclaimPolicy
		stored := pv.DeepCopy()
		w.store(pv)
		return stored, nil
	})
}

// inlineAttachments are VolumeAttachments: those of PVs, and the handles of in-tree volumes that others name inline. An
// unreadable list is one with the handle "forbidden".
type inlineAttachments struct {
	storageclient.VolumeAttachmentInterface // unused methods panic
	handles, pvs                            []string
}

func (a inlineAttachments) List(context.Context, metav1.ListOptions) (*storagev1.VolumeAttachmentList, error) {
	list := &storagev1.VolumeAttachmentList{}
	for _, handle := range a.handles {
		if handle == "forbidden" {
			return nil, apierrors.NewForbidden(storagev1.Resource("volumeattachments"), "", nil)
		}
		list.Items = append(list.Items, *inline(driverName, handle)[0])
	}
	for _, pv := range a.pvs {
		of, driver, _ := strings.Cut(pv, " of ")
		list.Items = append(list.Items, storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "of-" + of},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: cmp.Or(driver, driverName),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &of}}})
	}
	return list, nil
}

// hurried is a clock whose waits end at once.
type hurried struct{ *testclock.FakeClock }

func (c hurried) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

func (w *ward) mender() *Remediator {
	return &Remediator{pvs: w, attachments: w.inline, clock: hurried{testclock.NewFakeClock(noon)}}
}

// carry runs the remediation of the leak with this report.
func (w *ward) carry(ctx context.Context, r Report, to Remediation) (*v1.PersistentVolume, error) {
	return w.mender().Carry(ctx, r, to, w.pv(to))
}

func (w *ward) pv(to Remediation) *v1.PersistentVolume {
	w.Helper()
	v := Found{Handle: "leak", Bytes: 1}
	if to == Reclaim {
		return ReclaimPV(driverName, v, PVOptions{})
	}
	pv, err := AdoptPV(driverName, v, PVOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return pv
}

// suspecting returns a report that suspects the leak. Once a PV accounts for the volume, nothingSuspected follows.
func suspecting() Report {
	return Report{Driver: driverName, Completed: noon.Add(-time.Minute), Volumes: []Found{{Handle: "leak",
		Suspected: true}}}
}

func nothingSuspected() Report { return Report{Driver: driverName, Completed: noon} }

// TestCarryAfterInterruptedWrite ends the first run at each of its writes, before or after it is stored, and once at
// none. A second run uses the report of that moment.
func TestCarryAfterInterruptedWrite(t *testing.T) {
	for to, writes := range map[Remediation]int{Adopt: 1, Reclaim: 2} {
		for stopAt := 1; stopAt <= writes+1; stopAt++ {
			for _, lost := range []bool{false, true} {
				w := newWard(t)
				w.stopAt, w.lost = stopAt, lost
				at := fmt.Sprintf("%s, stopped at write %d, stored: %t", to, stopAt, lost)
				_, err := w.carry(t.Context(), suspecting(), to)
				if stopAt > writes {
					if err != nil || w.writes != writes {
						t.Errorf("%s: %v after %d writes", to, err, w.writes)
					}
				} else if !errors.Is(err, errStopped) {
					t.Errorf("%s: %v", at, err)
				}
				turned := to == Reclaim && (stopAt > writes || stopAt == writes && lost)
				if w.volumes["leak"] == turned {
					t.Errorf("%s: its volume is there: %t, turned: %t", at, w.volumes["leak"], turned)
				}
				again := suspecting()
				if len(w.pvs) > 1 || turned {
					again = nothingSuspected() // its own PV accounts for it, or the volume is deleted
				}
				if _, err = w.carry(t.Context(), again, to); turned != errors.Is(err, ErrRefused) || !turned && err != nil {
					t.Errorf("%s: again: %v", at, err)
				}
				w.judge(at, to)
			}
		}
	}
}

// judge checks the final state.
func (w *ward) judge(at string, to Remediation) {
	w.Helper()
	if !w.volumes["kept"] || w.pvs["pvc-kept"] == nil {
		w.Errorf("%s: WRONG DELETE: %q", at, w.calls)
	}
	made := w.pvs[w.pv(to).Name]
	switch {
	case to == Reclaim && (!slices.Equal(w.calls, []string{"leak"}) || made != nil):
		w.Errorf("%s: deleted: %q, PV %v", at, w.calls, made)
	case to == Adopt && (len(w.calls) > 0 || !w.volumes["leak"] || made == nil ||
		made.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain):
		w.Errorf("%s: WRONG DELETE: %q, PV %v", at, w.calls, made)
	}
}

// The changes come after the creation of the PV and before its policy is set.
func TestCarryAfterChangesBeforePolicyPatch(t *testing.T) {
	own := newWard(t).pv(Reclaim).Name
	for sentence, change := range map[string]func(*ward){
		"another PV names the volume": func(w *ward) { w.put("taken", "LEAK") },
		"deleted meanwhile":           func(w *ward) { delete(w.pvs, own) },
		"it is being deleted":         func(w *ward) { w.pvs[own].DeletionTimestamp = &metav1.Time{Time: noon} },
		"freed for a claim":           func(w *ward) { w.pvs[own].Spec.ClaimRef = nil },
		"a claim is to have it": func(w *ward) {
			w.pvs[own].Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "data", UID: "u"}
		},
		"its name is used for something":   func(w *ward) { w.pvs[own].Annotations = nil },
		"the PV controller finds it bound": func(w *ward) { w.pvs[own].Status.Phase = v1.VolumeBound },
		"its policy is one for old clusters": func(w *ward) {
			w.pvs[own].Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRecycle
		},
	} {
		between := newWard(t)
		between.stopAt = 2
		if _, err := between.carry(t.Context(), suspecting(), Reclaim); !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		change(between)
		_, err := between.carry(t.Context(), nothingSuspected(), Reclaim)
		between.expectRefused("between two runs "+sentence, err)

		// A change just before the policy is set makes its resourceVersion outdated; the next read sees the change.
		within := newWard(t)
		within.beforeWrite = func(number int) {
			if number != 2 {
				return
			}
			change(within)
			if pv := within.pvs[own]; pv != nil {
				pv.ResourceVersion = "another"
			}
		}
		if _, err = within.carry(t.Context(), suspecting(), Reclaim); sentence == "deleted meanwhile" &&
			apierrors.IsNotFound(err) {
			err = ErrRefused
		}
		within.expectRefused("before the turn "+sentence, err)
	}
}

// A pod may name the volume inline after the report was made.
func TestInlineAttachmentRefusesRemediation(t *testing.T) {
	for handle, refused := range map[string]bool{"LEAK": true, "another": false, "forbidden": true} {
		for _, to := range []Remediation{Adopt, Reclaim} {
			w := newWard(t)
			w.inline.handles = []string{handle}
			_, err := w.carry(t.Context(), suspecting(), to)
			switch {
			case !refused && err != nil, refused && (err == nil || w.writes > 0 || !w.volumes["leak"]):
				t.Errorf("%s, an attachment of %s: %v after %d writes", to, handle, err, w.writes)
			case handle == "LEAK" && !errors.Is(err, ErrRefused):
				t.Errorf("%s: %v", to, err)
			}
		}
	}
}

// A person may have removed the finalizers of a PV whose pod runs. Its volume is then a suspect, and attached.
func TestAttachmentOfMissingPVRefusesReclaim(t *testing.T) {
	for pv, refused := range map[string]bool{"pvc-gone": true, "pvc-kept": false, "pvc-gone of another": false} {
		for _, to := range []Remediation{Adopt, Reclaim} {
			w := newWard(t)
			w.inline.pvs = []string{pv}
			_, err := w.carry(t.Context(), suspecting(), to)
			switch {
			case to == Reclaim && refused:
				w.expectRefused(pv, err)
				if !strings.Contains(err.Error(), "volumeattachment/of-pvc-gone") {
					t.Errorf("%s: %v", pv, err)
				}
			case err != nil:
				t.Errorf("%s, an attachment of %s: %v", to, pv, err)
			}
		}
	}
}

func (w *ward) expectRefused(sentence string, err error) {
	w.Helper()
	if !errors.Is(err, ErrRefused) || len(w.calls) > 0 || !w.volumes["leak"] || !w.volumes["kept"] {
		w.Errorf("%s: %v; deleted: %q", sentence, err, w.calls)
	}
}

// The PV is deleted during the wait for the PV controller.
func TestWithdrawnRemediation(t *testing.T) {
	w := newWard(t)
	w.away = true
	pv, m := w.pv(Reclaim), w.mender()
	m.clock = stirred{hurried{testclock.NewFakeClock(noon)}, func() { delete(w.pvs, pv.Name) }}
	_, err := m.Carry(t.Context(), suspecting(), Reclaim, pv)
	w.expectRefused("its PV is deleted", err)
	if w.writes != 1 {
		t.Errorf("%d writes", w.writes)
	}
}

func TestConcurrentCarryCreatesOnePV(t *testing.T) {
	w := newWard(t)
	w.beforeWrite = func(int) {
		pv := w.pv(Adopt)
		pv.UID = "of the other run"
		w.store(pv)
	}
	if pv, err := w.carry(t.Context(), suspecting(), Adopt); err != nil || pv.UID != "of the other run" {
		t.Errorf("%v, %v", pv, err)
	}
	w.judge("two runs at once", Adopt)
}

// stirred calls during in each wait.
type stirred struct {
	hurried
	during func()
}

func (c stirred) NewTimer(d time.Duration) clock.Timer {
	c.during()
	return c.hurried.NewTimer(d)
}

func TestCarryWaitsForPVController(t *testing.T) {
	w := newWard(t)
	w.away = true
	pv, err := w.carry(t.Context(), suspecting(), Reclaim)
	if !errors.Is(err, ErrNotReleased) || pv == nil || len(w.calls) > 0 || !w.volumes["leak"] {
		t.Fatalf("%v, %v; deleted: %q", pv, err, w.calls)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m := w.mender()
	m.clock = testclock.NewFakeClock(noon) // its waits never end
	if _, err := m.Carry(ended, nothingSuspected(), Reclaim, w.pv(Reclaim)); !errors.Is(err, context.Canceled) ||
		!w.volumes["leak"] {
		t.Errorf("interrupted while it waits: %v; deleted: %q", err, w.calls)
	}
	w.away = false
	w.controllers(w.pvs[w.pv(Reclaim).Name])
	if _, err := w.carry(t.Context(), nothingSuspected(), Reclaim); err != nil {
		t.Error(err)
	}
	w.judge("released late", Reclaim)
}
