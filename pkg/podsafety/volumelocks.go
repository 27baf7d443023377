package podsafety

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
)

// volumeLock is the VolumeLock of a node, whose volumes no other node can attach
// (deploy/manifests/pod-safety-crd.yaml). One lock holds all volumes of a node, because the API server evaluates every
// lock for each VolumeAttachment.
type volumeLock struct {
	// node is also the name of the object.
	node string
	// object and version are the UID and resourceVersion, or "" if the object does not exist.
	object  types.UID
	version string
	// volumes maps the names of PVs to the pods that hold them.
	volumes map[string]holder
}

// holder is a pod that holds a volume.
type holder struct {
	namespace, name string
	uid             types.UID
}

func (h holder) podKey() string { return cache.NewObjectName(h.namespace, h.name).String() }

// known reports whether the pod can be read. The API server answers that a pod without a namespace does not exist, and
// without a UID, any pod of the name looks like another one.
func (h holder) known() bool { return h.namespace != "" && h.name != "" && h.uid != "" }

func (l volumeLock) with(volumes map[string]holder) volumeLock {
	l.volumes = volumes
	return l
}

// volumeLocks caches the existing VolumeLocks, from the last list and from the writes of this process since then, and
// is safe for concurrent use.
type volumeLocks struct {
	client lockClient

	mu sync.Mutex
	of map[string]volumeLock // by node
	// listed is set by the first list of this process.
	listed bool
	// writes counts the writes of this process, and written holds the count at the last write for each node.
	writes  int
	written map[string]int
	// volumes caches the volumes of pods by the pod's UID and the claim's name. It stays valid because a bound claim of a
	// pod with a node stays bound.
	volumes map[types.UID]map[string]volume
}

func newVolumeLocks(client lockClient) *volumeLocks {
	return &volumeLocks{client: client, of: map[string]volumeLock{}, written: map[string]int{},
		volumes: map[types.UID]map[string]volume{}}
}

// get returns the lock of a node, or an empty one if none exists.
func (l *volumeLocks) get(node string) volumeLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lock, found := l.of[node]; found {
		return lock
	}
	return volumeLock{node: node, volumes: map[string]holder{}}
}

func (l *volumeLocks) count() (volumes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lock := range l.of {
		volumes += len(lock.volumes)
	}
	return volumes
}

func (l *volumeLocks) nodes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.of))
}

// set writes the volumes of a node's lock, if they change. If the lock was changed by another writer, all locks are
// listed again.
func (l *volumeLocks) set(ctx context.Context, before volumeLock, volumes map[string]holder) (err error) {
	var now volumeLock
	switch {
	case len(volumes) == 0 && before.object == "", len(volumes) > 0 && maps.Equal(before.volumes, volumes):
		return nil
	case len(volumes) == 0:
		err = l.client.delete(ctx, before)
	default:
		now, err = l.client.put(ctx, before.with(volumes))
	}
	switch {
	case err == nil:
		l.wrote(before.node, now)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		err = errors.Join(err, l.refresh(ctx))
	}
	return err
}

// wrote records a write of a node's lock, where a lock without a UID was deleted.
func (l *volumeLocks) wrote(node string, now volumeLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	l.written[node] = l.writes
	if now.object == "" {
		delete(l.of, node)
	} else {
		l.of[node] = now
	}
}

// refresh lists all locks, and keeps the writes that this process makes during the list, because they are newer.
func (l *volumeLocks) refresh(ctx context.Context) error {
	l.mu.Lock()
	began := l.writes
	l.mu.Unlock()
	listed, err := l.client.list(ctx)
	if err != nil {
		return err
	}
	now := map[string]volumeLock{}
	for _, lock := range listed {
		now[lock.node] = lock
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, write := range l.written {
		if write <= began {
			delete(l.written, node)
			continue
		}
		delete(now, node)
		if lock, exists := l.of[node]; exists {
			now[node] = lock
		}
	}
	l.of, l.listed = now, true
	return nil
}

// load lists all locks if this process has not done so yet. Without the list it would create locks that an earlier
// process has created.
func (l *volumeLocks) load(ctx context.Context) error {
	l.mu.Lock()
	listed := l.listed
	l.mu.Unlock()
	if listed {
		return nil
	}
	return l.refresh(ctx)
}

// known returns the volume of a pod's claim, if it was read before.
func (l *volumeLocks) known(pod types.UID, claim string) (v volume, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, known = l.volumes[pod][claim]
	return v, known
}

func (l *volumeLocks) note(pod types.UID, claim string, v volume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.volumes[pod] == nil {
		l.volumes[pod] = map[string]volume{}
	}
	l.volumes[pod][claim] = v
}

// keep drops the volumes of all other pods.
func (l *volumeLocks) keep(pods map[types.UID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.volumes, func(pod types.UID, _ map[string]volume) bool { return !pods[pod] })
}

func (c *Controller) locks(node string) {
	if c.cfg.VolumeLocks && node != "" {
		c.lockings.Enqueue(node)
	}
}

// lock makes the lock of a node hold exactly the volumes that need it.
func (c *Controller) lock(ctx context.Context, node string) controller.Result {
	err := c.lockVolumes(ctx, node)
	if err != nil && ctx.Err() == nil {
		c.metrics.lockErrors.Inc()
	}
	return c.failed(ctx, "Keep the volumes of a node from other nodes", err, "node", node)
}

func (c *Controller) lockVolumes(ctx context.Context, node string) error {
	if err := c.volumeLocks.load(ctx); err != nil && !c.nothingToRemove(err) {
		return err
	}
	return errors.Join(c.addMissing(ctx, node), c.removeUnneeded(ctx, node))
}

// writeEvery is the time after which volumes that were added are written, although volumes of further pods are not read
// yet. The attach-detach controller waits 6 minutes before it detaches them.
const writeEvery = 5 * time.Second

// addMissing adds the volumes that need the lock, without waiting for the reads of pods with many claims.
func (c *Controller) addMissing(ctx context.Context, node string) error {
	before, written := c.volumeLocks.get(node), c.cfg.Clock.Now()
	volumes := maps.Clone(before.volumes)
	var errs []error
	write := func() {
		errs = append(errs, c.writeLock(ctx, before, volumes))
		before, written = c.volumeLocks.get(node), c.cfg.Clock.Now()
		clear(volumes)
		maps.Copy(volumes, before.volumes)
	}
	_, err := c.addAllVolumes(ctx, node, nil, volumes, newFenceReads(), func(p *pod) {
		if len(p.facts().Claims) > maxGets || c.cfg.Clock.Since(written) >= writeEvery {
			write()
		}
	})
	write()
	return errors.Join(append(errs, err)...)
}

// removeUnneeded removes the volumes that need the lock no longer. It reads all claims again that were not bound. A
// fence may end during these reads, so it is read again before the write.
func (c *Controller) removeUnneeded(ctx context.Context, node string) error {
	before := c.volumeLocks.get(node)
	volumes, left, byFence := maps.Clone(before.volumes), map[string]holder{}, newFenceReads()
	var errs []error
	for _, volume := range slices.Sorted(maps.Keys(before.volumes)) {
		needed, err := c.isNeeded(ctx, node, before.volumes[volume], volume, byFence)
		if errs = append(errs, err); err == nil && !needed {
			delete(volumes, volume)
			left[volume] = before.volumes[volume]
		}
	}
	if len(left) == 0 {
		return errors.Join(errs...)
	}
	unknown, err := c.addAllVolumes(ctx, node, left, volumes, byFence, func(*pod) {})
	// A pod whose volumes are unknown may use one that would leave. A PV is bound to one claim, and so to pods of the
	// namespace in which the pod was that had the volume.
	maps.DeleteFunc(left, func(_ string, by holder) bool { return !unknown[by.namespace] })
	maps.Copy(left, volumes)
	ctx, failed := c.confirm(ctx, before, left, byFence)
	return errors.Join(append(errs, err, failed, c.writeLock(ctx, before, left))...)
}

// writeLock writes the volumes of a node's lock, as far as it has room for them.
func (c *Controller) writeLock(ctx context.Context, before volumeLock, volumes map[string]holder) (err error) {
	node := before.node
	if refused := admit(before.volumes, volumes); refused > 0 {
		err = fmt.Errorf("the VolumeLock of node %q has no room for %s of namespaces that have the most in it",
			node, plural.Count(refused, "volume"))
	}
	if failed := c.volumeLocks.set(ctx, before, volumes); failed != nil {
		return errors.Join(err, failed)
	}
	logger := klog.FromContext(ctx).WithValues("node", node)
	for volume, by := range volumes {
		if _, was := before.volumes[volume]; !was {
			logger.Info("The volume may be attached to no other node", "PV", volume, "pod", by.podKey())
		}
	}
	for volume, by := range before.volumes {
		if _, is := volumes[volume]; !is {
			logger.Info("The volume may be attached to other nodes again", "PV", volume, "pod", by.podKey())
		}
	}
	return err
}

// maxLockBytes bounds the JSON of a VolumeLock. The API server refuses an object of more than 1.5 MiB, the default of
// etcd, and then no volume of the node would be locked.
const maxLockBytes = 1 << 20

// admit drops from the volumes of a lock those for which it has no room, and returns their number. Volumes that were
// locked before stay. A namespace may have as much of the lock as stays free, so it leaves room for others.
func admit(before, volumes map[string]holder) (refused int) {
	room, used := maxLockBytes, map[string]int{}
	for _, was := range []bool{true, false} {
		for _, volume := range slices.Sorted(maps.Keys(volumes)) {
			by := volumes[volume]
			if _, locked := before[volume]; locked != was {
				continue
			}
			const names = len(`"":{"namespace":"","pod":"","uid":""},`)
			n := names + len(volume) + len(by.namespace) + len(by.name) + len(by.uid)
			if !was && used[by.namespace]+n > room-n {
				delete(volumes, volume)
				refused++
				continue
			}
			room, used[by.namespace] = room-n, used[by.namespace]+n
		}
	}
	return refused
}

// lockFacts returns the facts about a node, and about a pod unless it is nil, from the watches.
func (c *Controller) lockFacts(node string, p *pod) podsafety.LockFacts {
	f := podsafety.LockFacts{NodeSeen: c.observer.nodeSeen(node), FenceSeen: c.observer.fenceSeen(node),
		RemovingLocks: !c.cfg.VolumeLocks}
	if p != nil {
		f.Pod = p.facts()
		c.observer.mu.Lock()
		f.UnmountOverdue = c.observer.tracker.UnmountOverdue(p.uid, c.cfg.Clock.Now())
		c.observer.mu.Unlock()
	}
	return f
}

// isNeeded reports whether a locked volume must stay locked, which ends when its pod is not held any more, or when a
// fence keeps the node from the volume.
func (c *Controller) isNeeded(ctx context.Context, node string, by holder, name string,
	byFence *fenceReads) (_ bool, err error) {
	p, _ := c.observer.pods.Get(by.podKey())
	f := c.lockFacts(node, p)
	f.Holder, f.Locked = by.uid, true
	if f.FenceSeen && !f.RemovingLocks && f.Pod.UID == by.uid && f.Pod.Node == node {
		if f.Volume, err = c.volumeOfPod(ctx, f.Pod, name); err != nil {
			return true, err
		}
	}
	action, err := c.decideLock(ctx, f, name, byFence)
	if err != nil || action != podsafety.ReadHolder {
		return action != podsafety.RemoveLock, err
	}
	if !by.known() {
		return true, fmt.Errorf("volume %q of the VolumeLock of node %q has no pod that can be read", name, node)
	}
	sent := c.cfg.Clock.Now()
	if f.Pod, _, err = c.cluster.readPod(ctx, by.namespace, by.name); err != nil {
		return true, err
	}
	f.PodRead = session.Read{Sent: sent, Order: 1}
	return podsafety.DecideLock(f, c.cfg.Clock.Now()) != podsafety.RemoveLock, nil
}

// addAllVolumes adds the volumes of all pods of a node that need a lock, and calls next before it reads those of a pod.
// left are the volumes that would leave the lock. unknown are the namespaces of pods of which volumes may be missing.
func (c *Controller) addAllVolumes(ctx context.Context, node string, left, volumes map[string]holder,
	byFence *fenceReads, next func(*pod)) (unknown map[string]bool, _ error) {
	var errs []error
	unknown = map[string]bool{}
	reads := c.newVolumeReads()
	for _, p := range fairly(c.observer.waitingOn(node)) {
		next(p)
		err := c.addVolumes(ctx, reads, p, left, volumes, byFence)
		if err != nil {
			unknown[p.namespace] = true
		}
		// The bound of the reads is one error, however many pods are beyond it.
		if !errors.Is(err, errManyReads) || reads.report() {
			errs = append(errs, err)
		}
	}
	return unknown, errors.Join(errs...)
}

func (c *Controller) addVolumes(ctx context.Context, reads *volumeReads, p *pod, left,
	volumes map[string]holder, byFence *fenceReads) error {
	f := c.lockFacts(p.node, p)
	f.Holder, f.Left = p.uid, len(left) > 0
	if podsafety.DecideLock(f, c.cfg.Clock.Now()) != podsafety.CreateLock {
		return nil
	}
	its, unread := reads.volumesOf(ctx, f.Pod)
	for _, v := range its {
		if _, locked := volumes[v.name]; locked || v.name == "" {
			continue
		}
		f.Shared, f.Volume = v.shared, v.Volume
		_, f.Left = left[v.name]
		action, err := c.decideLock(ctx, f, v.name, byFence)
		if err != nil {
			return err
		}
		if action == podsafety.CreateLock {
			volumes[v.name] = holder{p.namespace, p.name, p.uid}
		}
	}
	return unread
}

// sweepEvery is the interval at which all locks are listed. The list finds locks of an earlier leader, locks deleted by
// other programs, and locks from requests whose answer was lost.
const sweepEvery = time.Minute

// sweepLocks lists and enqueues all locks. This also removes all locks if the Config asks for none.
func (c *Controller) sweepLocks(ctx context.Context) {
	err := c.volumeLocks.refresh(ctx)
	switch {
	case ctx.Err() != nil, c.nothingToRemove(err):
	case err != nil:
		c.metrics.lockErrors.Inc()
		klog.FromContext(ctx).Error(err, "VolumeLocks cannot be read, and are neither created nor removed; retrying",
			"after", sweepEvery)
	default:
		nodes, pods := c.observer.waitingAll()
		c.volumeLocks.keep(pods)
		for _, node := range append(nodes, c.volumeLocks.nodes()...) {
			c.lockings.Add(node)
		}
	}
}

// nothingToRemove reports whether a list of locks failed because the API server does not have the kind, and the Config
// asks for no locks.
func (c *Controller) nothingToRemove(err error) bool {
	return !c.cfg.VolumeLocks && apierrors.IsNotFound(err)
}
