//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// patience bounds every wait for something that should take well under a second.
const patience = 30 * time.Second

const driverName = "demo.csi-reclaimer.io"

// stage is all that the demo starts.
type stage struct {
	p       *printer
	dir     string
	cluster *controlplane.ControlPlane
	driver  *mockdriver.Driver
	sidecar *sidecar.Sidecar
	admin   string // path of a kubeconfig
	client  kubernetes.Interface
	maker   storage.Maker
}

// raise builds and starts everything. A stage that is returned beside an error holds what
// was started until then.
func raise(ctx context.Context, p *printer) (*stage, error) {
	dir, err := os.MkdirTemp("", "csi-reclaimer-demo-")
	if err != nil {
		return nil, err
	}
	s := &stage{p: p, dir: dir}
	start := time.Now()
	if s.cluster, err = controlplane.Start(ctx, controlplane.V1_36, controlplane.Options{Progress: p.out}); err != nil {
		return s, err
	}
	if s.client, err = kubernetes.NewForConfig(s.cluster.Admin()); err != nil {
		return s, err
	}
	if s.admin, err = s.cluster.Kubeconfig(s.cluster.Admin()); err != nil {
		return s, err
	}
	driverDir, sidecarDir := filepath.Join(dir, "driver"), filepath.Join(dir, "sidecar")
	if err := errors.Join(os.Mkdir(driverDir, 0o755), os.Mkdir(sidecarDir, 0o755)); err != nil {
		return s, err
	}
	if s.driver, err = mockdriver.Start(ctx, mockdriver.Options{Name: driverName, Dir: driverDir, Progress: p.out}); err != nil {
		return s, err
	}
	if err := s.startSidecar(ctx, sidecarDir); err != nil {
		return s, err
	}
	s.maker = storage.Maker{Client: s.client, Driver: driverName, Namespace: "default", CSI: s.driver.Controller()}
	p.say(fmt.Sprintf("Up after %.1f s: API server %s, driver %s, csi-reclaimer.", time.Since(start).Seconds(), s.cluster.URL(), driverName))
	return s, nil
}

// startSidecar runs csi-reclaimer with the rights that deploy/ ships, and no more.
func (s *stage) startSidecar(ctx context.Context, dir string) error {
	namespace, err := s.cluster.CreateNamespace(ctx, "driver-")
	if err != nil {
		return err
	}
	account, err := s.cluster.ServiceAccount(ctx, namespace, "csi-reclaimer")
	if err != nil {
		return err
	}
	if err := grant.Sidecar(ctx, s.client, namespace, "csi-reclaimer"); err != nil {
		return err
	}
	kubeconfig, err := s.cluster.Kubeconfig(account)
	if err != nil {
		return err
	}
	s.sidecar, err = sidecar.Start(ctx, sidecar.Options{
		Address: s.driver.Socket(), Kubeconfig: kubeconfig, Dir: dir, Progress: s.p.out,
	})
	if err != nil {
		return err
	}
	return s.awaitSidecar(ctx)
}

func (s *stage) awaitSidecar(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.sidecar.WaitReady(ctx)
}

// lower ends everything and removes what it left on disk.
func (s *stage) lower() error {
	var errs []error
	if s.sidecar != nil {
		errs = append(errs, s.sidecar.Stop())
	}
	if s.driver != nil {
		errs = append(errs, s.driver.Stop())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// evidence is what a person wants to see when a verdict is wrong.
func (s *stage) evidence() string {
	if s.sidecar == nil {
		return ""
	}
	return "the last lines of csi-reclaimer's log (run with --keep to look at everything):\n" + s.sidecar.LogTail(30)
}

// volumesOnDisk counts the folders that an ls of the driver's disk shows.
func (s *stage) volumesOnDisk() (int, error) {
	entries, err := os.ReadDir(s.driver.VolumesDir())
	if err != nil {
		return 0, err
	}
	n := 0
	for _, entry := range entries {
		if entry.IsDir() {
			n++
		}
	}
	return n, nil
}

// keep leaves everything up, csi-reclaimer too, says how to look around, and returns when it
// is told to end.
func (s *stage) keep(ctx context.Context) error {
	if err := s.sidecar.Restart(); err != nil {
		return err
	}
	if err := s.awaitSidecar(ctx); err != nil {
		return err
	}
	s.p.head("Everything is still up")
	s.p.raw("  export KUBECONFIG=" + s.admin)
	s.p.say("Try, for example:")
	s.p.raw("  kubectl get pv,pvc")
	s.p.raw("  kubectl get events --field-selector involvedObject.kind=PersistentVolume")
	s.p.raw("  ls " + s.driver.VolumesDir())
	s.p.raw("  tail -f " + s.sidecar.LogPath())
	s.p.raw("  tail -f " + s.driver.LedgerPath())
	s.p.say("Ctrl-C stops it all and removes it.")
	<-ctx.Done()
	return nil
}
