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

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

const (
	// patience bounds every wait for something that should take well under a second, on a machine that may keep a program
	// waiting for many.
	patience = 2 * time.Minute
	// buildPatience bounds all compiling, far above its time on one slow processor with a slow network.
	buildPatience = 2 * time.Hour
)

const (
	driverName        = "demo.csi-reclaimer.io"
	kubernetesVersion = controlplane.Newest
	sidecarAccount    = "csi-reclaimer"
)

// environment is all that the demo starts for an act.
type environment struct {
	p       *printer
	dir     string
	logs    bool // the folder stays, with the logs in it
	cluster *controlplane.ControlPlane
	driver  *mockdriver.Driver // of the first act alone
	program *program.Program   // the one to be shown: csi-reclaimer or volume-guard
	admin   string             // path of a kubeconfig
	// home is the namespace of csi-reclaimer's service account, kubeconfig the account's.
	home, kubeconfig string
	client           kubernetes.Interface
	maker            objects.Maker
	guard            program.Options // how to start volume-guard, in the third act
	// retained is the PV that is kept in the end.
	retained string
}

// binaries are the compiled programs of the project.
type binaries struct{ driver, sidecar string }

// setUp builds and starts everything, on a control plane with these options. With an error, the environment still holds
// the started parts.
func setUp(ctx context.Context, p *printer, plane controlplane.Options) (env *environment, err error) {
	env = &environment{p: p}
	p.head("Getting ready")
	t := p.liveTimeline()
	t.demo("compiling missing programs")
	built, err := build(ctx, p, plane)
	if err != nil {
		return env, err
	}
	if env.dir, err = os.MkdirTemp("", "csi-reclaimer-demo-"); err != nil {
		return env, err
	}
	if err := env.startCluster(ctx, t, kubernetesVersion, plane); err != nil {
		return env, err
	}
	t.demo("starting the CSI driver " + driverName)
	if err := env.startDriver(ctx, built.driver); err != nil {
		return env, err
	}
	t.demo("starting csi-reclaimer, with the permissions of deploy/manifests and no more")
	if err := env.startSidecar(ctx, built.sidecar); err != nil {
		return env, err
	}
	env.maker = objects.Maker{Client: env.client, Driver: driverName, Namespace: "default", CSI: env.driver.Controller()}
	if err := env.makeClasses(ctx); err != nil {
		return env, err
	}
	t.demo("all up: API server " + env.cluster.URL())
	return env, nil
}

// build compiles the missing programs and reports its progress.
func build(ctx context.Context, p *printer, plane controlplane.Options) (b binaries, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	buildPlane := controlplane.Build
	if plane.Lean {
		buildPlane = controlplane.BuildLean
	}
	if _, err = buildPlane(ctx, kubernetesVersion, p.out); err != nil {
		return b, err
	}
	if b.driver, err = mockdriver.Build(ctx, p.out); err != nil {
		return b, err
	}
	b.sidecar, err = program.BuildSidecar(ctx, p.out)
	return b, err
}

// startCluster has a deadline of its own for each component.
func (env *environment) startCluster(ctx context.Context, t *timeline, version controlplane.Version,
	options controlplane.Options) (err error) {
	controllers := "kube-controller-manager"
	if options.Lean {
		controllers = "its controllers of PVs and claims"
	}
	t.demo(fmt.Sprintf("starting etcd, kube-apiserver and %s, Kubernetes %s", controllers, version))
	if env.cluster, err = controlplane.Start(ctx, version, options); err != nil {
		return err
	}
	if env.client, err = kubernetes.NewForConfig(env.cluster.Admin()); err != nil {
		return err
	}
	env.admin, err = env.cluster.Kubeconfig(env.cluster.Admin())
	return err
}

func (env *environment) startDriver(ctx context.Context, binary string) (err error) {
	dir, err := env.folder("driver")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	env.driver, err = mockdriver.Start(ctx, mockdriver.Options{Binary: binary, Name: driverName, Dir: dir})
	return err
}

// startSidecar runs csi-reclaimer with the rights that deploy/ ships, and no more.
func (env *environment) startSidecar(ctx context.Context, binary string) error {
	dir, err := env.folder("csi-reclaimer")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace, kubeconfig, err := env.account(ctx, sidecarAccount)
	if err != nil {
		return err
	}
	env.home, env.kubeconfig = namespace, kubeconfig
	if err := rbac.GrantSidecar(ctx, env.client, namespace, sidecarAccount, "owner"); err != nil {
		return err
	}
	env.program, err = program.StartSidecar(ctx, program.SidecarOptions{Binary: binary, Address: env.driver.Socket(),
		Kubeconfig: kubeconfig, Dir: dir,
		Env: []string{"POD_NAMESPACE=" + namespace}}) // where the in-flight log is kept
	if err != nil {
		return err
	}
	return env.program.WaitReady(ctx)
}

// account makes a service account in a namespace of its own, without any rights.
func (env *environment) account(ctx context.Context, name string) (namespace, kubeconfig string, err error) {
	if namespace, err = env.cluster.CreateNamespace(ctx, name); err != nil {
		return "", "", err
	}
	account, err := env.cluster.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return "", "", err
	}
	kubeconfig, err = env.cluster.Kubeconfig(account)
	return namespace, kubeconfig, err
}

func (env *environment) folder(name string) (string, error) {
	dir := filepath.Join(env.dir, name)
	return dir, os.Mkdir(dir, 0o755)
}

// tearDown ends everything and removes its files, except for requested logs.
func (env *environment) tearDown() error {
	var errs []error
	if env.program != nil {
		errs = append(errs, env.program.Stop())
	}
	if env.driver != nil {
		errs = append(errs, env.driver.Stop())
	}
	if env.cluster != nil {
		errs = append(errs, env.cluster.Stop())
	}
	if env.dir != "" && !env.logs {
		errs = append(errs, os.RemoveAll(env.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", errUntidy, err)
	}
	return nil
}

// explain prints logs that may show the reason of a failure.
func (env *environment) explain() {
	if env.program == nil {
		return
	}
	env.p.head("The last lines of " + filepath.Base(env.program.LogPath()))
	env.p.raw(env.program.LogTail(30))
}

// saveLogs has the logs outlive the demo, and says where they are.
func (env *environment) saveLogs() {
	if env.dir == "" {
		return
	}
	env.logs = true
	if env.cluster != nil {
		for _, c := range []*controlplane.Component{env.cluster.Etcd, env.cluster.APIServer, env.cluster.ControllerManager} {
			if err := copyFile(c.LogFile(), filepath.Join(env.dir, c.Name()+".log")); err != nil {
				env.p.say("a log is missing: " + err.Error())
			}
		}
	}
	env.p.head("All logs, records and volumes of this act stay, until you remove them, in")
	env.p.say(env.dir)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
