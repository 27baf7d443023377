package inflight

import (
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// What is decided here depends on the arguments alone.

// step is what a shard's writer does next.
type step uint8

const (
	stepWait   step = iota // until it is woken, or for a while
	stepRead               // GET
	stepCreate             // the Lease is missing: create it without UID and entries
	stepFence              // the Lease is new: look whether another process leads, before writing to it
	stepWrite              // PUT all that is wanted
)

// situation is what the next step of a shard's writer depends on.
type situation struct {
	known     bool // the Lease as last seen is not known to have changed
	asked     bool // a Confirm waits for a read
	missing   bool // the Lease does not exist
	readOnly  bool // it is not ours to write
	fresh     bool // it was created and has no UID yet
	fenced    bool // the other shards were looked at since it was created
	ours      bool // it has our epoch
	entries   bool // entries, or chunks, are wanted
	puts      bool // one of them is not stored as it is wanted
	removals  bool // a stored entry, or an annotation that settles one, is not wanted
	uncertain bool // a write was sent whose outcome is not known, and which may still land

	retryIn   time.Duration // how long to wait after an error
	removeIn  time.Duration // how long removals wait for company
	recheckIn time.Duration // when to read again what cannot be used, or has chunks; negative for never
}

// next decides a writer's next step. With stepWait comes how long at most, negative for no limit.
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
	case s.puts || s.uncertain || !s.ours:
		return stepWrite, 0
	case s.removals:
		return nextRemoval(s)
	}
	return stepWait, s.recheckIn
}

// nextRemoval decides when stored entries that are not wanted are removed, with nothing else to write.
func nextRemoval(s situation) (step, time.Duration) {
	if s.removeIn > 0 {
		return stepWait, earlier(s.removeIn, s.recheckIn)
	}
	return stepWrite, 0
}

func earlier(a, b time.Duration) time.Duration {
	if b < 0 {
		return a
	}
	return min(a, b)
}

// superseded says whether a shard shows that another process leads. known is the UID of the Lease that
// we wrote to, empty if it is gone or there was none.
//
// A lower epoch in the Lease that we wrote to is no other leader: somebody put older annotations back.
func superseded(v view, own meta, sameLease bool) bool {
	switch {
	case v.missing() || v.err != nil || v.fresh() || v.meta.Process == own.Process:
		return false
	case v.meta.Epoch >= own.Epoch:
		return true
	}
	return !sameLease
}

// chooseEpoch returns the epoch of a process that takes over: above all that it sees of others, and
// not below what it chose before.
func chooseEpoch(views []view, own meta) int64 {
	epoch := max(own.Epoch, 1)
	for _, v := range views {
		if v.err == nil && v.meta.Process != own.Process {
			epoch = max(epoch, v.meta.Epoch+1)
		}
	}
	return epoch
}

// compose returns the Lease to write: the one that was seen, with m, with the wanted annotations, and with no others
// but those that are kept.
func compose(v view, m meta, want map[string]string, kept func(key string) bool) *coordinationv1.Lease {
	lease := v.lease.DeepCopy()
	m.UID = lease.UID
	lease.Labels = withLabels(lease.Labels)
	if lease.Annotations == nil { // somebody has removed them all
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
	labels[LabelLog], labels[labelBackup] = "true", "true"
	return labels
}

// size counts as the API server does.
func size(annotations map[string]string) int {
	total := 0
	for key, value := range annotations {
		total += len(key) + len(value)
	}
	return total
}

// outcome is what is known of a write after its answer.
type outcome uint8

const (
	// outcomeUnknown: it may have landed or may still land; a read says.
	outcomeUnknown outcome = iota
	// outcomeLanded: it was stored.
	outcomeLanded
	// outcomeConflict: it was refused since the object is another one by now. Something between us and the
	// API server may have sent it twice, so an earlier copy may have landed.
	outcomeConflict
	// outcomeRefused: it was not stored, and will not be if it is sent again.
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

// backoff returns the delay after so many failures in a row: doubled each time, and between half of it and
// all of it by random, in [0,1). What the API server asks for (Retry-After) is the least.
func backoff(failures int, err error, random float64) time.Duration {
	if failures <= 1 && judge(err) == outcomeConflict {
		return 0 // somebody else wrote: read, and write again
	}
	delay := backoffMax
	if failures < 8 {
		delay = min(backoffMax, backoffStart<<max(0, failures-1))
	}
	delay = time.Duration((0.5 + random/2) * float64(delay))
	asked, _ := apierrors.SuggestsClientDelay(err)
	return max(delay, time.Duration(asked)*time.Second)
}
