package inflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// store simulates an API server for Leases of one namespace. It compares resourceVersion and UID, and limits
// annotations.
type store struct {
	mu      sync.Mutex
	leases  map[string]*coordinationv1.Lease
	version int
	calls   []call

	latency time.Duration
	// fault is called before each call.
	fault faults
	// admit may refuse an update.
	admit func(is, lease *coordinationv1.Lease) error
	// committed is called with each Lease that a client stored, and must not use the store.
	committed func(by string, lease *coordinationv1.Lease)
}

type call struct {
	verb, name string
	by         string // the client
	at         time.Time
}

// fault is an injected fault. The zero value is none.
type fault struct {
	err   error         // answered in place of the result
	carry bool          // with err: the call is carried out nevertheless
	late  time.Duration // carried out that much later, and the answer is lost
	wait  time.Duration // carried out that much later, and answered
	slow  time.Duration // the answer takes that much longer
}

// faults returns the fault of a call.
type faults func(c call) fault

// to injects f into calls with these verbs, by default into all.
func (f fault) to(verbs ...string) faults {
	return func(c call) fault {
		if len(verbs) > 0 && !slices.Contains(verbs, c.verb) {
			return fault{}
		}
		return f
	}
}

// of leaves out the calls for other Leases.
func (f faults) of(lease string) faults {
	return func(c call) fault {
		if c.name != lease {
			return fault{}
		}
		return f(c)
	}
}

// once ends after the first fault.
func (f faults) once() faults {
	ended := false
	return func(c call) (injected fault) {
		if !ended {
			injected = f(c)
			ended = injected != fault{}
		}
		return injected
	}
}

var (
	lost   = fault{err: apierrors.NewTimeoutError("lost", 0)}
	down   = fault{err: apierrors.NewServiceUnavailable("down")}
	denied = fault{err: apierrors.NewForbidden(leasesResource, "the Lease", errNo)}
)

func newStore() *store { return &store{leases: map[string]*coordinationv1.Lease{}} }

// client is one user of a store.
type client struct {
	coordinationv1client.LeaseInterface // other methods panic
	*store
	by string
}

func (s *store) client(by string) client { return client{store: s, by: by} }

func (c client) Leases(string) coordinationv1client.LeaseInterface { return c }

func (c client) do(ctx context.Context, verb, name string, op func() (*coordinationv1.Lease,
	error)) (*coordinationv1.Lease, error) {
	c.mu.Lock()
	made := call{verb: verb, name: name, by: c.by, at: time.Now()}
	c.calls = append(c.calls, made)
	var f fault
	if c.fault != nil {
		f = c.fault(made)
	}
	c.mu.Unlock()
	locked := func() (*coordinationv1.Lease, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return op()
	}
	if f.late > 0 {
		time.AfterFunc(f.late, func() { locked() }) //nolint:errcheck // the answer is lost
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := pause(ctx, c.latency/2+f.wait); err != nil {
		return nil, err
	}
	if f.err != nil && !f.carry {
		return nil, f.err
	}
	answer, err := locked()
	if err2 := pause(ctx, c.latency/2+f.slow); err2 != nil {
		return nil, err2
	}
	if f.err != nil {
		return nil, f.err
	}
	return answer, err
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var leasesResource = coordinationv1.Resource("leases")

func (c client) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, "get", name, func() (*coordinationv1.Lease, error) {
		if c.leases[name] == nil {
			return nil, apierrors.NewNotFound(leasesResource, name)
		}
		return c.leases[name].DeepCopy(), nil
	})
}

func (c client) Create(ctx context.Context, lease *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return c.do(ctx, "create", lease.Name, func() (*coordinationv1.Lease, error) {
		if c.leases[lease.Name] != nil {
			return nil, apierrors.NewAlreadyExists(leasesResource, lease.Name)
		}
		return c.commit(c.insert(lease)), nil
	})
}

func (c client) Update(ctx context.Context, lease *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return c.do(ctx, "update", lease.Name, func() (*coordinationv1.Lease, error) {
		is := c.leases[lease.Name]
		switch {
		// The API server answers Conflict, not NotFound, to an update with a UID if the object does not exist.
		case is == nil, is.UID != lease.UID, is.ResourceVersion != lease.ResourceVersion:
			return nil, apierrors.NewConflict(leasesResource, lease.Name, fmt.Errorf("the object has been modified"))
		case size(lease.Annotations) > validation.TotalAnnotationSizeLimitB:
			return nil, apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), lease.Name, nil)
		}
		if c.admit != nil {
			if err := c.admit(is, lease); err != nil {
				return nil, err
			}
		}
		return c.commit(c.replace(lease)), nil
	})
}

func (c client) commit(lease *coordinationv1.Lease) *coordinationv1.Lease {
	if c.committed != nil {
		c.committed(c.by, lease)
	}
	return lease
}

func (s *store) insert(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease.UID = types.UID(fmt.Sprintf("uid-%d", s.version+1))
	return s.replace(lease)
}

func (s *store) replace(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	lease.ResourceVersion = strconv.Itoa(s.version)
	s.leases[lease.Name] = lease
	return lease.DeepCopy()
}

// edit changes a Lease as a person does.
func (s *store) edit(name string, change func(*coordinationv1.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(name, change)
}

// change is edit for callers that hold the lock.
func (s *store) change(name string, change func(*coordinationv1.Lease)) {
	lease := s.leases[name].DeepCopy()
	change(lease)
	s.replace(lease)
}

// whole returns the shard of a volume as it counts, for callers that hold the lock.
func (s *store) whole(volume string, shards int) view {
	name := shardName(shardOf(volume, shards))
	return look(s.leases[name], driver).join(s.leases[name+oldSuffix])
}

// editEntry changes the Lease that has the entry of a volume as a person does.
func (s *store) editEntry(volume string, shards int, change func(*coordinationv1.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock() // meanwhile, the process moves no entry
	s.change(s.whole(volume, shards).leaseOf(annotationKey(volume)).Name, change)
}

func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, name)
}

func (s *store) read(name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name].DeepCopy()
}

func (s *store) all() []coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []coordinationv1.Lease
	for _, name := range slices.Sorted(maps.Keys(s.leases)) {
		all = append(all, *s.leases[name].DeepCopy())
	}
	return all
}

// count returns the number of calls since the store was created or forget was called.
func (s *store) count(verbs ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if slices.Contains(verbs, c.verb) {
			n++
		}
	}
	return n
}

func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

func (s *store) fail(f faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// duringUpdates makes the updates of a client slow, and calls do during the first.
func (s *store) duringUpdates(by string, do func()) {
	var once sync.Once
	s.fail(func(c call) fault {
		if c.by != by || c.verb != "update" {
			return fault{}
		}
		once.Do(func() { go do() })
		return fault{wait: 5 * time.Second}
	})
}

// readBack decodes a log's Leases as the next process does.
func readBack(leases []coordinationv1.Lease) (entries []Entry, problems []Problem) {
	topology, c := view{}, newCodec("")
	for i := range leases {
		if leases[i].Name == topologyName {
			topology = look(&leases[i], driver)
		}
	}
	for _, v := range joined(leases) {
		number, _ := shardNumber(v.lease.Name)
		problems = append(problems, v.read(number, c, topology, nil, func(_ string, one coded) {
			entries = append(entries, *one.entry)
		})...)
	}
	return entries, problems
}

// decoded is Locate without the locations.
func decoded(leases []coordinationv1.Lease) (entries []Entry, problems []Problem) {
	located, unreadable := Locate(leases, nil)
	for i := range located {
		entries = append(entries, located[i].Entry)
	}
	for _, problem := range unreadable {
		problems = append(problems, problem.Problem)
	}
	return entries, problems
}
