package capacity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const driverName = "disk.example.com"

var errLost = errors.New("the answer was lost")

// world is an API server, a driver, and the Controller between them. The test itself plays the work loops.
type world struct {
	*testing.T
	c       *Controller
	clock   *testclock.FakeClock
	objects *lagging
	classes *known
	nodes   *nodes
	// left is the driver's capacity in each segment; err, if set, is its answer instead.
	left map[Segment]int64
	err  error
	// meanwhile, if set, runs once during the next GetCapacity call.
	meanwhile func()
	// diary lists the writes and GetCapacity calls.
	diary []string
	// stored holds the API server's objects, and version its latest resourceVersion.
	stored  map[string]*storagev1.CSIStorageCapacity
	version int
	// lost loses the answer to the next write, which takes effect; ownerErr fails the lookup of the owner.
	lost     bool
	ownerErr error
}

// lagging is a watch cache that shows the objects of an earlier version, and counts the objects that are read.
type lagging struct {
	shown         map[string]Object
	version, read int
}

func (l *lagging) Get(key string) (Object, bool) {
	l.read++
	name, ours := strings.CutPrefix(key, "ns/")
	o, found := l.shown[name]
	return o, found && ours
}

func (l *lagging) Each(visit func(Object)) {
	for _, o := range l.shown {
		l.read++
		visit(o)
	}
}

func (l *lagging) Reached(version string) bool {
	n, err := strconv.Atoi(version)
	return err == nil && l.version >= n
}

// known is the cache of StorageClasses.
type known map[string]class

func (k known) Get(name string) (class, bool) { c, found := k[name]; return c, found }
func (k known) Reached(string) bool           { return true }
func (k known) Each(visit func(class)) {
	for _, c := range k {
		visit(c)
	}
}

// nodes fakes the driver's nodes.
type nodes struct {
	all    []topology.Node
	unread bool
}

func (n *nodes) Watch(ctx context.Context) { <-ctx.Done() }
func (n *nodes) Synced() bool              { return !n.unread }
func (n *nodes) Follow(func())             {}
func (n *nodes) Permissions(without string) []permission.Permission {
	return []permission.Permission{{Resource: "nodes", Verb: "list", Without: without}}
}
func (n *nodes) Nodes() ([]topology.Node, error) {
	if n.unread {
		return nil, errLost
	}
	return n.all, nil
}

func (n *nodes) set(zones ...string) {
	n.all = nil
	for i, zone := range zones {
		n.all = append(n.all, topology.Node{Name: fmt.Sprint(i), Registered: true, Keys: []string{"zone"},
			Labels: map[string]string{"zone": zone}})
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		T: t, clock: testclock.NewFakeClock(noon), objects: &lagging{shown: map[string]Object{}}, classes: &known{},
		nodes: &nodes{},
		left:  map[Segment]int64{"zone=a": 10, "zone=b": 20}, stored: map[string]*storagev1.CSIStorageCapacity{},
	}
	(*w.classes)["late"] = class{name: "late", ours: true, parameters: map[string]string{"tier": "gold"}}
	w.nodes.set("a", "b", "a")
	w.start()
	return w
}

// start replaces the Controller with a new one, as after a restart.
func (w *world) start(changes ...func(*Config)) {
	w.Helper()
	cfg := Config{Namespace: "ns", Clock: w.clock, Owner: &OwnedBy{Pod: "p", Level: 2}}
	for _, change := range changes {
		change(&cfg)
	}
	c, err := newController(w, driverName, w, w.nodes, cfg)
	if err != nil {
		w.Fatal(err)
	}
	c.classes, c.objects = w.classes, w.objects
	w.objects.Each(c.tracker.show)
	c.start()
	w.c = c
}

// catchUp brings the cache up to date.
func (w *world) catchUp() {
	before := w.objects.shown
	w.objects.shown, w.objects.version = map[string]Object{}, w.version
	for name, o := range w.stored {
		if now := objectOf(o, w.c.labels); now.Ours { // the label selector and recordObject do the same
			w.objects.shown[name] = now
		}
	}
	changes := objectChanges{w.c}
	for name, now := range w.objects.shown {
		if last, known := before[name]; known {
			changes.Updated(last, now)
		} else {
			changes.Added(now)
		}
	}
	for name, o := range before {
		if _, there := w.objects.shown[name]; !there {
			changes.Deleted(o, true)
		}
	}
}

// settle runs the survey, reconciles all items, and brings the cache up to date. It returns the calls.
func (w *world) settle() string {
	w.Helper()
	begin := len(w.diary)
	w.look()
	w.catchUp()
	return w.since(begin)
}

// look does the same with an unchanged cache.
func (w *world) look() {
	w.c.survey(w.Context(), surveyKey{})
	var items []WorkItem
	w.classes.Each(func(k class) {
		for _, place := range []Segment{"zone=a", "zone=b", "zone=c", ""} {
			items = append(items, WorkItem{k.name, place})
		}
	})
	w.objects.Each(func(o Object) { items = append(items, o.Item) })
	slices.SortFunc(items, func(a, b WorkItem) int {
		return strings.Compare(a.Class+string(a.Segment), b.Class+string(b.Segment))
	})
	for _, item := range slices.Compact(items) {
		w.c.reconcile(w.Context(), item)
	}
}

func (w *world) since(begin int) string { return strings.Join(w.diary[begin:], ", ") }

func (w *world) note(format string, args ...any) {
	w.diary = append(w.diary, fmt.Sprintf(format, args...))
}

func (w *world) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	at := SegmentOf(r.GetAccessibleTopology().GetSegments())
	w.note("ask %s", at)
	if r.GetParameters()["tier"] != "gold" {
		w.Errorf("asked with parameters %v", r.GetParameters())
	}
	if w.err != nil {
		return nil, w.err
	}
	left := w.left[at]
	if do := w.meanwhile; do != nil {
		w.meanwhile = nil
		do()
	}
	return &csi.GetCapacityResponse{AvailableCapacity: left, MaximumVolumeSize: wrapperspb.Int64(left)}, nil
}

func (w *world) answer(o *storagev1.CSIStorageCapacity) (*storagev1.CSIStorageCapacity, error) {
	w.version++
	o.ResourceVersion = strconv.Itoa(w.version)
	w.stored[o.Name] = o
	if w.lost {
		w.lost = false
		return nil, errLost
	}
	return o.DeepCopy(), nil
}

func (w *world) create(_ context.Context, o *storagev1.CSIStorageCapacity) (*storagev1.CSIStorageCapacity, error) {
	o = o.DeepCopy()
	w.note("create %s %d", segmentOf(o.NodeTopology), o.Capacity.Value())
	o.Name = fmt.Sprintf("%s%d", o.GenerateName, w.version+1)
	o.UID = types.UID(o.Name)
	return w.answer(o)
}

func (w *world) patch(_ context.Context, name string, body []byte) (*storagev1.CSIStorageCapacity, error) {
	var bound struct{ Metadata metav1.ObjectMeta }
	o := w.stored[name]
	if err := json.Unmarshal(body, &bound); err != nil {
		return nil, err
	}
	switch {
	case o == nil:
		return nil, kube.ErrGone
	case bound.Metadata.UID != o.UID || bound.Metadata.ResourceVersion != o.ResourceVersion:
		return nil, kube.ErrChanged
	}
	now := &storagev1.CSIStorageCapacity{}
	before, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(before, body, now)
	if err == nil {
		err = json.Unmarshal(merged, now)
	}
	if err != nil {
		return nil, err
	}
	w.note("update %s %d", segmentOf(now.NodeTopology), now.Capacity.Value())
	return w.answer(now)
}

func (w *world) remove(_ context.Context, o Object) error {
	there := w.stored[o.Name]
	switch {
	case there == nil:
		return kube.ErrGone
	case there.UID != o.UID || there.ResourceVersion != o.ResourceVersion:
		return kube.ErrChanged
	}
	w.note("delete %s", o.Item.Segment)
	w.version++
	delete(w.stored, o.Name)
	return nil
}

func (w *world) owner(context.Context, OwnedBy) (metav1.OwnerReference, error) {
	return *ownerRef(), w.ownerErr
}

func ownerRef() *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "driver", UID: "d1",
		Controller: ptr.To(true)}
}

// wantMetrics expects these metrics, and no others.
func (w *world) wantMetrics(want map[string]float64) {
	w.Helper()
	registry := prometheus.NewPedanticRegistry()
	must.OK(w.T, w.c.register(registry))
	got := map[string]float64{}
	for _, family := range must.Get(registry.Gather())(w.T) {
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	if !maps.Equal(got, want) {
		w.Errorf("metrics %v, want %v", got, want)
	}
}

func (w *world) want(got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("did %q, want %q", got, want)
	}
}
