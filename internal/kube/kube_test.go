//go:build controlplane

package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// These tests need the answers of a real API server, so all of them share one. No controller interferes.
var clients Clients

func TestMain(m *testing.M) {
	os.Exit(apiserver.Main(m, func(context.Context) (err error) {
		clients, err = NewClients(apiserver.Admin())
		return err
	}))
}

const (
	ours   = "external-provisioner.volume.kubernetes.io/finalizer"
	theirs = "example.com/theirs"
)

// newPV creates a PV with these finalizers, and removes it at the end of the test.
func newPV(t *testing.T, finalizers ...string) *v1.PersistentVolume {
	t.Helper()
	pv, err := clients.Core.PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + rand.String(8), Finalizers: finalizers},
		Spec: v1.PersistentVolumeSpec{
			Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "vol"},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		pvs := clients.Core.PersistentVolumes()
		_, err := pvs.Patch(ctx, pv.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		if err == nil {
			err = pvs.Delete(ctx, pv.Name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("sweep %s: %v", pv.Name, err)
		}
	})
	return pv
}

// terminating deletes a PV that a finalizer holds, and returns the resulting PV.
func terminating(t *testing.T, pv *v1.PersistentVolume) *v1.PersistentVolume {
	t.Helper()
	pvs := clients.Core.PersistentVolumes()
	must.OK(t, pvs.Delete(t.Context(), pv.Name, metav1.DeleteOptions{}))
	pv, err := pvs.Get(t.Context(), pv.Name, metav1.GetOptions{})
	if err != nil || pv.DeletionTimestamp == nil {
		t.Fatalf("the PV is not terminating: %v", err)
	}
	return pv
}

func TestPatchFinalizers(t *testing.T) {
	// StorageObjectInUseProtection adds its own finalizer to every new PV.
	const protection = "kubernetes.io/pv-protection"
	cases := map[string]struct {
		on    []string
		alter func(*testing.T, *FinalizerPatch, *v1.PersistentVolume)
		patch FinalizerPatch
		want  error
		after []string
	}{
		"adds one, leaves the others": {on: []string{theirs}, patch: FinalizerPatch{Add: []string{ours}},
			after: []string{protection, theirs, ours}},
		"adding a present finalizer changes nothing": {on: []string{ours}, patch: FinalizerPatch{Add: []string{ours}},
			after: []string{protection, ours}},
		"drops one, leaves the others": {on: []string{ours, theirs}, patch: FinalizerPatch{Remove: []string{ours}},
			after: []string{protection, theirs}},
		"drops several": {on: []string{ours, theirs}, patch: FinalizerPatch{Remove: []string{theirs, ours}},
			after: []string{protection}},
		"dropping an absent finalizer changes nothing": {on: []string{theirs}, patch: FinalizerPatch{Remove: []string{ours}},
			after: []string{protection, theirs}},
		"another UID: gone": {on: []string{theirs}, patch: FinalizerPatch{Add: []string{ours}}, want: ErrGone,
			alter: func(_ *testing.T, p *FinalizerPatch, _ *v1.PersistentVolume) { p.UID = "another" }},
		"no such PV: gone": {patch: FinalizerPatch{Remove: []string{ours}}, want: ErrGone,
			alter: func(_ *testing.T, p *FinalizerPatch, _ *v1.PersistentVolume) { p.Name = "no-such-pv" }},
		"the resourceVersion it was read at: done": {on: []string{ours}, patch: FinalizerPatch{Remove: []string{ours}},
			alter: func(_ *testing.T, p *FinalizerPatch, pv *v1.PersistentVolume) { p.ResourceVersion = pv.ResourceVersion },
			after: []string{protection}},
		"an older resourceVersion: changed": {on: []string{ours}, patch: FinalizerPatch{Remove: []string{ours}},
			want: ErrChanged,
			alter: func(t *testing.T, p *FinalizerPatch, pv *v1.PersistentVolume) {
				p.ResourceVersion = pv.ResourceVersion
				if _, err := PatchFinalizers(t.Context(), clients.Core.PersistentVolumes(),
					FinalizerPatch{Name: pv.Name, UID: pv.UID, Add: []string{theirs}}); err != nil {
					t.Fatal(err)
				}
			}},
		"adding to a PV that is terminating: changed": {on: []string{theirs}, patch: FinalizerPatch{Add: []string{ours}},
			want:  ErrChanged,
			alter: func(t *testing.T, _ *FinalizerPatch, pv *v1.PersistentVolume) { terminating(t, pv) }},
		"dropping from a PV that is terminating": {on: []string{ours, theirs}, patch: FinalizerPatch{Remove: []string{ours}},
			alter: func(t *testing.T, _ *FinalizerPatch, pv *v1.PersistentVolume) { terminating(t, pv) },
			after: []string{protection, theirs}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pv := newPV(t, c.on...)
			c.patch.Name, c.patch.UID = pv.Name, pv.UID
			if c.alter != nil {
				c.alter(t, &c.patch, pv)
			}
			after, err := PatchFinalizers(t.Context(), clients.Core.PersistentVolumes(), c.patch)
			if c.want != nil {
				if !errors.Is(err, c.want) {
					t.Fatalf("PatchFinalizers = %v, want %v", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(after.Finalizers)
			slices.Sort(c.after)
			if !slices.Equal(after.Finalizers, c.after) {
				t.Errorf("finalizers %v, want %v", after.Finalizers, c.after)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	pvs := clients.Core.PersistentVolumes()
	pv := newPV(t, ours)
	if err := Delete(t.Context(), "PV", pvs, pv.Name, "another", ""); !errors.Is(err, ErrChanged) {
		t.Errorf("Delete with another UID = %v, want ErrChanged", err)
	}
	if err := Delete(t.Context(), "PV", pvs, pv.Name, pv.UID, "1"); !errors.Is(err, ErrChanged) {
		t.Errorf("Delete with another resourceVersion = %v, want ErrChanged", err)
	}
	if err := Delete(t.Context(), "PV", pvs, pv.Name, pv.UID, pv.ResourceVersion); err != nil {
		t.Error(err)
	}
	if err := Delete(t.Context(), "PV", pvs, pv.Name, pv.UID, ""); err != nil {
		t.Errorf("Delete of one that is terminating = %v", err)
	}
	if err := Delete(t.Context(), "PV", pvs, "no-such-pv", pv.UID, ""); !errors.Is(err, ErrGone) {
		t.Errorf("Delete of none = %v, want ErrGone", err)
	}
}

func TestPatchPolicy(t *testing.T) {
	pvs := clients.Core.PersistentVolumes()
	pv := newPV(t)
	p := PolicyPatch{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
		Policy: v1.PersistentVolumeReclaimDelete, FieldManager: "somebody"}
	after, err := PatchPolicy(t.Context(), pvs, p)
	if err != nil || after.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
		t.Fatalf("PatchPolicy = %v, %v", after, err)
	}
	if !slices.ContainsFunc(after.ManagedFields,
		func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "somebody" }) {
		t.Errorf("the API server notes other field managers: %v", after.ManagedFields)
	}
	if _, err := PatchPolicy(t.Context(), pvs, p); !errors.Is(err, ErrChanged) {
		t.Errorf("PatchPolicy of one that changed = %v, want ErrChanged", err)
	}
	p.ResourceVersion, p.UID = after.ResourceVersion, "another"
	if _, err := PatchPolicy(t.Context(), pvs, p); !errors.Is(err, ErrGone) && !errors.Is(err, ErrChanged) {
		t.Errorf("PatchPolicy with another UID = %v, want ErrGone or ErrChanged", err)
	}
	p.Name, p.UID = "no-such-pv", pv.UID
	if _, err := PatchPolicy(t.Context(), pvs, p); !errors.Is(err, ErrGone) {
		t.Errorf("PatchPolicy of none = %v, want ErrGone", err)
	}
	p.ResourceVersion = ""
	if _, err := PatchPolicy(t.Context(), pvs, p); err == nil {
		t.Error("PatchPolicy goes without a resourceVersion")
	}
}

// patience bounds each wait, far above the time needed on a busy machine.
const patience = 2 * time.Minute

// slim is a record with the fields that a test reads.
type slim struct {
	Name string
	UID  types.UID
}

// journal is a Handler that records its calls.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) write(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

func (j *journal) Added(now *slim)         { j.write("added %s", now.Name) }
func (j *journal) Updated(_, now *slim)    { j.write("updated %s", now.Name) }
func (j *journal) Deleted(l *slim, f bool) { j.write("deleted %s, final %v", l.Name, f) }

func (j *journal) await(t *testing.T, entry string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		j.mu.Lock()
		found := slices.Contains(j.entries, entry)
		j.mu.Unlock()
		if found {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no entry %q in %q", entry, j.entries)
		}
	}
}

func TestCache(t *testing.T) {
	there := newPV(t)
	reported := &journal{}
	cache := NewCache(clients.Core.RESTClient(), "persistentvolumes", &v1.PersistentVolume{},
		func(o runtime.Object, _ bool) (*slim, bool, error) {
			pv, ok := o.(*v1.PersistentVolume)
			if !ok {
				return nil, false, fmt.Errorf("got a %T", o)
			}
			return &slim{Name: pv.Name, UID: pv.UID}, pv.Spec.CSI != nil && pv.Spec.CSI.Driver != "other", nil
		}, reported)
	if cache.Synced() {
		t.Error("synced before it runs")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); cache.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })

	<-cache.Sync().Done()
	reported.await(t, "added "+there.Name)
	if r, found := cache.Get(there.Name); !found || r.UID != there.UID {
		t.Errorf("Get = %v, %v", r, found)
	}
	if _, found := cache.Get("no-such-pv"); found {
		t.Error("found what is not there")
	}

	later := newPV(t, ours)
	reported.await(t, "added "+later.Name)
	// The cache reports the version once its handler has returned.
	for deadline := time.Now().Add(patience); !cache.Reached(later.ResourceVersion); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("has shown version %s and does not say so", later.ResourceVersion)
		}
	}
	for _, never := range []string{"", "not-a-version", "99999999999999"} {
		if cache.Reached(never) {
			t.Errorf("claims to have seen version %q", never)
		}
	}
	if _, err := PatchFinalizers(t.Context(), clients.Core.PersistentVolumes(),
		FinalizerPatch{Name: later.Name, UID: later.UID, Add: []string{theirs}}); err != nil {
		t.Fatal(err)
	}
	reported.await(t, "updated "+later.Name)
	terminating(t, later)
	_, err := clients.Core.PersistentVolumes().Patch(t.Context(), later.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reported.await(t, "deleted "+later.Name+", final true")
	if _, found := cache.Get(later.Name); found {
		t.Error("still shows a PV that is gone")
	}
}
