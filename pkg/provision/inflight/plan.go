package inflight

import (
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// The functions in this file are pure: their results depend on the arguments alone.

// step is the next action of a shard's writer.
type step uint8

const (
	stepWait   step = iota // until it is woken, or for a while
	stepRead               // GET
	stepCreate             // the Lease is missing: create it without UID and entries
	stepFence              // the Lease is new: check the others for another leader before the first write
	stepWrite              // PUT all wanted content
)

// situation has the facts that the next step of a shard's writer depends on.
type situation struct {
	known     bool // no change of the Lease since it was last seen is known
	asked     bool // a Confirm waits for a read
	missing   bool // the Lease does not exist
	readOnly  bool // it must not be written
	fresh     bool // it was created and has no UID yet
	fenced    bool // the other shards were read since it was created
	ours      bool // it has our epoch
	entries   bool // entries or chunks are wanted
	puts      bool // one of them is not stored in its wanted form
	removals  bool // a stored entry, or an annotation that settles one, is not wanted
	uncertain bool // a write with unknown outcome may still land

	retryIn   time.Duration // time until the next try after an error
	removeIn  time.Duration // time that removals still wait for other writes
	recheckIn time.Duration // time until a Lease with problems or chunks is read again, negative for never
	moveIn    time.Duration // time until entries move to the old Lease, negative for never
}

// next decides a writer's next step and, for stepWait, the maximum wait, negative for no limit.
func next(s situation) (step, time.Duration) {
	switch {
	case s.retryIn > 0:
		return stepWait, s.retryIn
	case !s.known || s.asked || s.recheckIn == 0:
		return stepRead, 0
	case s.readOnly || s.missing && !s.entries:
		return stepWait, s.recheckIn
	case s.missing:
		return stepCreate, 0
	case s.fresh && !s.fenced:
		return stepFence, 0
	case due(s):
		return stepWrite, 0
	}
	wait := earlier(s.moveIn, s.recheckIn)
	if s.removals {
		wait = earlier(s.removeIn, wait)
	}
	return stepWait, wait
}

// due reports whether a Lease that can be written has to be.
func due(s situation) bool {
	return s.puts || s.uncertain || !s.ours || s.moveIn == 0 || s.removals && s.removeIn <= 0
}

// earlier returns the shorter one of two times, of which a negative one never comes.
func earlier(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

// aged is an entry of a young Lease, with its size there.
type aged struct {
	key   string
	begun time.Time
	bytes int
}

// moveAt returns the time at which entries are old enough, and many enough, to move to the old Lease, and whether it
// comes without further entries.
func moveAt(all []aged, a aging) (at time.Time, ever bool) {
	slices.SortFunc(all, func(x, y aged) int { return x.begun.Compare(y.begun) })
	total := 0
	for _, one := range all {
		if total += one.bytes; total >= a.bytes {
			return one.begun.Add(a.after), true
		}
	}
	return time.Time{}, false
}

// superseded reports whether a shard proves that another process leads. sameLease means that v has the UID of the Lease
// that we wrote to.
//
// A lower epoch in the Lease that we wrote to does not prove another leader: older annotations were put back.
func superseded(v view, own meta, sameLease bool) bool {
	switch {
	case v.missing() || v.err != nil || v.fresh() || v.meta.Process == own.Process:
		return false
	case v.meta.Epoch >= own.Epoch:
		return true
	}
	return !sameLease
}

// supersededBy returns the error of a process that has found the epoch of another one in a Lease.
func supersededBy(v view, lease string, own meta) error {
	return fmt.Errorf("%w: Lease %s has epoch %d of %q, ours is %d of %q",
		ErrSuperseded, lease, v.meta.Epoch, v.meta.Identity, own.Epoch, own.Identity)
}

// chooseEpoch returns the epoch of a process that takes over. It is above all epochs of other processes, and not below
// the epoch that the process chose before.
func chooseEpoch(views []view, own meta) int64 {
	epoch := max(own.Epoch, 1)
	for _, v := range views {
		if v.err == nil && v.meta.Process != own.Process {
			epoch = max(epoch, v.meta.Epoch+1)
		}
	}
	return epoch
}

// compose returns the Lease to write: the observed Lease with m, with the wanted annotations, and with only the kept
// ones of its other annotations.
func compose(v view, m meta, want map[string]string, kept func(key string) bool) *coordinationv1.Lease {
	lease := v.lease.DeepCopy()
	m.UID = lease.UID
	lease.Labels = withLabels(lease.Labels)
	if lease.Annotations == nil { // all of them were removed
		lease.Annotations = map[string]string{}
	}
	maps.DeleteFunc(lease.Annotations, func(key, _ string) bool {
		return !kept(key)
	})
	maps.Copy(lease.Annotations, want)
	lease.Annotations[annMeta] = m.String()
	return lease
}

func withLabels(labels map[string]string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelLog], labels[kube.NoBackup] = "true", "true"
	return labels
}

// size counts bytes as the API server does.
func size(annotations map[string]string) int {
	total := 0
	for key, value := range annotations {
		total += len(key) + len(value)
	}
	return total
}

// outcome is the known outcome of a write after its answer.
type outcome uint8

const (
	// outcomeUnknown means that the write may have landed or may still land, which a read resolves.
	outcomeUnknown outcome = iota
	// outcomeLanded means that the write was stored.
	outcomeLanded
	// outcomeConflict means that the write was refused because the object has changed. A proxy may have sent the write
	// twice, so an earlier copy may have landed.
	outcomeConflict
	// outcomeRefused means that the write was not stored, and would be refused again.
	outcomeRefused
)

func judge(err error) outcome {
	switch {
	case err == nil:
		return outcomeLanded
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return outcomeConflict
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err):
		return outcomeRefused
	}
	return outcomeUnknown
}

// absent reports whether the API server answered that it has no Lease of that name.
func absent(err error, name string) bool {
	return kube.Absent(err, coordinationv1.Resource("leases"), name)
}

const (
	backoffStart = 100 * time.Millisecond
	backoffMax   = 5 * time.Second
)

// backoff returns the delay after this number of failures in a row. It doubles each time and is scaled to between half
// and all of it by random, in [0,1). The API server's Retry-After is a lower limit.
func backoff(failures int, err error, random float64) time.Duration {
	if failures <= 1 && judge(err) == outcomeConflict {
		return 0 // another writer was faster: read, and write again
	}
	delay := backoffMax
	if failures < 8 {
		delay = min(backoffMax, backoffStart<<max(0, failures-1))
	}
	delay = time.Duration((0.5 + random/2) * float64(delay))
	asked, _ := apierrors.SuggestsClientDelay(err)
	return max(delay, time.Duration(asked)*time.Second)
}
