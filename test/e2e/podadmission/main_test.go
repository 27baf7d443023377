//go:build unix

package podadmission

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// versionVariable names another Kubernetes version to run against, as in the other suites.
const versionVariable = "KUBERNETES"

// cluster is the control plane that all tests share; client is its administrator's.
var (
	cluster *controlplane.ControlPlane
	client  *kubernetes.Clientset
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	version := controlplane.V1_36
	if name := os.Getenv(versionVariable); name != "" {
		var err error
		if version, err = controlplane.ParseVersion(name); err != nil {
			fmt.Fprintln(os.Stderr, versionVariable+":", err)
			return 1
		}
	}
	var err error
	if cluster, err = controlplane.Start(ctx, version, controlplane.Options{
		Scheduler: true, ControllerManagerQPS: 5000, Progress: os.Stderr,
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if client, err = kubernetes.NewForConfig(cluster.Admin()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stopGuard, err := install(ctx)
	defer stopGuard()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// install applies what an operator applies for this version. stop ends the program that it needs.
func install(ctx context.Context) (stop func(), err error) {
	stop = func() {}
	for _, file := range []string{crdFile, policiesFile, holdFile} {
		all, err := readManifest(file)
		if err != nil {
			return stop, err
		}
		if file == holdFile && cluster.Version() != controlplane.V1_36 {
			return installWebhook(ctx)
		}
		if err := apply(ctx, all...); err != nil {
			return stop, err
		}
	}
	return stop, nil
}

// installWebhook points the API server to volume-guard, and starts it.
func installWebhook(ctx context.Context) (stop func(), err error) {
	stop = func() {}
	address, err := freeAddress()
	if err != nil {
		return stop, err
	}
	hooks, err := readManifest(holdWebhookFile)
	if err != nil {
		return stop, err
	}
	list, _, _ := unstructured.NestedSlice(hooks[0].Object, "webhooks")
	for _, hook := range list {
		hook, _ := hook.(map[string]any)
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return stop, err
		}
		// There is no Service on this machine.
		_, port, _ := net.SplitHostPort(address)
		hook["clientConfig"] = map[string]any{"url": "https://localhost:" + port + path}
	}
	if err := unstructured.SetNestedSlice(hooks[0].Object, list, "webhooks"); err != nil {
		return stop, err
	}
	if err := apply(ctx, hooks...); err != nil {
		return stop, err
	}
	return startVolumeGuard(ctx, address)
}

// startVolumeGuard starts the program with its webhooks.
func startVolumeGuard(ctx context.Context, address string) (stop func(), err error) {
	stop = func() {}
	_, err = client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}},
		metav1.CreateOptions{})
	if err != nil {
		return stop, err
	}
	binary, err := program.Build(ctx, account, os.Stderr, "-race")
	if err != nil {
		return stop, err
	}
	// Its permissions are tested with those of its other webhooks.
	kubeconfig, err := cluster.Kubeconfig(cluster.Admin())
	if err != nil {
		return stop, err
	}
	g, err := program.Start(ctx, program.Options{Name: account, Binary: binary, Args: []string{
		"--kubeconfig=" + kubeconfig, "--leader-election-namespace=" + home, "--controllers=-intree",
		"--webhook-address=" + address, "--webhook-names=localhost",
	}})
	if err != nil {
		return stop, err
	}
	stop = func() {
		if err := g.Terminate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return stop, g.WaitReady(ctx)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
