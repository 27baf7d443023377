// Package leader elects one replica at a time as the leader, by a Lease.
//
// Names, defaults and the health check are the same as in the other kubernetes-csi sidecars, so that two programs are
// never active at the same time during a rolling change from one of them. Unlike csi-lib-utils it does not exit the
// process: the loss of the Lease is an error that Run returns.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// ErrLost means that another replica may lead now, so the program has to restart.
var ErrLost = errors.New("lost the leader election lease")

// HealthPath is the path of the health check for the renewal of the Lease (csi-lib-utils,
// leaderelection.HealthCheckerAddress).
const HealthPath = "/healthz/leader-election"

// healthTimeout is the time from the expiry of the Lease to the failure of the health check.
const healthTimeout = 20 * time.Second

// watchPeriod is the interval at which a leader checks the clock of its Lease, because timers stop while the machine
// is suspended, and the Lease does not.
const watchPeriod = time.Second

// holderTimeout bounds the read of the new leader's identity.
const holderTimeout = 2 * time.Second

// Config holds the settings of the election.
type Config struct {
	// Name is the name of the Lease; see LeaseName.
	Name      string
	Namespace string
	// Identity distinguishes the replicas.
	Identity string
	// LeaseDuration, RenewDeadline and RetryPeriod are as in client-go's leaderelection.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Clock measures how long the Lease is held, for components that need it before the Elector exists.
	Clock *leadership.Clock
	// Labels are added to the Lease by the leader, in addition to other labels on it. By default it adds none.
	Labels map[string]string
}

// Elector takes part in one election. A nil Elector stands for a program without an election: it leads at once, and
// is healthy.
type Elector struct {
	cfg    Config
	client kubernetes.Interface
	health *leaderelection.HealthzAdaptor
	// keep: the Lease is not released at the end.
	keep bool
}

// MissingPermissions returns the permissions that this replica lacks to lead. A nil Elector needs none.
func (e *Elector) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	if e == nil {
		return nil, nil
	}
	lease := func(verb, name string) permission.Permission {
		return permission.Permission{Group: "coordination.k8s.io", Resource: "leases", Verb: verb,
			Namespace: e.cfg.Namespace, Name: name, Unsafe: true, Without: "this replica never leads, and does nothing"}
	}
	return permission.Missing(ctx, e.client.AuthorizationV1(), []permission.Permission{lease("get", e.cfg.Name),
		lease("create", ""), lease("update", e.cfg.Name)})
}

// Check returns an error if this replica leads and did not renew its Lease in time. It implements the health check.
func (e *Elector) Check() error {
	if e == nil {
		return nil
	}
	return e.health.Check(nil)
}

// Run waits for the Lease and calls lead once it is held. The context of lead ends with the Lease: when the Lease
// expires, by a clock that advances while the process or the machine is suspended, when another holder is observed,
// or when it could not be renewed within the renew deadline. Run returns after lead, with lead's error or one that
// wraps ErrLost, which it also returns if the Lease goes back to an earlier state. If ctx ends during the wait, Run
// returns nil. If it ends later, lead decides when to end, and only then the Lease is released, so that the next leader
// never overlaps with work in progress.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if e == nil {
		return lead(context.WithoutCancel(ctx))
	}
	logger := klog.FromContext(ctx)
	election, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()

	events := record.NewBroadcaster(record.WithContext(election))
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: e.client.CoreV1().Events(e.cfg.Namespace)})
	var term term
	lock, err := e.lock(events.NewRecorder(scheme.Scheme, v1.EventSource{Component: e.cfg.Name + "/" + e.cfg.Identity}),
		&term)
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: e.cfg.LeaseDuration, RenewDeadline: e.cfg.RenewDeadline, RetryPeriod: e.cfg.RetryPeriod,
		ReleaseOnCancel: !e.keep,
		Name:            e.cfg.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				// Work begins only here; see term.
				term.run(func() error {
					logger.Info("Became the leader", "lease", klog.KRef(e.cfg.Namespace, e.cfg.Name), "identity", e.cfg.Identity)
					return e.lead(ctx, held, lead)
				})
				giveUp()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				logger.V(3).Info("New leader", "identity", identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("set up leader election: %w", err)
	}
	e.health.SetLeaderElection(elector) // client-go connects a WatchDog in RunOrDie alone

	// If ctx ends while the program waits for the Lease, the wait ends.
	unhook := context.AfterFunc(ctx, func() {
		if !term.begun() {
			giveUp()
		}
	})
	defer unhook()
	var watching sync.WaitGroup
	watching.Go(func() { e.endWaiting(election, &term, giveUp) })
	logger.Info("Waiting for the lease", "lease", klog.KRef(e.cfg.Namespace, e.cfg.Name), "identity", e.cfg.Identity)
	elector.Run(election)
	giveUp()
	watching.Wait()
	if err := term.close(); term.begun() || !isClosed(e.cfg.Clock.Back()) {
		return err
	}
	return e.lost()
}

// endWaiting ends the election if the Lease goes back before the term begins.
func (e *Elector) endWaiting(election context.Context, t *term, giveUp func()) {
	select {
	case <-e.cfg.Clock.Back():
		if !t.begun() {
			giveUp()
		}
	case <-election.Done():
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lost returns the error that names the state of the Lease.
func (e *Elector) lost() error {
	return fmt.Errorf("%w: the Lease %s/%s was %v", ErrLost, e.cfg.Namespace, e.cfg.Name, e.cfg.Clock)
}

// lock returns the lock on the Lease, with a clock that observes its renewals.
func (e *Elector) lock(events resourcelock.EventRecorder, term *term) (resourcelock.Interface, error) {
	lock, err := resourcelock.NewWithLabels(resourcelock.LeasesResourceLock, e.cfg.Namespace, e.cfg.Name,
		e.client.CoreV1(), e.client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: e.cfg.Identity, EventRecorder: events}, e.cfg.Labels)
	if err != nil {
		return nil, fmt.Errorf("set up the Lease %s/%s: %w", e.cfg.Namespace, e.cfg.Name, err)
	}
	return unreleased{e.cfg.Clock.Lock(lock), term}, nil
}

// lead calls lead while the Lease is held, and returns the reason for its end.
func (e *Elector) lead(ctx, held context.Context, lead func(context.Context) error) error {
	leading, end := context.WithCancel(held)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end()
	watching.Go(func() { e.watch(leading); end() })
	err := lead(leading)
	if ctx.Err() != nil || leading.Err() == nil && e.cfg.Clock.Left() > 0 {
		return err // ctx was canceled, or the work ended by itself
	}
	// The new leader is read only for the message, and without retries. The election still uses its own lock.
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), holderTimeout)
	defer cancel()
	if lock, err := e.lock(nil, nil); err == nil {
		_, _, _ = lock.Get(ask)
	}
	lost := e.lost()
	if !errors.Is(err, context.Canceled) && !errors.Is(err, leadership.ErrExpired) {
		return errors.Join(lost, err)
	}
	return lost
}

// watch returns when ctx ends or the Lease is no longer held.
func (e *Elector) watch(ctx context.Context) {
	for left := e.cfg.Clock.Left(); left > 0; left = e.cfg.Clock.Left() {
		timer := time.NewTimer(min(left, watchPeriod))
		select {
		case <-ctx.Done():
		case <-e.cfg.Clock.Lost():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// unreleased is a lock that refuses its release while work is in progress. client-go would release it after the renew
// deadline, before it ends the leader's context.
type unreleased struct {
	resourcelock.Interface
	term *term
}

func (u unreleased) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != u.Identity() && !u.term.over() {
		return fmt.Errorf("release the Lease %s: work is in progress", u.Describe())
	}
	return u.Interface.Update(ctx, record)
}

// term is the time during which a replica leads. client-go starts its callback in a goroutine that may run only after
// the end of the election, and then no work may begin.
type term struct {
	mu     sync.Mutex
	ended  chan struct{}
	closed bool
	err    error
}

// run calls lead unless the term is already closed.
func (t *term) run(lead func() error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.ended = make(chan struct{})
	t.mu.Unlock()
	defer close(t.ended)
	t.err = lead()
}

// over reports whether no work is in progress.
func (t *term) over() bool {
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	return ended == nil || isClosed(ended)
}

func (t *term) begun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended != nil
}

// close prevents any later term, waits for the end of a term in progress, and returns its error.
func (t *term) close() error {
	t.mu.Lock()
	t.closed = true
	ended := t.ended
	t.mu.Unlock()
	if ended == nil {
		return nil
	}
	<-ended
	return t.err
}

// LeaseName returns the name of the driver's Lease that the stock external-provisioner uses as well. Capital letters,
// which the CSI specification allows, become small, because the API server refuses a Lease with capitals.
func LeaseName(driver string) string { return objects.ElectionLeases(driver)[0] }

// ownNamespace returns the namespace of this program's pod, determined as in csi-lib-utils, or "" outside of a pod.
func ownNamespace() string {
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		return ns
	}
	if data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
		if ns := strings.TrimSpace(string(data)); ns != "" {
			return ns
		}
	}
	return ""
}
