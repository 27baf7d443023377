package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// refTo names a claim in namespace ns.
func refTo(name string, uid types.UID) volume.ClaimRef {
	return volume.ClaimRef{Namespace: "ns", Name: name, UID: uid}
}

// process is one run of a Controller, which may die at a call.
type process struct {
	*world
	inner cluster
	// node is the only node that it provisions for, which has volume names of its own; empty for the cluster.
	node string
	mu   sync.Mutex
	dead bool
	stop func()
	// ended is closed when Run has returned, with the error result.
	ended  chan struct{}
	result error
	// provisioner is the running Controller.
	provisioner *Controller
	log         *processLog
	// conflicts means that another client is always faster to change a claim.
	conflicts bool
	// refusePV, if set, returns the API server's answer to a new PV.
	refusePV func() error
	// answer is the world's answer to the latest recorded call, if not nil, and late its world.late.
	answer func() error
	late   bool
}

var errDead = errors.New("the process is dead")

// unhurried is a clock that no lack of processors moves: from one look to the next it goes on for 10 ms at most, so a
// test that waits for a processor for seconds sees no limit expire.
type unhurried struct {
	clock.RealClock
	mu        sync.Mutex
	now, seen time.Time
}

func (c *unhurried) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.seen)
	c.now, c.seen = c.now.Add(min(passed, 10*time.Millisecond)), c.seen.Add(passed)
	return c.now
}

func (c *unhurried) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// quiet is the quiet period of tests that check for late calls.
const quiet = 50 * time.Millisecond

// madeUnseen lets a process create a claim's volume without an answer, as long as the driver fails.
func (w *world) madeUnseen() *process {
	w.t.Helper()
	return w.madeUnseenWith(Config{Quiet: quiet})
}

// madeUnseenWith is madeUnseen for a process with these settings and a claim with these changes.
func (w *world) madeUnseenWith(cfg Config, change ...func(*v1.PersistentVolumeClaim)) *process {
	w.t.Helper()
	w.failing(true, class(errclass.Uncertain))
	p := w.start(cfg)
	w.makeClaim(change...)
	w.waitUnseen()
	return p
}

func (w *world) waitUnseen() {
	w.t.Helper()
	w.wait("the volume is made unseen", func() bool { return len(w.onDisk()) == 1 })
}

// start runs a provisioner until the test ends, or it dies or is stopped.
func (w *world) start(cfg Config) *process {
	w.t.Helper()
	return w.make(cfg).start()
}

// make creates a provisioner to start.
func (w *world) make(cfg Config) *process {
	w.t.Helper()
	return w.makeOf(driverName, cfg)
}

// makeOf creates a provisioner for the driver with this name. Another driver has a log of its own.
func (w *world) makeOf(driver string, cfg Config) *process {
	w.t.Helper()
	p := &process{world: w}
	if driver != driverName {
		p.node = driver
	}
	cfg.RetryStart, cfg.RetryMax = 2*time.Millisecond, 20*time.Millisecond
	if cfg.Quiet == 0 {
		cfg.Quiet = 10 * time.Millisecond
	}
	if cfg.Clock == nil {
		cfg.Clock = &unhurried{now: time.Now(), seen: time.Now()}
	}
	cfg.Workers = 2
	p.log = &processLog{process: p, removing: map[string]bool{}, takenOver: time.Unix(1e9, 0)}
	cfg.Log = p.log
	orders := w.orders
	if cfg.Local != nil {
		p.node, orders.node = cfg.Local.Node.Name, cfg.Local.Node.Name
	}
	provisioner, err := NewForClient(w.client, driver, p, orders, cfg)
	w.must(err)
	p.inner, provisioner.cluster, p.provisioner = provisioner.cluster, p, provisioner
	return p
}

func (p *process) start() *process {
	p.t.Helper()
	before := p.watches.Load()
	ctx, cancel := context.WithCancel(p.t.Context())
	p.ended = make(chan struct{})
	go func() { defer close(p.ended); p.result = p.provisioner.Run(ctx) }()
	p.stop = func() { cancel(); <-p.ended; p.log.removals.Wait() }
	p.t.Cleanup(p.stop)
	p.wait("the caches are filled", p.provisioner.Synced)
	// The fake does not deliver a deletion between the list of a cache and its watch.
	begun := before
	if p.provisioner.own != nil {
		begun++
	}
	if !p.provisioner.cfg.FinishOnly {
		begun += 2 // of claims and classes
	}
	p.wait("they are watched", func() bool { return p.watches.Load() >= begun })
	return p
}

func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// do runs an effect of the process, unless the process is dead or dies before.
func (p *process) do(what string, effect func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errDead
	}
	p.world.mu.Lock()
	p.records = append(p.records, what)
	p.n++
	n, each := p.n, p.each
	p.answer, p.late = p.fail[what], p.world.late
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

func (p *process) selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) error {
	return p.do("select "+node, func() error {
		if p.conflicts {
			return kube.ErrChanged
		}
		return p.inner.selectNode(ctx, claim, node)
	})
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
	err = p.do("create PV", func() (err error) {
		if p.refusePV != nil {
			if err := p.refusePV(); err != nil {
				return err
			}
		}
		stored, err = p.inner.createPV(ctx, pv)
		return err
	})
	if p.created != nil {
		p.created()
	}
	return stored, err
}

func (p *process) holdSource(ctx context.Context, source volume.SourceRef) error {
	return p.do("hold source", func() error { return p.inner.holdSource(ctx, source) })
}

func (p *process) freeSource(ctx context.Context, source volume.SourceRef) error {
	return p.do("free source", func() error { return p.inner.freeSource(ctx, source) })
}

func (p *process) readSecret(context.Context, v1.SecretReference) (map[string]string, error) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.secretReads++
	if p.secretGone {
		p.missed++
		return nil, errSecretGone
	}
	return map[string]string{"key": p.secret}, nil
}

func (p *process) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest, _ map[string]string) (*csi.Volume,
	error) {
	id := "vol-" + p.node + r.GetName()
	p.world.mu.Lock()
	p.requests[fmt.Sprint(r.GetName(), r.GetParameters())] = true
	call, works := p.call, p.works
	p.world.mu.Unlock()
	if works != nil {
		if err := works(ctx); err != nil {
			return nil, err
		}
	}
	if call != nil {
		if err := call(r.GetName()); err != nil {
			return nil, err
		}
	}
	err := p.do("create volume", func() error { return p.work(func() { p.volumes[id] = r.GetName() }) })
	if err != nil {
		return nil, err
	}
	return &csi.Volume{VolumeId: id}, nil
}

// Known reports whether the process' driver is known.
func (p *process) Known() error {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.asked++
	return p.unknown
}

// Version returns the vendor_version of the process' driver.
func (p *process) Version() string {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.driverVersion
}

// ReportsCapacity reports whether the driver has GetCapacity.
func (p *process) ReportsCapacity() bool {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.room != nil
}

func (p *process) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	p.world.mu.Lock()
	room := p.room
	p.world.mu.Unlock()
	err := p.do("get capacity "+p.node, func() error { return nil })
	if err != nil {
		return nil, err
	}
	return room(p.node, r)
}

func (p *process) DeleteVolume(_ context.Context, handle string, _ map[string]string) error {
	if handle == "" {
		p.t.Error("a volume without id is deleted")
	}
	return p.do("delete volume", func() error { return p.work(func() { delete(p.volumes, handle) }) })
}

// work changes the storage system, or fails as the world was configured when the call was recorded.
func (p *process) work(effect func()) error {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	var err error
	if p.answer != nil {
		err = p.answer()
	}
	if err == nil || p.late {
		effect()
	}
	return err
}

// plainOrders builds minimal requests.
type plainOrders struct {
	// prefix begins the names of volumes, by default "pvc".
	prefix string
	// characters is the number of the UID's characters in a name, 0 for all.
	characters int
	// node is the node of the volumes, if that matters.
	node string
	// refuse, if set, returns the error of a claim.
	refuse func(request.Options) error
	// spoil, if set, returns the error of a created volume.
	spoil func() error
	// lost, if set, reports whether a node is gone.
	lost func(node string) bool
}

// HasNode implements Locator.
func (o plainOrders) HasNode(_ context.Context, node string) (bool, error) {
	return o.lost == nil || !o.lost(node), nil
}

func (o plainOrders) PVName(claim types.UID) string {
	if o.characters > 0 {
		claim = claim[:o.characters]
	}
	return cmp.Or(o.prefix, "pvc") + "-" + string(claim)
}

func (o plainOrders) Build(_ context.Context, want request.Options) (*inflight.Request, error) {
	if want.Class == nil {
		return nil, errors.New("no class")
	}
	claim := want.Claim
	if o.refuse != nil {
		if err := o.refuse(want); err != nil {
			return nil, err
		}
	}
	ordered := &inflight.Request{
		Node: want.SelectedNode(), Create: &csi.CreateVolumeRequest{Name: want.Name},
		Secret: &v1.SecretReference{Namespace: "ns", Name: "secret"}, MayReschedule: want.SelectedNode() != "",
		PV: &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: want.Name, UID: "pv-of-" + claim.UID,
				Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"}},
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
	if source := request.SourceOf(claim); source.Kind != volume.SourceNone {
		source.UID = "u-" + types.UID(source.Name)
		ordered.Source = &source
	}
	return ordered, nil
}

func (o plainOrders) Ignores(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if o.refuse == nil {
		return nil
	}
	err := o.refuse(request.Options{Claim: claim, Class: class})
	if request.RemediationOf(err) != request.RemediationIgnore {
		return nil
	}
	return err
}

func (o plainOrders) PV(order inflight.Request, made *csi.Volume) (*v1.PersistentVolume, error) {
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
