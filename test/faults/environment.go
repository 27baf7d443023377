//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// Bench is a control plane on which scenarios are played, any number at once: each has a driver, a namespace, a sidecar
// and a line of its own. Its methods may be called from any goroutine.
type Bench struct {
	cluster         *controlplane.ControlPlane
	client          kubernetes.Interface
	recorder        *recorder
	driver, sidecar string // the binaries
	dir             *rundir.Dir
}

// Open compiles the programs, the sidecar with goFlags, and starts a control plane. Close ends it. progress, which may
// be nil, receives the progress of compilations.
func Open(ctx context.Context, progress io.Writer, goFlags ...string) (_ *Bench, err error) {
	b := &Bench{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open bench: %w", err), b.Close())
		}
	}()
	if b.dir, err = rundir.New("faults-"); err != nil {
		return nil, err
	}
	policy := filepath.Join(b.dir.Path(), "audit-policy.yaml")
	if err = os.WriteFile(policy, []byte(oracle.AuditPolicy), 0o600); err != nil {
		return nil, err
	}
	if b.driver, err = mockdriver.Build(ctx, progress); err != nil {
		return nil, err
	}
	if b.sidecar, err = program.BuildSidecar(ctx, progress, goFlags...); err != nil {
		return nil, err
	}
	b.cluster, err = controlplane.Start(ctx, controlplane.Newest, controlplane.Options{
		AuditLog: true, ControllerManagerQPS: 5000, Progress: progress,
		APIServerArgs:         []string{"--audit-policy-file=" + policy},
		ControllerManagerArgs: []string{controlplane.BindOften},
	})
	if err != nil {
		return nil, err
	}
	if b.client, err = kubernetes.NewForConfig(b.cluster.Admin()); err != nil {
		return nil, err
	}
	b.recorder, err = record(ctx, b.client)
	return b, err
}

// Close ends the control plane and removes the files of Open.
func (b *Bench) Close() error {
	var err error
	if b.recorder != nil {
		b.recorder.stop()
	}
	if b.cluster != nil {
		err = b.cluster.Stop()
	}
	if b.dir != nil {
		err = errors.Join(err, b.dir.Remove())
	}
	return err
}

const (
	// patience bounds each wait of a scenario, far above its usual time.
	patience = 2 * time.Minute
	// callTimeout is how long the sidecar waits for its driver (--timeout).
	callTimeout = 5 * time.Second
	// quiet is how long a call can take to arrive (--in-flight-quiet-period): the connection and the driver delay none for
	// longer after its caller has given up.
	quiet = 2 * time.Second
	// account is the sidecar's service account.
	account = "csi-reclaimer"
)

// environment is the stage of one scenario.
type environment struct {
	*Bench
	// token is part of every name: it is the namespace, and the names of PVs begin with it.
	token, user, dir string

	maker      objects.Maker
	driver     *driverSupervisor
	proxy      *proxy.Proxy
	supervisor *supervisor
	ends       []func() error // of running programs, in order of their start

	vols map[string]*objects.Volume
	// claims are the claims of provisioned volumes, and policies the reclaim policies of their classes.
	claims   map[string]*objects.Claim
	policies map[string]v1.PersistentVolumeReclaimPolicy
	order    []string
	mayLeak  map[string]bool
	touched  map[string]int // steps by volume
	mark     string
	// lagging is when the watches began to be held up; zero if they were not.
	lagging time.Time
	applied int // by rules that were replaced since

	began time.Time
	// barrierAt is when the fence was made; zero before.
	barrierAt time.Time
	// steps ends with the last step, and ends the background waits.
	steps      context.Context
	background sync.WaitGroup
	mu         sync.Mutex
	notes      []oracle.Note
}

// newEnvironment starts everything and returns once the sidecar is ready.
func (b *Bench) newEnvironment(ctx context.Context, args []string) (_ *environment, err error) {
	env := &environment{
		Bench: b, began: time.Now(), vols: map[string]*objects.Volume{}, mayLeak: map[string]bool{},
		touched: map[string]int{},
		claims:  map[string]*objects.Claim{}, policies: map[string]v1.PersistentVolumeReclaimPolicy{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set up the environment: %w", err), env.tearDown())
		}
	}()
	dir, err := rundir.New("faults-")
	if err != nil {
		return nil, err
	}
	env.dir = dir.Path()
	env.ends = append(env.ends, dir.Remove)
	if env.token, err = b.cluster.CreateNamespace(ctx, "f"); err != nil {
		return nil, err
	}
	env.ends = append(env.ends, env.sweep)
	if err = env.startDriver(ctx); err != nil {
		return nil, err
	}
	if err = env.startProxy(ctx); err != nil {
		return nil, err
	}
	return env, env.startSidecar(ctx, args)
}

func (env *environment) startDriver(ctx context.Context) error {
	driver, err := mockdriver.Start(ctx,
		mockdriver.Options{Binary: env.Bench.driver, Name: env.token + ".csi-reclaimer.io"})
	if err != nil {
		return err
	}
	env.driver = &driverSupervisor{Driver: driver, note: env.note, wanted: true}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	wait.Go(func() { env.driver.follow(following) })
	env.ends = append(env.ends, func() error {
		stop()
		wait.Wait()
		return driver.Stop()
	})
	env.maker = objects.Maker{Client: env.client, Driver: driver.Name(), Namespace: env.token, CSI: driver.Controller()}
	return nil
}

// startProxy creates the sidecar's account, with the permissions of deploy/, and its connection to the API server.
func (env *environment) startProxy(ctx context.Context) error {
	config, err := env.cluster.ServiceAccount(ctx, env.token, account)
	if err != nil {
		return err
	}
	env.user = "system:serviceaccount:" + env.token + ":" + account
	if err := rbac.GrantSidecar(ctx, env.client, env.token, account, "owner"); err != nil {
		return err
	}
	env.proxy, err = proxy.Start(config, proxy.Options{Crash: func() { env.supervisor.crash() }})
	if err != nil {
		return err
	}
	env.ends = append(env.ends, env.proxy.Close)
	return controlplane.WriteKubeconfig(env.kubeconfig(), env.proxy.Config())
}

func (env *environment) kubeconfig() string { return filepath.Join(env.dir, "kubeconfig") }

func (env *environment) startSidecar(ctx context.Context, args []string) error {
	args = append([]string{"--retry-interval-start=50ms", "--retry-interval-max=500ms",
		"--timeout=" + callTimeout.String(), "--in-flight-quiet-period=" + quiet.String()}, args...)
	car, err := program.StartSidecar(ctx, program.SidecarOptions{
		Binary: env.sidecar, Address: env.driver.Socket(), Kubeconfig: env.kubeconfig(), Args: args, Dir: env.dir,
		Env: []string{"POD_NAMESPACE=" + env.token},
	})
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wait func()
	env.supervisor, wait = supervise(following, car, env.began, env.note)
	env.ends = append(env.ends, func() error {
		stop()
		wait()
		return car.Stop()
	})
	return env.supervisor.waitReady(ctx)
}

// note writes a line of the history.
func (env *environment) note(format string, args ...any) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.notes = append(env.notes, oracle.Note{At: time.Now(), Text: fmt.Sprintf(format, args...)})
}

// name is a volume's in the cluster: of its claim, and of its PV unless that is provisioned.
func (env *environment) name(volume string) string { return env.token + "-" + volume }

// tearDown ends all programs, the last first, and removes the scenario's objects from the cluster.
func (env *environment) tearDown() error {
	var errs []error
	for i := len(env.ends) - 1; i >= 0; i-- {
		errs = append(errs, env.ends[i]())
	}
	env.ends = nil
	return errors.Join(errs...)
}

// sweep removes remaining objects from the cluster, so that it stays small.
func (env *environment) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pvs := env.client.CoreV1().PersistentVolumes()
	for volume := range env.claims {
		_ = env.deleteClass(ctx, volume)
		_ = env.patchClaim(ctx, volume, `{"metadata":{"finalizers":null}}`)
	}
	for _, vol := range env.vols {
		_ = env.client.StorageV1().VolumeAttachments().Delete(ctx, vol.Name, metav1.DeleteOptions{})
		if pv, err := vol.PV(ctx); err != nil || pv == nil {
			continue
		}
		_, _ = pvs.Patch(ctx, vol.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		_ = pvs.Delete(ctx, vol.Name, metav1.DeleteOptions{})
	}
	_ = env.client.RbacV1().ClusterRoleBindings().Delete(ctx, env.token, metav1.DeleteOptions{})
	return env.client.CoreV1().Namespaces().Delete(ctx, env.token, metav1.DeleteOptions{})
}
