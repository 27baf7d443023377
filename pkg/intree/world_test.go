package intree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

const (
	// maxName is the longest name of a PV (a DNS subdomain, RFC 1123).
	maxName        = 253
	inUseFinalizer = "kubernetes.io/pv-protection"
	kcm            = "kube-controller-manager"
)

// world is an API server, the PV controller, pv-protection and the disks of an in-tree plugin, run by the test one step
// at a time. The adapter to the API server has its own test with a real one.
type world struct {
	t     *testing.T
	clock *testclock.FakeClock
	// modern means that the PV controller is from 1.31 or newer and manages the finalizer.
	modern bool

	version int
	uids    int
	pvs     map[string]*v1.PersistentVolume
	claims  map[string]claimObject
	// attached are the PVs that VolumeAttachments name.
	attached []string
	// disks are the existing folders. stuck maps folders that cannot be deleted to the reason.
	disks map[string]bool
	stuck map[string]string

	// events are the watch events, and seen is the number delivered to the controller.
	events []event
	seen   int
	cache  map[string]*intree.PV

	c     *Controller
	queue []string
	later []string

	diary []string
	// writes counts the controller's writes. The controller crashes at write number crashAfter, if that is not 0.
	writes, crashAfter int
	dead               bool
	// before runs before each call of the controller; an error becomes the reply.
	before func(what string) error
}

type event struct {
	pv   *v1.PersistentVolume
	gone bool
}

type claimObject struct {
	uid    types.UID
	volume string
}

var errCrashed = errors.New("the process is gone")

// newWorld returns a world with a claim, a PV and a disk for each of these names.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{
		t: t, clock: testclock.NewFakeClock(now()), pvs: map[string]*v1.PersistentVolume{}, claims: map[string]claimObject{},
		disks: map[string]bool{}, stuck: map[string]string{},
	}
	w.start()
	for _, name := range names {
		w.provision(name)
	}
	return w
}

// pass advances the clock, after which the controller retries the PVs that are due.
func (w *world) pass(d time.Duration) {
	w.clock.Step(d)
	w.queue, w.later = append(w.queue, w.later...), nil
}

// start starts a controller that knows only the state of the API server.
func (w *world) start() { w.startWith(Config{}) }

func (w *world) startWith(cfg Config) {
	w.t.Helper()
	cfg.Clock = w.clock
	c, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.c, w.cache, w.queue, w.later, w.dead = c, map[string]*intree.PV{}, nil, nil, false
	c.cluster = w
	c.observer.pvs = cacheOf{w}
	c.observer.enqueue = func(name string) {
		if !slices.Contains(w.queue, name) {
			w.queue = append(w.queue, name)
		}
	}
	w.seen = len(w.events)
	for _, name := range w.names() {
		w.show(event{pv: w.pvs[name]})
	}
}

// names returns the names of all PVs, sorted.
func (w *world) names() []string {
	var names []string
	for name := range w.pvs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// cacheOf is the controller's cache.
type cacheOf struct{ *world }

func (c cacheOf) Get(name string) (*intree.PV, bool) { pv, found := c.cache[name]; return pv, found }
func (c cacheOf) Each(visit func(*intree.PV)) {
	for _, pv := range c.cache {
		visit(pv)
	}
}
func (c cacheOf) Reached(version string) bool {
	v, err := strconv.Atoi(version)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range c.events[c.seen:] {
		if atoi(e.pv.ResourceVersion) <= v {
			return false
		}
	}
	return true
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// show has the cache handle an event, like its watch.
func (w *world) show(e event) {
	before := w.cache[e.pv.Name]
	record, keep, err := recordPV(e.pv, before != nil)
	if err != nil {
		w.t.Fatal(err)
	}
	follow := handler{w.c.observer}
	switch {
	case e.gone && before != nil:
		delete(w.cache, e.pv.Name)
		follow.Deleted(record, true)
	case e.gone, !keep:
	case before != nil:
		w.cache[e.pv.Name] = record
		follow.Updated(before, record)
	default:
		w.cache[e.pv.Name] = record
		follow.Added(record)
	}
}

// delivered delivers one event, if any is pending.
func (w *world) delivered() bool {
	if w.seen == len(w.events) {
		return false
	}
	w.seen++
	w.show(w.events[w.seen-1])
	return true
}

// worked has the controller work on one queued PV, if any.
func (w *world) worked() bool {
	if len(w.queue) == 0 || w.dead {
		return false
	}
	name := w.queue[0]
	w.queue = w.queue[1:]
	if next := w.c.reconcile(klog.NewContext(w.t.Context(), klog.Logger{}), name); next.Backoff.Max > 0 && !w.dead {
		w.later = append(w.later, name)
	}
	return true
}

// settle runs the world until it rests, and lets time pass when nothing else happens.
func (w *world) settle() {
	w.t.Helper()
	passed := 0
	for turn := 0; passed < 8; turn++ {
		if turn > 5000 {
			w.t.Fatalf("the world does not come to rest; the last it did:\n%s",
				strings.Join(w.diary[max(0, len(w.diary)-40):], "\n"))
		}
		if w.dead {
			w.crashAfter = 0
			w.start()
		}
		if w.delivered() || w.worked() || w.controllers() {
			continue
		}
		passed++
		w.pass(2 * time.Hour)
	}
}

// set stores the new state of a PV, and removes it if it is terminating without finalizers.
func (w *world) set(pv *v1.PersistentVolume) {
	w.version++
	pv.ResourceVersion = strconv.Itoa(w.version)
	gone := pv.DeletionTimestamp != nil && len(pv.Finalizers) == 0
	w.pvs[pv.Name] = pv
	if gone {
		delete(w.pvs, pv.Name)
	}
	w.events = append(w.events, event{pv.DeepCopy(), gone})
}

// edit changes a PV as a user.
func (w *world) edit(name string, change func(*v1.PersistentVolume)) {
	w.t.Helper()
	old, found := w.pvs[name]
	if !found {
		w.t.Fatalf("no PV %q", name)
	}
	pv := old.DeepCopy()
	change(pv)
	w.set(pv)
}

func setPolicy(policy v1.PersistentVolumeReclaimPolicy) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) { pv.Spec.PersistentVolumeReclaimPolicy = policy }
}

// guard adds the finalizer in the name of a field manager, or removes it.
func guard(on bool, manager string) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) {
		has := slices.Contains(pv.Finalizers, intree.Finalizer)
		switch {
		case on && !has:
			pv.Finalizers = append(pv.Finalizers, intree.Finalizer)
			pv.ManagedFields = append(pv.ManagedFields, wrote(manager))
		case !on && has:
			pv.Finalizers = slices.DeleteFunc(pv.Finalizers, func(f string) bool { return f == intree.Finalizer })
			pv.ManagedFields = nil // only writers of the finalizer have an entry
		}
	}
}

// original is a PV that a plugin provisioned.
func original() *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pv", UID: "pv-uid", ResourceVersion: "7", Finalizers: []string{intree.Finalizer},
			Annotations: map[string]string{volume.AnnProvisionedBy: "kubernetes.io/host-path"},
		},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete, StorageClassName: "class",
			ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: "claim", UID: "claim-uid"},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a"}},
		},
	}
}

// wrote is the managedFields entry of a program that added the finalizer.
func wrote(manager string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"` + intree.Finalizer + `\"":{}}}}`)}
}

// provision creates a claim with its PV and disk.
func (w *world) provision(name string) {
	w.uids++
	uid := types.UID("uid-" + strconv.Itoa(w.uids))
	w.claims["claim-"+name] = claimObject{uid: "claim-" + uid, volume: name}
	w.disks["/disks/"+name] = true
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Finalizers: []string{inUseFinalizer},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path", "pv.kubernetes.io/bound-by-controller": "yes"}},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &v1.ObjectReference{Namespace: "ns", Name: "claim-" + name, UID: "claim-" + uid},
			PersistentVolumeSource:        v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/disks/" + name}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	}
	if w.modern {
		guard(true, kcm)(pv)
	}
	w.set(pv)
}

// deletePVBy is a DELETE by any client.
func (w *world) deletePVBy(name string) {
	pv, found := w.pvs[name]
	if !found || pv.DeletionTimestamp != nil {
		return
	}
	w.edit(name, func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
}

// deleteBoth settles the world, and deletes the PV a and its claim.
func (w *world) deleteBoth() {
	w.settle()
	w.deletePVBy("a")
	delete(w.claims, "claim-a")
}

func hold(pv *v1.PersistentVolume)      { pv.Annotations[volume.HoldAnnotation] = "a look first" }
func unmigrate(pv *v1.PersistentVolume) { delete(pv.Annotations, "pv.kubernetes.io/migrated-to") }

func (w *world) note(format string, args ...any) {
	w.diary = append(w.diary, fmt.Sprintf(format, args...))
}

// call begins a call of the controller.
func (w *world) call(what string) error {
	if w.dead {
		return errCrashed
	}
	w.note("%s", what)
	if w.before != nil {
		return w.before(what)
	}
	return nil
}

// written completes a write, or crashes the process instead if requested.
func (w *world) written(pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	w.writes++
	if w.writes == w.crashAfter {
		w.dead = true
		return nil, errCrashed
	}
	return pv.DeepCopy(), nil
}

func (w *world) readPV(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if err := w.call("read " + name); err != nil {
		return nil, err
	}
	return w.pvs[name].DeepCopy(), nil
}

func (w *world) readClaim(_ context.Context, of volume.ClaimRef) (pvclaim.Result, error) {
	if err := w.call("read claim"); err != nil {
		return pvclaim.Result{}, err
	}
	claim, found := w.claims[of.Name]
	return pvclaim.Result{Of: of, Found: found, UID: claim.uid, VolumeName: claim.volume}, nil
}

func (w *world) countAttachments(_ context.Context, pvs []string) (n int, err error) {
	if err := w.call("count attachments"); err != nil {
		return 0, err
	}
	for _, name := range w.attached {
		if slices.Contains(pvs, name) {
			n++
		}
	}
	return n, nil
}

// asRead returns the PV if it has not changed since it was read.
func (w *world) asRead(pv intree.PV) (*v1.PersistentVolume, error) {
	now, found := w.pvs[pv.Name]
	switch {
	case !found || now.UID != pv.UID:
		return nil, kube.ErrGone
	case pv.ResourceVersion != "" && now.ResourceVersion != pv.ResourceVersion:
		return nil, kube.ErrChanged
	}
	return now.DeepCopy(), nil
}

func (w *world) patchFinalizers(_ context.Context, pv intree.PV, add, drop []string) (*v1.PersistentVolume, error) {
	if err := w.call(fmt.Sprintf("patch %s +%v -%v", pv.Name, add, drop)); err != nil {
		return nil, err
	}
	o, err := w.asRead(pv)
	if err != nil {
		return nil, err
	}
	if o.DeletionTimestamp != nil && len(add) > 0 {
		return nil, kube.ErrChanged
	}
	for _, f := range drop {
		if f == intree.Finalizer {
			guard(false, intree.FieldManager)(o)
		}
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(on string) bool { return on == f })
	}
	if len(add) > 0 {
		guard(true, intree.FieldManager)(o)
	}
	w.set(o)
	return w.written(o)
}

func (w *world) createPV(_ context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	if err := w.call("create " + pv.Name + " " + string(pv.Spec.PersistentVolumeReclaimPolicy)); err != nil {
		return nil, err
	}
	if _, found := w.pvs[pv.Name]; found {
		return nil, kube.ErrChanged
	}
	o := pv.DeepCopy()
	w.uids++
	o.UID, o.Status.Phase, o.Finalizers = types.UID("uid-"+strconv.Itoa(w.uids)), v1.VolumePending,
		[]string{inUseFinalizer}
	w.set(o)
	return w.written(o)
}

func (w *world) setPolicy(_ context.Context, pv intree.PV,
	policy v1.PersistentVolumeReclaimPolicy) (*v1.PersistentVolume, error) {
	if err := w.call("turn " + pv.Name + " to " + string(policy)); err != nil {
		return nil, err
	}
	o, err := w.asRead(pv)
	if err != nil {
		return nil, err
	}
	if policy == v1.PersistentVolumeReclaimDelete {
		w.mayArm(intree.Of(o))
	}
	o.Spec.PersistentVolumeReclaimPolicy = policy
	w.set(o)
	return w.written(o)
}

// mayArm reports an error if a twin is set to Delete whose original must keep its volume.
func (w *world) mayArm(twin intree.PV) {
	o := w.pvs[twin.Original]
	if o == nil || o.UID != twin.TwinOf || o.DeletionTimestamp == nil ||
		o.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete ||
		o.Spec.ClaimRef == nil || o.Spec.ClaimRef.UID != twin.Claim.UID || o.Annotations[volume.HoldAnnotation] != "" {
		w.t.Errorf("a twin is set to Delete, and its original is not to be deleted: %+v", o)
	}
}

func (w *world) deletePV(_ context.Context, pv intree.PV) error {
	if err := w.call("delete " + pv.Name); err != nil {
		return err
	}
	o, err := w.asRead(pv)
	if err != nil {
		return err
	}
	if o.Labels[volume.TwinLabel] == "" || o.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain {
		w.t.Errorf("PV %s is deleted, which is no twin that keeps its volume", pv.Name)
	}
	w.deletePVBy(pv.Name)
	_, err = w.written(&v1.PersistentVolume{})
	return err
}

// wroteDown returns the controller's writes and the plugin's deletions.
func (w *world) wroteDown() []string {
	var wrote []string
	for _, line := range w.diary {
		if !strings.HasPrefix(line, "read ") && !strings.HasPrefix(line, "count ") {
			wrote = append(wrote, line)
		}
	}
	return wrote
}
