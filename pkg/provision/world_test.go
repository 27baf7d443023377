package provision

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const driverName = "disk.csi.example.com"

// patience bounds every wait, and is far above all expected durations.
const patience = time.Minute

// world is an API server, a storage system, and the provisioners that work on them one after the other. Other tests
// cover the behaviour of a real API server.
type world struct {
	t      *testing.T
	client *fake.Clientset

	mu      sync.Mutex
	volumes map[string]string // names by id
	records []string
	// fail has functions that answer calls of the driver, by name of the call, as long as they return an error. With late
	// the work is done first.
	fail map[string]func() error
	late bool
	// orders builds the requests of the processes that start.
	orders plainOrders
	// entries has the entries of the in-flight logs, one log for each node, by node and volume. epoch has the epochs of
	// their owners, and refused is the error of a Put, if set.
	entries map[string]inflight.Entry
	epoch   map[string]int64
	refused error
	// settling has the volumes whose entries the operator has settled, which processes learn by reads of the log.
	settling map[string]bool
	// unconfirmed is the error of a Confirm, if set.
	unconfirmed error
	// hidden is the volume whose entry cannot be read, empty for none.
	hidden string
	// unreadable is the problem of a part of the logs that cannot be read, empty for none.
	unreadable string
	// secret is the value in the Secret of all calls.
	secret string
	// secretGone means that the Secret of all calls does not exist. missed counts the failed reads of it.
	secretGone bool
	missed     int
	// secretReads counts the reads of the Secret.
	secretReads int
	// driverVersion is the vendor_version of the driver.
	driverVersion string
	// requests has the different requests that were sent, by their text.
	requests map[string]bool
	// call, if set, is called before each CreateVolume, and fails it with its error.
	call func(volume string) error
	// room, if set, is the driver's GetCapacity on a node.
	room func(node string, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)
	// unknown, if set, is the error of Known, and asked counts its calls.
	unknown error
	asked   int
	// works, if set, is called in each CreateVolume, with the context of the call.
	works func(context.Context) error
	// created, if set, is called between a PV's creation and its answer.
	created func()
	// each is called with every action before it happens, and decides whether the process dies there.
	each func(n int, what string) death
	n    int
	// watches counts the watches that were begun.
	watches atomic.Int64
}

// death is the moment of a process' death, relative to a call.
type death uint8

const (
	goesOn death = iota
	before
	after
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(), volumes: map[string]string{}, entries: map[string]inflight.Entry{},
		epoch: map[string]int64{}, requests: map[string]bool{}, fail: map[string]func() error{}, settling: map[string]bool{}}
	react := k8stesting.ObjectReaction(w.client.Tracker())
	claims := v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	// The fake gives one object to all watchers, and several processes change the objects that they get.
	w.client.PrependWatchReactor("*", func(a k8stesting.Action) (bool, watch.Interface, error) {
		options := metav1.ListOptions{}
		if of, ok := a.(k8stesting.WatchActionImpl); ok {
			options = of.ListOptions
		}
		changes, err := w.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), options)
		w.watches.Add(1)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(changes, func(e watch.Event) (watch.Event, bool) {
			e.Object = e.Object.DeepCopyObject()
			return e, true
		}), nil
	})
	// The fake supports neither finalizers of deleted claims nor resourceVersions of updates.
	var versions atomic.Int64
	versions.Store(1) // the first version of claims
	w.client.PrependReactor("delete", "persistentvolumeclaims", func(a k8stesting.Action) (bool, runtime.Object, error) {
		d, _ := a.(k8stesting.DeleteAction)
		object, err := w.client.Tracker().Get(claims, a.GetNamespace(), d.GetName())
		claim, ok := object.(*v1.PersistentVolumeClaim)
		if err != nil || !ok || len(claim.Finalizers) == 0 {
			return false, nil, nil //nolint:nilerr // the fake itself answers NotFound
		}
		claim = claim.DeepCopy()
		now := metav1.Now()
		claim.DeletionTimestamp = &now
		claim.ResourceVersion = strconv.Itoa(int(versions.Add(1)))
		return true, claim, w.client.Tracker().Update(claims, claim, a.GetNamespace())
	})
	w.client.PrependReactor("patch", "persistentvolumeclaims", func(a k8stesting.Action) (bool, runtime.Object, error) {
		handled, object, err := react(a)
		claim, ok := object.(*v1.PersistentVolumeClaim)
		if !ok || err != nil {
			return handled, object, err
		}
		if claim.DeletionTimestamp != nil && len(claim.Finalizers) == 0 {
			return true, claim, w.client.Tracker().Delete(claims, a.GetNamespace(), claim.Name)
		}
		claim = claim.DeepCopy()
		claim.ResourceVersion = strconv.Itoa(int(versions.Add(1)))
		return true, claim, w.client.Tracker().Update(claims, claim, a.GetNamespace())
	})
	w.client.PrependReactor("update", "persistentvolumeclaims", func(a k8stesting.Action) (bool, runtime.Object, error) {
		update, _ := a.(k8stesting.UpdateAction)
		claim, ok := update.GetObject().(*v1.PersistentVolumeClaim)
		if !ok {
			return false, nil, nil
		}
		// The fake runs one reaction at a time, until the end of the write.
		now, err := w.client.Tracker().Get(claims, a.GetNamespace(), claim.Name)
		if stored, found := now.(*v1.PersistentVolumeClaim); err == nil && found && claim.ResourceVersion != "" &&
			claim.ResourceVersion != stored.ResourceVersion {
			return true, nil, apierrors.NewConflict(claims.GroupResource(), claim.Name, errors.New("it changed"))
		}
		claim.ResourceVersion = strconv.Itoa(int(versions.Add(1)))
		return false, nil, nil
	})
	w.client.PrependReactor("create", "selfsubjectaccessreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
		}, nil
	})
	w.makeClass()
	return w
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) makeClass(change ...func(*storagev1.StorageClass)) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: driverName}
	for _, c := range change {
		c(class)
	}
	_, err := w.client.StorageV1().StorageClasses().Create(w.t.Context(), class, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) replaceClass(change func(*storagev1.StorageClass)) {
	w.deleteClass()
	w.makeClass(change)
}

func (w *world) deleteClass() {
	w.must(w.client.StorageV1().StorageClasses().Delete(w.t.Context(), "fast", metav1.DeleteOptions{}))
}

func (w *world) makeClaim(change ...func(*v1.PersistentVolumeClaim)) {
	class := "fast"
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1", ResourceVersion: "1",
			CreationTimestamp: metav1.Now(), Annotations: map[string]string{volume.AnnProvisioner: driverName}},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
	for _, c := range change {
		c(claim)
	}
	_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Create(w.t.Context(), claim, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) deleteClaim() { w.deleteNamed("data") }

func (w *world) deleteNamed(claim string) {
	w.t.Helper()
	w.must(w.client.CoreV1().PersistentVolumeClaims("ns").Delete(context.Background(), claim, metav1.DeleteOptions{}))
}

// named gives a claim another name and UID.
func named(name string, uid types.UID) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = name, uid }
}

// selecting selects a node for a claim.
func selecting(node string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, node)
	}
}

// cloning makes the claim "source" the source of a claim's data.
func cloning(c *v1.PersistentVolumeClaim) {
	c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
}

func (w *world) sourceGone() bool { return w.claimNamed("source") == nil }

func (w *world) makeNodes(names ...string) {
	w.t.Helper()
	for _, name := range names {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := w.client.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{})
		w.must(err)
	}
}

func (w *world) deletePV() {
	w.t.Helper()
	w.must(w.client.CoreV1().PersistentVolumes().Delete(w.t.Context(), "pvc-u1", metav1.DeleteOptions{}))
}

func (w *world) claim() *v1.PersistentVolumeClaim { return w.claimNamed("data") }

// claimNamed returns the claim of this name, nil if there is none.
func (w *world) claimNamed(name string) *v1.PersistentVolumeClaim {
	claim, err := w.client.CoreV1().PersistentVolumeClaims("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
}

func (w *world) pv() *v1.PersistentVolume { return w.pvNamed("pvc-u1") }

// pvNamed returns the PV of this name, nil if there is none.
func (w *world) pvNamed(name string) *v1.PersistentVolume {
	pv, err := w.client.CoreV1().PersistentVolumes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return pv
}

// makePV creates a PV of a driver's volume for a claim.
func (w *world) makePV(name, driver, handle string, claim volume.ClaimRef, change ...func(*v1.PersistentVolume)) {
	w.t.Helper()
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		ClaimRef: &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}}}
	for _, c := range change {
		c(pv)
	}
	_, err := w.client.CoreV1().PersistentVolumes().Create(w.t.Context(), pv, metav1.CreateOptions{})
	w.must(err)
}

// set changes the world while processes run.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// inFlight returns the names of the volumes in the log.
func (w *world) inFlight() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.entries))
}

// inEntry returns the requests in the entry of the claim's volume.
func (w *world) inEntry() []inflight.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries["pvc-u1"].Requests
}

// install replaces the driver by another version.
func (w *world) install(version string) { w.set(func() { w.driverVersion = version }) }

// missedSecrets counts the failed reads of the Secret.
func (w *world) missedSecrets() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missed
}

// settled reports whether the logs are empty.
func (w *world) settled() bool { return len(w.inFlight()) == 0 }

// knownVolumes reports whether every volume has a PersistentVolume.
func (w *world) knownVolumes() bool {
	pvs, err := w.client.CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
	w.must(err)
	var handles []string
	for _, pv := range pvs.Items {
		handles = append(handles, pv.Spec.CSI.VolumeHandle)
	}
	return !slices.ContainsFunc(w.onDisk(), func(id string) bool { return !slices.Contains(handles, id) })
}

func (w *world) update(change func(*v1.PersistentVolumeClaim)) {
	w.t.Helper()
	claim := w.claim().DeepCopy()
	change(claim)
	_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Update(w.t.Context(), claim, metav1.UpdateOptions{})
	w.must(err)
}

func (w *world) wait(what string, reached func() bool) {
	w.t.Helper()
	ctx := w.ctx()
	for !reached() {
		select {
		case <-ctx.Done():
			w.t.Fatalf("wait until %s: claim %+v, PV %v, volumes %v, in flight %v, records %q", what, w.claim(),
				w.pv() != nil, w.onDisk(), w.inFlight(), w.recorded())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (w *world) onDisk() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.volumes))
}

func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records)
}

func (w *world) count(what string) int {
	n := 0
	for _, did := range w.recorded() {
		if did == what {
			n++
		}
	}
	return n
}

// settle settles the claim's volume, as "kubectl reclaim settle" does.
func (w *world) settle() { w.set(func() { w.settling["pvc-u1"] = true }) }

// failing makes CreateVolume fail, with late after its work; nil ends that.
func (w *world) failing(late bool, err func() error) {
	w.set(func() { w.fail["create volume"], w.late = err, late })
}
