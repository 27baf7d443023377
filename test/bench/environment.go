//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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

// kind is a control plane for a family of figures.
type kind int

const (
	// working is API server and controller manager, without an audit log: writing one costs time.
	working kind = iota
	// audited is the same with an audit log.
	audited
	// bare has no controller manager, so that PVs without existing claims can be filled in.
	bare
	// scheduled is audited with a scheduler.
	scheduled
)

// audits reports whether it has an audit log.
func (k kind) audits() bool { return k == audited || k == scheduled }

const (
	driverName = "bench.csi-reclaimer.io"
	// className is the StorageClass of the users' claims.
	className = "bench"
	// connections is how many the users have, each with a client of its own.
	connections = 16
)

// programs are the binaries.
type programs struct{ sidecar, peer, peerV13, driver string }

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
	p.driver, err = mockdriver.Build(ctx, progress)
	return p, err
}

// environment is a control plane with a driver and accounts for all subjects. One exists at a time.
type environment struct {
	kind      kind
	programs  programs
	cluster   *controlplane.ControlPlane
	users     []kubernetes.Interface // one for each connection
	driver    *mockdriver.Driver
	calls     *ledger.Tail
	fill      *fill.Cluster
	namespace string
	kubeconf  map[string]string // by subject
	rounds    atomic.Int64
}

// newEnvironment starts one. close ends it.
func newEnvironment(ctx context.Context, k kind, p programs, progress io.Writer) (_ *environment, err error) {
	env := &environment{kind: k, programs: p, kubeconf: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set up the environment: %w", err), env.close())
		}
	}()
	o := controlplane.Options{Progress: progress, AuditLog: k.audits(), NoControllerManager: k == bare,
		Scheduler: k == scheduled, SchedulerArgs: []string{"--kube-api-qps=5000", "--kube-api-burst=10000"}}
	if k != bare {
		o.ControllerManagerQPS = 5000 // the burst is twice that
	}
	if env.cluster, err = controlplane.Start(ctx, controlplane.Newest, o); err != nil {
		return nil, err
	}
	for range connections {
		client, err := kubernetes.NewForConfig(speakProtobuf(env.cluster.Admin()))
		if err != nil {
			return nil, err
		}
		env.users = append(env.users, client)
	}
	// An empty state directory: the volumes are kept in memory. The ledger is a file nevertheless.
	env.driver, err = mockdriver.Start(ctx,
		mockdriver.Options{Binary: p.driver, Name: driverName, Args: []string{"--state-dir="}})
	if err != nil {
		return nil, err
	}
	env.calls = ledger.NewTail(env.driver.LedgerPath())
	if env.namespace, err = env.cluster.CreateNamespace(ctx, "bench"); err != nil {
		return nil, err
	}
	env.fill, err = fill.New(env.users[0], env.cluster.EtcdAddress(), env.namespace, driverName)
	if err != nil {
		return nil, err
	}
	if err := env.makeClass(ctx); err != nil {
		return nil, err
	}
	return env, env.makeAccounts(ctx)
}

// makeClass makes the StorageClass of the users' claims.
func (env *environment) makeClass(ctx context.Context) error {
	policy, binding := v1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	_, err := env.users[0].StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: driverName, ReclaimPolicy: &policy,
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
func (env *environment) makeAccounts(ctx context.Context) error {
	for _, s := range subject.All() {
		config, err := env.cluster.ServiceAccount(ctx, env.namespace, s.Account())
		if err != nil {
			return err
		}
		if env.kubeconf[s.Column], err = env.cluster.Kubeconfig(config); err != nil {
			return err
		}
		if s.Column == report.Ours {
			err = rbac.GrantSidecar(ctx, env.users[0], env.namespace, s.Account(), "owner")
		} else {
			err = peer.Grant(ctx, env.users[0], env.namespace, s.Account())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts a subject and returns when it has been executed. Only its work shows that it is ready.
func (env *environment) start(ctx context.Context, s subject.Subject) (subject.Running, error) {
	return s.Start(ctx, subject.Options{Sidecar: env.programs.sidecar, Peer: env.programs.peer,
		PeerV13: env.programs.peerV13, Address: env.driver.Socket(), Kubeconfig: env.kubeconf[s.Column],
		Namespace: env.namespace})
}

// close ends all processes and removes the written files.
func (env *environment) close() error {
	var errs []error
	if env.driver != nil {
		errs = append(errs, env.driver.Stop())
	}
	if env.fill != nil {
		errs = append(errs, env.fill.Close())
	}
	if env.cluster != nil {
		errs = append(errs, env.cluster.Stop())
	}
	return errors.Join(errs...)
}

// each calls do for 0 to n-1, over all connections at once, and returns the first error.
func (env *environment) each(ctx context.Context, n int,
	do func(ctx context.Context, client kubernetes.Interface, i int) error) error {
	return inParallel(ctx, len(env.users), n,
		func(ctx context.Context, worker, i int) error { return do(ctx, env.users[worker], i) })
}

// inParallel calls do for 0 to n-1 from some workers.
func inParallel(ctx context.Context, workers, n int, do func(ctx context.Context, worker, i int) error) error {
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

// deletions returns the DeleteVolume calls since it was asked last.
func (env *environment) deletions() ([]ledger.Call, error) {
	entries, err := env.calls.Next()
	return ledger.Select(ledger.Calls(entries), "DeleteVolume"), err
}

// pause waits for a time, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
