package provision

import (
	"context"
	"errors"
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

const driverName = "disk.csi.example.com"

// patience bounds every wait. It is far above what anything takes.
const patience = time.Minute

// world is an API server, a storage system, and the provisioners that work on them one after the
// other. What a real API server makes of our writes is tested against a real one.
type world struct {
	t      *testing.T
	client *fake.Clientset

	mu      sync.Mutex
	volumes map[string]string // names by id
	diary   []string
	// fail answers calls of the driver, by name of the call, as long as it returns an error; with
	// late the work is done first.
	fail map[string]func() error
	late bool
	// orders are those of the processes that start.
	orders plainOrders
	// entries are those of the in-flight logs, of which each node has its own: by node and volume. epoch is that of the
	// process that has the log, and full that it has no room.
	entries map[string]inflight.Entry
	epoch   map[string]int64
	full    bool
	// secretGone: the Secret of all calls does not exist. missed counts who looked for it.
	secretGone bool
	missed     int
	// requests are the different requests that were sent, by their text.
	requests map[string]bool
	// created, if set, is called between a PV's creation and its answer.
	created func()
	// each is called with what is done before it is, and decides whether the process dies there.
	each func(n int, what string) death
	n    int
}

// death says when a process dies over a call.
type death uint8

const (
	goesOn death = iota
	before
	after
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(), volumes: map[string]string{}, entries: map[string]inflight.Entry{}, epoch: map[string]int64{}, requests: map[string]bool{}, fail: map[string]func() error{}}
	react := k8stesting.ObjectReaction(w.client.Tracker())
	claims := v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	// The fake tells all who watch of one object, and several processes change what they are told.
	w.client.PrependWatchReactor("*", func(a k8stesting.Action) (bool, watch.Interface, error) {
		options := metav1.ListOptions{}
		if of, ok := a.(k8stesting.WatchActionImpl); ok {
			options = of.ListOptions
		}
		changes, err := w.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), options)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(changes, func(e watch.Event) (watch.Event, bool) {
			e.Object = e.Object.DeepCopyObject()
			return e, true
		}), nil
	})
	// The fake knows neither that finalizers hold a claim that is deleted, nor resourceVersions.
	var versions atomic.Int64
	versions.Store(1) // which claims begin with
	w.client.PrependReactor("delete", "persistentvolumeclaims", func(a k8stesting.Action) (bool, runtime.Object, error) {
		d, _ := a.(k8stesting.DeleteAction)
		object, err := w.client.Tracker().Get(claims, a.GetNamespace(), d.GetName())
		claim, ok := object.(*v1.PersistentVolumeClaim)
		if err != nil || !ok || len(claim.Finalizers) == 0 {
			return false, nil, nil //nolint:nilerr // the fake itself answers that there is none
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
		if claim, ok := update.GetObject().(*v1.PersistentVolumeClaim); ok {
			claim.ResourceVersion = strconv.Itoa(int(versions.Add(1)))
		}
		return false, nil, nil
	})
	w.client.PrependReactor("create", "selfsubjectaccessreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
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

func (w *world) makeClass() {
	_, err := w.client.StorageV1().StorageClasses().Create(w.t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: driverName}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) deleteClass() {
	w.must(w.client.StorageV1().StorageClasses().Delete(w.t.Context(), "fast", metav1.DeleteOptions{}))
}

func (w *world) makeClaim(change ...func(*v1.PersistentVolumeClaim)) {
	class := "fast"
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1", ResourceVersion: "1", CreationTimestamp: metav1.Now(), Annotations: map[string]string{annProvisioner: driverName}},
		Spec:       v1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
	for _, c := range change {
		c(claim)
	}
	_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Create(w.t.Context(), claim, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) deleteClaim() {
	w.must(w.client.CoreV1().PersistentVolumeClaims("ns").Delete(context.Background(), "data", metav1.DeleteOptions{}))
}

func (w *world) claim() *v1.PersistentVolumeClaim {
	claim, err := w.client.CoreV1().PersistentVolumeClaims("ns").Get(w.t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
}

func (w *world) pv() *v1.PersistentVolume {
	pv, err := w.client.CoreV1().PersistentVolumes().Get(w.t.Context(), "pvc-u1", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return pv
}

// inFlight returns the names of the volumes in the log.
func (w *world) inFlight() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.entries))
}

// missedSecrets counts who looked for the Secret in vain.
func (w *world) missedSecrets() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missed
}

// settled tells whether nothing is in flight.
func (w *world) settled() bool { return len(w.inFlight()) == 0 }

// knownVolumes tells whether every volume has a PersistentVolume.
func (w *world) knownVolumes() bool {
	pvs, err := w.client.CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
	w.must(err)
	var handles []string
	for _, pv := range pvs.Items {
		handles = append(handles, pv.Spec.CSI.VolumeHandle)
	}
	return !slices.ContainsFunc(w.onDisk(), func(id string) bool { return !slices.Contains(handles, id) })
}

// update changes the claim.
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
			w.t.Fatalf("wait until %s: claim %v, PV %v, volumes %v, in flight %v, diary %q", what, w.claim().GetAnnotations(), w.pv() != nil, w.onDisk(), w.inFlight(), w.told())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (w *world) onDisk() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.volumes))
}

func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.diary)
}

func (w *world) count(what string) int {
	n := 0
	for _, did := range w.told() {
		if did == what {
			n++
		}
	}
	return n
}

// failing has CreateVolume fail, late after its work; nil ends that.
func (w *world) failing(late bool, err func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail["create volume"], w.late = err, late
}

// process is one run of a Provisioner, which may die over a call.
type process struct {
	*world
	inner cluster
	// node is the one whose volumes it makes alone, which have names of their own. Empty: the cluster.
	node string
	mu   sync.Mutex
	dead bool
	stop func()
	// provisioner is what runs.
	provisioner *Provisioner
	log         *processLog
}

var errDead = errors.New("the process is dead")

// quiet is how long a test waits for late calls where it shows that they are waited for.
const quiet = 50 * time.Millisecond

// madeUnseen has a process make a claim's volume and hear of no answer, as long as the driver fails.
func (w *world) madeUnseen() *process {
	w.t.Helper()
	w.failing(true, class(errclass.Uncertain))
	p := w.start(Config{Quiet: quiet})
	w.makeClaim()
	w.wait("the volume is made unseen", func() bool { return len(w.onDisk()) == 1 })
	return p
}

// start runs a provisioner until the test ends, it dies or is stopped.
func (w *world) start(cfg Config) *process {
	w.t.Helper()
	return w.make(cfg).start()
}

// make makes one that is to be started. Of several that run at once all are made first: New is not
// to be called while one runs.
func (w *world) make(cfg Config) *process {
	w.t.Helper()
	p := &process{world: w}
	cfg.RetryStart, cfg.RetryMax = 2*time.Millisecond, 20*time.Millisecond
	if cfg.Quiet == 0 {
		cfg.Quiet = 10 * time.Millisecond
	}
	cfg.Workers = 2
	p.log = &processLog{process: p, removing: map[string]bool{}, takenOver: time.Unix(1e9, 0)}
	cfg.Log = p.log
	orders := w.orders
	if cfg.Local != nil {
		p.node, orders.node = cfg.Local.Node.Name, cfg.Local.Node.Name
	}
	provisioner, err := newProvisioner(newWatched(w.t, w.client), w.client, driverName, p, orders, cfg)
	w.must(err)
	p.inner, provisioner.cluster, p.provisioner = provisioner.cluster, p, provisioner
	return p
}

func (p *process) start() *process {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.provisioner.Run(ctx) }()
	p.stop = func() { cancel(); <-ended; p.log.removals.Wait() }
	p.t.Cleanup(p.stop)
	p.wait("the caches are filled", p.provisioner.Synced)
	return p
}

func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// do has the process do something, unless it is dead or dies before.
func (p *process) do(what string, effect func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errDead
	}
	p.world.mu.Lock()
	p.diary = append(p.diary, what)
	p.n++
	n, each := p.n, p.each
	p.world.mu.Unlock()
	dies := goesOn
	if each != nil {
		dies = each(n, what)
	}
	if dies == before {
		p.dead = true
		return errDead
	}
	err := effect()
	if dies == after {
		p.dead = true
		return errDead
	}
	return err
}

func (p *process) removeFinalizer(ctx context.Context, c provisioning.Claim) error {
	return p.do("remove finalizer", func() error { return p.inner.removeFinalizer(ctx, c) })
}

func (p *process) selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) error {
	return p.do("select "+node, func() error { return p.inner.selectNode(ctx, claim, node) })
}

func (p *process) readClaim(ctx context.Context, namespace, name string) (claim *v1.PersistentVolumeClaim, err error) {
	err = p.do("read claim", func() (err error) { claim, err = p.inner.readClaim(ctx, namespace, name); return err })
	return claim, err
}

func (p *process) readPV(ctx context.Context, name string) (pv *v1.PersistentVolume, err error) {
	err = p.do("read PV", func() (err error) { pv, err = p.inner.readPV(ctx, name); return err })
	return pv, err
}

func (p *process) createPV(ctx context.Context, pv *v1.PersistentVolume) (stored *v1.PersistentVolume, err error) {
	err = p.do("create PV", func() (err error) { stored, err = p.inner.createPV(ctx, pv); return err })
	if p.created != nil {
		p.created()
	}
	return stored, err
}

func (p *process) holdSource(ctx context.Context, source request.SourceRef) error {
	return p.do("hold source", func() error { return p.inner.holdSource(ctx, source) })
}

func (p *process) freeSource(ctx context.Context, source request.SourceRef) error {
	return p.do("free source", func() error { return p.inner.freeSource(ctx, source) })
}

func (p *process) readSecret(context.Context, v1.SecretReference) (map[string]string, error) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if p.secretGone {
		p.missed++
		return nil, errSecretGone
	}
	return nil, nil
}

func (p *process) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest, _ map[string]string) (*csi.Volume, error) {
	id := "vol-" + p.node + r.GetName()
	p.world.mu.Lock()
	p.requests[fmt.Sprint(r.GetName(), r.GetParameters())] = true
	p.world.mu.Unlock()
	err := p.do("create volume", func() error { return p.work("create volume", func() { p.volumes[id] = r.GetName() }) })
	if err != nil {
		return nil, err
	}
	return &csi.Volume{VolumeId: id}, nil
}

func (p *process) DeleteVolume(_ context.Context, handle string, _ map[string]string) error {
	if handle == "" {
		p.t.Error("a volume without id is deleted")
	}
	return p.do("delete volume", func() error { return p.work("delete volume", func() { delete(p.volumes, handle) }) })
}

// work does something in the storage system, or fails as the world says.
func (w *world) work(call string, effect func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	if fail := w.fail[call]; fail != nil {
		err = fail()
	}
	if err == nil || w.late {
		effect()
	}
	return err
}

// plainOrders is the least that a volume can be asked to be like.
type plainOrders struct {
	// characters of the UID are in a name, 0 for all.
	characters int
	// node is where the volumes are, if that matters.
	node string
	// refuse, if set, says what is wrong with a claim.
	refuse func(Want) error
	// spoil, if set, says what is wrong with what was made.
	spoil func() error
}

func (o plainOrders) PVName(claim types.UID) string {
	if o.characters > 0 {
		claim = claim[:o.characters]
	}
	return "pvc-" + string(claim)
}

func (o plainOrders) Compose(_ context.Context, want Want) (*Order, error) {
	if want.Class == nil {
		return nil, errors.New("no class")
	}
	claim := want.Claim
	if o.refuse != nil {
		if err := o.refuse(want); err != nil {
			return nil, err
		}
	}
	ordered := &Order{
		Node: want.selectedNode(), Create: &csi.CreateVolumeRequest{Name: o.PVName(claim.UID)},
		Secret: &v1.SecretReference{Namespace: "ns", Name: "secret"}, MayReschedule: want.selectedNode() != "",
		PV: &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: o.PVName(claim.UID), UID: "pv-of-" + claim.UID, Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"}},
			Spec: v1.PersistentVolumeSpec{
				ClaimRef:                      &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
				PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
				StorageClassName:              want.Class.Name,
				PersistentVolumeSource:        v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName}},
			},
		},
	}
	if want.Class.Parameters != nil {
		ordered.Create.Parameters = want.Class.Parameters
	}
	if source := request.SourceOf(claim); source.Kind != request.SourceNone {
		ordered.Source = &inflight.Source{Kind: string(source.Kind), Namespace: source.Namespace, Name: source.Name, UID: "u-" + types.UID(source.Name)}
	}
	return ordered, nil
}

func (o plainOrders) Ignores(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if o.refuse == nil {
		return nil
	}
	err := o.refuse(Want{Claim: claim, Class: class})
	if remedyOf(err) != request.RemedyIgnore {
		return nil
	}
	return err
}

func (o plainOrders) PV(order Order, made *csi.Volume) (*v1.PersistentVolume, error) {
	if o.spoil != nil {
		if err := o.spoil(); err != nil {
			return nil, err
		}
	}
	pv := order.PV.DeepCopy()
	pv.Spec.CSI.VolumeHandle = made.GetVolumeId()
	if o.node != "" {
		pv.Spec.NodeAffinity = affinityTo(o.node)
	}
	return pv, nil
}

func class(c errclass.Class) func() error {
	return func() error { return errclass.Mark(c, fmt.Errorf("the driver says %v", c)) }
}
