//go:build unix

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/peer"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// Plane is a control plane for a family of figures.
type Plane int

const (
	// Working is API server and controller manager, without an audit log: writing one costs time.
	Working Plane = iota
	// Audited is the same with an audit log.
	Audited
	// Bare has no controller manager, so that PVs without existing claims can be filled in.
	Bare
	// Scheduled is audited with a scheduler.
	Scheduled
)

// audits reports whether it has an audit log.
func (k Plane) audits() bool { return k == Audited || k == Scheduled }

const (
	DriverName = "bench.csi-reclaimer.io"
	// className is the StorageClass of the users' claims.
	className = "bench"
	// Connections is how many the users have, each with a client of its own.
	Connections = 16
)

// programs are the binaries.
type programs struct{ sidecar, peer, peerV13, Driver string }

func buildPrograms(ctx context.Context, progress io.Writer) (p programs, err error) {
	if p.sidecar, err = program.BuildSidecar(ctx, progress); err != nil {
		return p, err
	}
	if p.peer, err = peer.Build(ctx, progress); err != nil {
		return p, err
	}
	if p.peerV13, err = peer.BuildV13(ctx, progress); err != nil {
		return p, err
	}
	p.Driver, err = mockdriver.Build(ctx, progress)
	return p, err
}

// Environment is a control plane with a driver and accounts for all subjects. One exists at a time.
type Environment struct {
	Kind      Plane
	Programs  programs
	Cluster   *controlplane.ControlPlane
	Users     []kubernetes.Interface // one for each connection
	Driver    *mockdriver.Driver
	Calls     *ledger.Tail
	Fill      *fill.Cluster
	Namespace string
	Kubeconf  map[string]string // by subject
	Rounds    atomic.Int64
}

// newEnvironment starts one. close ends it.
func newEnvironment(ctx context.Context, k Plane, p programs, progress io.Writer) (_ *Environment, err error) {
	env := &Environment{Kind: k, Programs: p, Kubeconf: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set up the environment: %w", err), env.close())
		}
	}()
	o := controlplane.Options{Progress: progress, AuditLog: k.audits(), NoControllerManager: k == Bare,
		APIServerArgs: []string{"--profiling=true"}, // for CollectGarbage
		Scheduler:     k == Scheduled, SchedulerArgs: []string{"--kube-api-qps=5000", "--kube-api-burst=10000"}}
	if k != Bare {
		o.ControllerManagerQPS = 5000 // the burst is twice that
	}
	if env.Cluster, err = controlplane.Start(ctx, controlplane.Newest, o); err != nil {
		return nil, err
	}
	for range Connections {
		client, err := kubernetes.NewForConfig(speakProtobuf(env.Cluster.Admin()))
		if err != nil {
			return nil, err
		}
		env.Users = append(env.Users, client)
	}
	// An empty state directory: the volumes are kept in memory. The ledger is a file nevertheless.
	env.Driver, err = mockdriver.Start(ctx,
		mockdriver.Options{Binary: p.Driver, Name: DriverName, Args: []string{"--state-dir="}})
	if err != nil {
		return nil, err
	}
	env.Calls = ledger.NewTail(env.Driver.LedgerPath())
	if env.Namespace, err = env.Cluster.CreateNamespace(ctx, "bench"); err != nil {
		return nil, err
	}
	env.Fill, err = fill.New(env.Users[0], env.Cluster.EtcdAddress(), env.Namespace, DriverName)
	if err != nil {
		return nil, err
	}
	if err := env.makeClass(ctx); err != nil {
		return nil, err
	}
	return env, env.makeAccounts(ctx)
}

// makeClass makes the StorageClass of the users' claims.
func (env *Environment) makeClass(ctx context.Context) error {
	policy, binding := v1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	_, err := env.Users[0].StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: DriverName, ReclaimPolicy: &policy,
		VolumeBindingMode: &binding,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a StorageClass: %w", err)
	}
	return nil
}

// speakProtobuf has a client speak it, over a connection of its own.
func speakProtobuf(config *rest.Config) *rest.Config {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// Clients of equal configurations share a connection; a dialer of one's own makes a difference.
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

// makeAccounts gives each subject a service account with the rights that it ships with.
func (env *Environment) makeAccounts(ctx context.Context) error {
	for _, s := range subject.All() {
		config, err := env.Cluster.ServiceAccount(ctx, env.Namespace, s.Account())
		if err != nil {
			return err
		}
		if env.Kubeconf[s.Column], err = env.Cluster.Kubeconfig(config); err != nil {
			return err
		}
		if s.Column == report.Ours {
			err = rbac.GrantSidecar(ctx, env.Users[0], env.Namespace, s.Account(), "owner")
		} else {
			err = peer.Grant(ctx, env.Users[0], env.Namespace, s.Account())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Start starts a subject and returns when it has been executed. Only its work shows that it is ready.
func (env *Environment) Start(ctx context.Context, s subject.Subject) (subject.Running, error) {
	return s.Start(ctx, subject.Options{Sidecar: env.Programs.sidecar, Peer: env.Programs.peer,
		PeerV13: env.Programs.peerV13, Address: env.Driver.Socket(), Kubeconfig: env.Kubeconf[s.Column],
		Namespace: env.Namespace})
}

// close ends all processes and removes the written files.
func (env *Environment) close() error {
	var errs []error
	if env.Driver != nil {
		errs = append(errs, env.Driver.Stop())
	}
	if env.Fill != nil {
		errs = append(errs, env.Fill.Close())
	}
	if env.Cluster != nil {
		errs = append(errs, env.Cluster.Stop())
	}
	return errors.Join(errs...)
}

// Each calls do for 0 to n-1, over all connections at once, and returns the first error.
func (env *Environment) Each(ctx context.Context, n int,
	do func(ctx context.Context, client kubernetes.Interface, i int) error) error {
	return InParallel(ctx, len(env.Users), n,
		func(ctx context.Context, worker, i int) error { return do(ctx, env.Users[worker], i) })
}

// InParallel calls do for 0 to n-1 from some workers.
func InParallel(ctx context.Context, workers, n int, do func(ctx context.Context, worker, i int) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for worker := range workers {
		group.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, worker, i); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	return group.Wait()
}

// Deletions returns the DeleteVolume calls since it was asked last.
func (env *Environment) Deletions() ([]ledger.Call, error) {
	entries, err := env.Calls.Next()
	return ledger.Select(ledger.Calls(entries), "DeleteVolume"), err
}

// Until calls done, again and again after a pause, until it reports true or fails, or ctx ends.
func Until(ctx context.Context, every time.Duration, what string, done func() (bool, error)) error {
	for {
		if is, err := done(); is || err != nil {
			return err
		}
		if err := Pause(ctx, every); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}

// Pause waits for a time, or for the end of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// CollectGarbage has the API server collect its garbage. With 100,000 PVs that takes seconds of processor time, so a
// burst in which it happens by chance costs twice as much as another.
func (env *Environment) CollectGarbage(ctx context.Context) error {
	_, err := env.Users[0].CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("collect the garbage of the API server: %w", err)
	}
	return nil
}

// AdminUser is whom the audit log has for the users here.
const AdminUser = "admin"

// quietFor is the time without requests after which a count is complete: Events are written late.
const quietFor = 500 * time.Millisecond

// Quiet waits until the audit log, if one is kept, no longer grows.
func (env *Environment) Quiet(ctx context.Context) error {
	if !env.Kind.audits() {
		return nil
	}
	last := int64(-1)
	return Until(ctx, quietFor, "the audit log no longer grows", func() (bool, error) {
		before := last
		info, err := os.Stat(env.Cluster.AuditLog())
		if err == nil {
			last = info.Size()
		}
		return last == before, err
	})
}

// AuditComplete returns once the audit log has a request that it makes itself. The log is written before a request
// ends, so it then has all requests that ended before.
func (env *Environment) AuditComplete(ctx context.Context) error {
	name := fmt.Sprintf("marker-%d", env.Rounds.Add(1))
	_, err := env.Users[0].CoreV1().ConfigMaps(env.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return Until(ctx, 20*time.Millisecond, "the audit log is complete", func() (bool, error) {
		marks, err := env.Cluster.AuditEventsOf(AdminUser, func(e controlplane.AuditEvent) bool { return e.Name == name })
		return len(marks) > 0, err
	})
}
