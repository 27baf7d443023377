//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

const (
	// patience bounds each wait of a story, far above what anything takes.
	patience = 60 * time.Second
	// callTimeout is how long the sidecar waits for its driver (--timeout).
	callTimeout = 5 * time.Second
	// quiet is how long a call can take to arrive (--in-flight-quiet-period): the line and the driver delay none for longer after
	// its caller has given up.
	quiet = 2 * time.Second
	// account is the sidecar's service account.
	account = "csi-reclaimer"
)

// stage is what one scenario is played on.
type stage struct {
	*Bench
	// token is part of every name: it is the namespace, and the names of PVs begin with it.
	token, user, dir string

	maker  storage.Maker
	driver *driverKeeper
	line   *proxy.Proxy
	keeper *keeper
	ends   []func() error // of what runs, in order of its start

	vols map[string]*storage.Volume
	// claims are those of the volumes that are provisioned, and policies those of their classes.
	claims   map[string]*storage.Claim
	policies map[string]v1.PersistentVolumeReclaimPolicy
	order    []string
	mayLeak  map[string]bool
	touched  map[string]int // steps by volume
	mark     string
	// lagging is when the watches began to be held up; zero if they were not.
	lagging time.Time
	applied int // by rules that were replaced since

	began time.Time
	// fenced is when the fence was made; zero before.
	fenced time.Time
	// story ends with the last step, and with it what waits in the background for something to happen.
	story      context.Context
	background sync.WaitGroup
	mu         sync.Mutex
	notes      []oracle.Note
}

// set starts everything and returns once the sidecar is ready.
func (b *Bench) set(ctx context.Context, args []string) (_ *stage, err error) {
	s := &stage{
		Bench: b, began: time.Now(), vols: map[string]*storage.Volume{}, mayLeak: map[string]bool{}, touched: map[string]int{},
		claims: map[string]*storage.Claim{}, policies: map[string]v1.PersistentVolumeReclaimPolicy{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set the stage: %w", err), s.strike())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "faults-"); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error { return os.RemoveAll(s.dir) })
	if s.token, err = b.cluster.CreateNamespace(ctx, "f"); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, s.sweep)
	if err = s.startDriver(ctx); err != nil {
		return nil, err
	}
	if err = s.startLine(ctx); err != nil {
		return nil, err
	}
	return s, s.startSidecar(ctx, args)
}

func (s *stage) startDriver(ctx context.Context) error {
	driver, err := mockdriver.Start(ctx, mockdriver.Options{Binary: s.Bench.driver, Name: s.token + ".csi-reclaimer.io"})
	if err != nil {
		return err
	}
	s.driver = &driverKeeper{Driver: driver, note: s.note, wanted: true}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	wait.Go(func() { s.driver.follow(following) })
	s.ends = append(s.ends, func() error {
		stop()
		wait.Wait()
		return driver.Stop()
	})
	s.maker = storage.Maker{Client: s.client, Driver: driver.Name(), Namespace: s.token, CSI: driver.Controller()}
	return nil
}

// startLine makes the sidecar's account, with the rights that deploy/ ships, and the line by which it reaches the API server.
func (s *stage) startLine(ctx context.Context) error {
	config, err := s.cluster.ServiceAccount(ctx, s.token, account)
	if err != nil {
		return err
	}
	s.user = "system:serviceaccount:" + s.token + ":" + account
	if err := grant.Sidecar(ctx, s.client, s.token, account, "owner"); err != nil {
		return err
	}
	s.line, err = proxy.Start(config, proxy.Options{Crash: func() { s.keeper.crash() }})
	if err != nil {
		return err
	}
	s.ends = append(s.ends, s.line.Close)
	return controlplane.WriteKubeconfig(s.kubeconfig(), s.line.Config())
}

func (s *stage) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

func (s *stage) startSidecar(ctx context.Context, args []string) error {
	args = append([]string{"--retry-interval-start=50ms", "--retry-interval-max=500ms", "--timeout=" + callTimeout.String(), "--in-flight-quiet-period=" + quiet.String()}, args...)
	car, err := sidecar.Start(ctx, sidecar.Options{
		Binary: s.sidecar, Address: s.driver.Socket(), Kubeconfig: s.kubeconfig(), Args: args, Dir: s.dir,
		Env: []string{"POD_NAMESPACE=" + s.token},
	})
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wait func()
	s.keeper, wait = keep(following, car, s.began, s.note)
	s.ends = append(s.ends, func() error {
		stop()
		wait()
		return car.Stop()
	})
	return s.keeper.waitReady(ctx)
}

// note writes a line of the history.
func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, oracle.Note{At: time.Now(), Text: fmt.Sprintf(format, args...)})
}

// name is a volume's in the cluster: of its claim, and of its PV unless that is provisioned.
func (s *stage) name(volume string) string { return s.token + "-" + volume }

// strike ends all that runs, the last first, and removes what was made in the cluster.
func (s *stage) strike() error {
	var errs []error
	for i := len(s.ends) - 1; i >= 0; i-- {
		errs = append(errs, s.ends[i]())
	}
	s.ends = nil
	return errors.Join(errs...)
}

// sweep removes what is left in the cluster, so that it stays small.
func (s *stage) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pvs := s.client.CoreV1().PersistentVolumes()
	for volume := range s.claims {
		_ = s.deleteClass(ctx, volume)
		_ = s.patchClaim(ctx, volume, `{"metadata":{"finalizers":null}}`)
	}
	for _, vol := range s.vols {
		_ = s.client.StorageV1().VolumeAttachments().Delete(ctx, vol.Name, metav1.DeleteOptions{})
		if pv, err := vol.PV(ctx); err != nil || pv == nil {
			continue
		}
		_, _ = pvs.Patch(ctx, vol.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = pvs.Delete(ctx, vol.Name, metav1.DeleteOptions{})
	}
	_ = s.client.RbacV1().ClusterRoleBindings().Delete(ctx, s.token, metav1.DeleteOptions{})
	return s.client.CoreV1().Namespaces().Delete(ctx, s.token, metav1.DeleteOptions{})
}
