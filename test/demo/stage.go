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
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

const (
	// patience bounds every wait for something that should take well under a second.
	patience = 30 * time.Second
	// buildPatience bounds all compiling: far above what it takes with one slow processor and
	// a slow network.
	buildPatience = 2 * time.Hour
)

const (
	driverName        = "demo.csi-reclaimer.io"
	kubernetesVersion = controlplane.V1_36
)

// stage is all that the demo starts for an act.
type stage struct {
	p       *printer
	dir     string
	logs    bool // the folder stays, with the logs in it
	cluster *controlplane.ControlPlane
	driver  *mockdriver.Driver // of the first act alone
	program *daemon.Daemon     // the one to be shown: csi-reclaimer or volume-guard
	admin   string             // path of a kubeconfig
	client  kubernetes.Interface
	maker   storage.Maker
	guard   daemon.Options // how to start volume-guard, in the second act
	// retained is the PV that is kept in the end.
	retained string
}

// binaries are the compiled programs of the project.
type binaries struct{ driver, sidecar string }

// raise builds and starts everything. The stage holds what was started, also beside an error.
func raise(ctx context.Context, p *printer) (s *stage, err error) {
	s = &stage{p: p}
	p.head("Getting ready")
	t := p.liveTimeline()
	t.demo("compiling what is missing")
	built, err := build(ctx, p)
	if err != nil {
		return s, err
	}
	if s.dir, err = os.MkdirTemp("", "csi-reclaimer-demo-"); err != nil {
		return s, err
	}
	if err := s.startCluster(ctx, t, kubernetesVersion, controlplane.Options{}); err != nil {
		return s, err
	}
	t.demo("starting the CSI driver " + driverName)
	if err := s.startDriver(ctx, built.driver); err != nil {
		return s, err
	}
	t.demo("starting csi-reclaimer, with the rights of deploy/manifests and no more")
	if err := s.startSidecar(ctx, built.sidecar); err != nil {
		return s, err
	}
	s.maker = storage.Maker{Client: s.client, Driver: driverName, Namespace: "default", CSI: s.driver.Controller()}
	if err := s.makeClasses(ctx); err != nil {
		return s, err
	}
	t.demo("all up: API server " + s.cluster.URL())
	return s, nil
}

// build compiles what is missing and tells how far it is.
func build(ctx context.Context, p *printer) (b binaries, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	if _, err = controlplane.Build(ctx, kubernetesVersion, p.out); err != nil {
		return b, err
	}
	if b.driver, err = mockdriver.Build(ctx, p.out); err != nil {
		return b, err
	}
	b.sidecar, err = sidecar.Build(ctx, p.out)
	return b, err
}

// startCluster has a deadline of its own for each component.
func (s *stage) startCluster(ctx context.Context, t *timeline, version controlplane.Version, options controlplane.Options) (err error) {
	t.demo(fmt.Sprintf("starting etcd, kube-apiserver and kube-controller-manager, Kubernetes %s", version))
	if s.cluster, err = controlplane.Start(ctx, version, options); err != nil {
		return err
	}
	if s.client, err = kubernetes.NewForConfig(s.cluster.Admin()); err != nil {
		return err
	}
	s.admin, err = s.cluster.Kubeconfig(s.cluster.Admin())
	return err
}

func (s *stage) startDriver(ctx context.Context, binary string) (err error) {
	dir, err := s.folder("driver")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.driver, err = mockdriver.Start(ctx, mockdriver.Options{Binary: binary, Name: driverName, Dir: dir})
	return err
}

// startSidecar runs csi-reclaimer with the rights that deploy/ ships, and no more.
func (s *stage) startSidecar(ctx context.Context, binary string) error {
	dir, err := s.folder("csi-reclaimer")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace, kubeconfig, err := s.account(ctx, "csi-reclaimer")
	if err != nil {
		return err
	}
	if err := grant.Sidecar(ctx, s.client, namespace, "csi-reclaimer", "owner"); err != nil {
		return err
	}
	s.program, err = sidecar.Start(ctx, sidecar.Options{Binary: binary, Address: s.driver.Socket(), Kubeconfig: kubeconfig, Dir: dir,
		Env: []string{"POD_NAMESPACE=" + namespace}}) // where the in-flight log is kept
	if err != nil {
		return err
	}
	return s.program.WaitReady(ctx)
}

// account makes a service account in a namespace of its own, without any rights.
func (s *stage) account(ctx context.Context, name string) (namespace, kubeconfig string, err error) {
	if namespace, err = s.cluster.CreateNamespace(ctx, name); err != nil {
		return "", "", err
	}
	account, err := s.cluster.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return "", "", err
	}
	kubeconfig, err = s.cluster.Kubeconfig(account)
	return namespace, kubeconfig, err
}

func (s *stage) folder(name string) (string, error) {
	dir := filepath.Join(s.dir, name)
	return dir, os.Mkdir(dir, 0o755)
}

// lower ends everything and removes what it left on disk, save for logs that were asked for.
func (s *stage) lower() error {
	var errs []error
	if s.program != nil {
		errs = append(errs, s.program.Stop())
	}
	if s.driver != nil {
		errs = append(errs, s.driver.Stop())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	if s.dir != "" && !s.logs {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", errUntidy, err)
	}
	return nil
}

// explain prints what may tell why something went wrong.
func (s *stage) explain() {
	if s.program == nil {
		return
	}
	s.p.head("The last lines of " + filepath.Base(s.program.LogPath()))
	s.p.raw(s.program.LogTail(30))
}

// saveLogs has the logs outlive the demo, and says where they are.
func (s *stage) saveLogs() {
	if s.dir == "" {
		return
	}
	s.logs = true
	if s.cluster != nil {
		for _, c := range []*controlplane.Component{s.cluster.Etcd, s.cluster.APIServer, s.cluster.ControllerManager} {
			if err := copyFile(c.LogFile(), filepath.Join(s.dir, c.Name()+".log")); err != nil {
				s.p.say("a log is missing: " + err.Error())
			}
		}
	}
	s.p.head("All logs, records and volumes of this act stay, until you remove them, in")
	s.p.say(s.dir)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// keep leaves everything up, csi-reclaimer too, says how to look around, and returns when it
// is told to end.
func (s *stage) keep(ctx context.Context) error {
	if err := s.program.Restart(); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.program.WaitReady(waiting); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.p.head("Everything is still up, csi-reclaimer too")
	s.p.raw("  export KUBECONFIG=" + s.admin)
	s.p.say("Try, in another terminal:")
	s.p.raw("  kubectl get pv,pvc")
	s.p.raw("  kubectl get events --field-selector involvedObject.kind=PersistentVolume")
	s.p.raw("  ls " + s.driver.VolumesDir())
	s.p.raw("  tail -f " + s.program.LogPath())
	s.p.raw("  tail -f " + s.driver.LedgerPath())
	s.p.say("Let the retained volume go, and look at the disk again:")
	s.p.raw(`  kubectl patch pv ` + s.retained + ` -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'`)
	s.p.say("Ctrl-C stops it all and removes it.")
	<-ctx.Done()
	return nil
}
