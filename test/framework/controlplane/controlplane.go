//go:build unix

// Package controlplane runs a real Kubernetes control plane for tests and demos: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler. Each is a separate process on loopback, without a container engine and
// without root.
//
// A controller depends on the API server's admission and on the concurrent work of the stock controllers, so nothing
// here is a fake. The components are compiled from their Go modules. Each Kubernetes version is a nested module
// ([Build]), because one module can hold only one Kubernetes. [Start] runs a control plane in its own folder, and any
// number can run at once. Each component can be killed, paused and restarted alone ([Component]). Clients exist for any
// user, group or service account, with the RBAC of a cluster, and the audit log records the requests.
//
// A control plane has no kubelet. Package fakenode writes a kubelet's objects and statuses, and package
// test/framework/nodes runs real kubelets, where this machine allows it.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// portAttempts is how often other ports are tried when a program takes one between our look and our use.
const portAttempts = 5

// ControlPlane is a running Kubernetes control plane. Its methods may be called from any goroutine.
type ControlPlane struct {
	// Etcd, APIServer, ControllerManager and Scheduler are its processes. A component that the options leave out is nil.
	Etcd, APIServer, ControllerManager, Scheduler *Component

	version   Version
	options   Options
	folder    folder
	authority *authority
	url       string
	etcd      string
	admin     *rest.Config
	audit     auditTails

	stop    sync.Once
	stopErr error
}

// Start compiles the control plane, if need be, starts it and returns once it can be used: the API server
// is ready, the controllers run, and the namespace "default" exists with, where
// its controller runs, its service account. ctx bounds the start alone; the control plane runs until
// [ControlPlane.Stop] or the end of the calling program.
func Start(ctx context.Context, version Version, options Options) (*ControlPlane, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("start control plane %s: %w", version, err)
	}
	build := Build
	if options.Lean {
		build = BuildLean
	}
	binary, err := build(ctx, version, options.Progress)
	if err != nil {
		return nil, err
	}
	cp, err := startBinary(ctx, binary, version, options, FreePorts)
	if err != nil {
		return nil, fmt.Errorf("start control plane %s: %w", version, err)
	}
	return cp, nil
}

// startBinary is Start of a compiled control plane, with the choice of ports left to the caller.
func startBinary(ctx context.Context, binary string, version Version, options Options,
	choosePorts func(int) ([]int, error)) (*ControlPlane, error) {
	dir, err := openFolder(options.Dir, options.Keep)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{version: version, options: options, folder: dir}
	files, err := cp.writeFiles(time.Now())
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	for attempt := 1; ; attempt++ {
		err = cp.launch(ctx, binary, files, choosePorts)
		if err == nil {
			return cp, nil
		}
		cp.endAll()
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return nil, errors.Join(err, dir.close())
		}
	}
}

// launch starts all components on ports of their own, as many at a time as can be: the API server waits for its etcd
// by itself, but the other components end where they find no API server.
func (cp *ControlPlane) launch(ctx context.Context, binary string, files files,
	choosePorts func(int) ([]int, error)) error {
	ports, err := choosePorts(portsNeeded)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(files.etcdData); err != nil { // of an attempt on other ports
		return err
	}
	cp.etcd = fmt.Sprintf("127.0.0.1:%d", ports[portEtcd])
	cp.url = fmt.Sprintf("https://127.0.0.1:%d", ports[portAPIServer])
	if cp.admin, err = cp.ConfigFor(adminUser, mastersGroup); err != nil {
		return err
	}
	if err := cp.define(binary, files, ports); err != nil {
		return err
	}

	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() error { return cp.Etcd.start(firstCtx) })
	first.Go(func() error { return cp.APIServer.start(firstCtx) })
	if err := first.Wait(); err != nil {
		return err
	}
	second, secondCtx := errgroup.WithContext(ctx)
	for _, c := range []*Component{cp.ControllerManager, cp.Scheduler} {
		if c != nil {
			second.Go(func() error { return c.start(secondCtx) })
		}
	}
	second.Go(func() error { return cp.waitUsable(secondCtx) })
	if cp.options.Snapshots {
		second.Go(func() error { return cp.InstallSnapshots(secondCtx) })
	}
	return second.Wait()
}

// waitUsable waits for the objects that each test needs: the namespace "default" and, where its controller runs, the
// service account for the namespace's pods.
func (cp *ControlPlane) waitUsable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return err
	}
	return poll(ctx, func() error {
		if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			return err
		}
		if !cp.options.runs(serviceAccountController) {
			return nil
		}
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Version is the version that runs.
func (cp *ControlPlane) Version() Version { return cp.version }

// Dir is the folder with the data, keys and logs. Stop removes it unless it is to be kept.
func (cp *ControlPlane) Dir() string { return cp.folder.path }

// URL is the API server's address.
func (cp *ControlPlane) URL() string { return cp.url }

// EtcdAddress is host and port of etcd, which speaks gRPC without TLS. Objects written there are neither validated nor
// defaulted. It serves to fill a cluster with more objects than the API server accepts in a reasonable time.
func (cp *ControlPlane) EtcdAddress() string { return cp.etcd }

// Stop kills all components and removes the folder. No component needs a graceful end, since the data is removed, too.
// Further calls return the first call's result.
func (cp *ControlPlane) Stop() error {
	cp.stop.Do(func() {
		cp.endAll()
		if err := cp.folder.close(); err != nil {
			cp.stopErr = fmt.Errorf("stop control plane %s: %w", cp.version, err)
		}
	})
	return cp.stopErr
}

func (cp *ControlPlane) endAll() {
	var ending sync.WaitGroup
	for _, c := range []*Component{cp.Scheduler, cp.ControllerManager, cp.APIServer, cp.Etcd} {
		ending.Go(c.end)
	}
	ending.Wait()
}

// CreateNamespace creates a namespace whose name begins with prefix, and returns its name. If the controller for
// service accounts runs, it waits for the account that the namespace's pods need.
func (cp *ControlPlane) CreateNamespace(ctx context.Context, prefix string) (string, error) {
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return "", fmt.Errorf("create namespace %s: %w", prefix, err)
	}
	created, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create namespace %s: %w", prefix, err)
	}
	if !cp.options.runs(serviceAccountController) {
		return created.Name, nil
	}
	err = poll(ctx, func() error {
		_, err := client.CoreV1().ServiceAccounts(created.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("create namespace %s: wait for its service account: %w", created.Name, err)
	}
	return created.Name, nil
}

// poll repeats question until it has no error. An answer that waiting does not change ends it at once.
func poll(ctx context.Context, question func() error) error {
	ticker := time.NewTicker(readyPollInterval)
	defer ticker.Stop()
	var last error // the last answer from before ctx ended: later errors say only that
	for {
		err := question()
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// ForTest starts a control plane that ends with the test.
func ForTest(t process.TB, version Version, o Options) *ControlPlane {
	t.Helper()
	o.Progress = os.Stderr
	plane, err := Start(t.Context(), version, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Errorf("stop control plane: %v", err)
		}
	})
	return plane
}
