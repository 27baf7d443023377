//go:build unix

// Package suite starts the control plane that the tests of one package share, and installs an operator's objects there.
package suite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// Home and Account are where the manifests have volume-guard. Account is the program's name, too.
const Home, Account = "csi-reclaimer", "volume-guard"

// versionVariable names another Kubernetes version to run against, such as v1.30.
const versionVariable = "KUBERNETES"

// Version returns the Kubernetes version to run against.
func Version() (controlplane.Version, error) {
	name := os.Getenv(versionVariable)
	if name == "" {
		return controlplane.Newest, nil
	}
	version, err := controlplane.ParseVersion(name)
	if err != nil {
		return version, fmt.Errorf("%s: %w", versionVariable, err)
	}
	return version, nil
}

// Suite is the state that the tests of a package share.
type Suite struct {
	// Options are the control plane's options.
	Options controlplane.Options
	// Install receives the control plane and its administrator's client, and applies manifests.
	Install func(ctx context.Context, cluster *controlplane.ControlPlane, admin *kubernetes.Clientset) error
	// Webhooks are the manifests of webhooks for API servers before 1.36. They are applied after Install, and volume-guard
	// answers them, in Home. Default none.
	Webhooks []string
}

// Main runs the tests and returns the exit status, for TestMain.
func (s Suite) Main(m *testing.M) int {
	ctx, stop := Interruptible()
	defer stop()
	status, err := s.run(ctx, m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

func (s Suite) run(ctx context.Context, m *testing.M) (status int, _ error) {
	version, err := Version()
	if err != nil {
		return 0, err
	}
	options := s.Options
	options.ControllerManagerArgs = append(slices.Clone(options.ControllerManagerArgs), controlplane.BindOften)
	cluster, err := controlplane.Start(ctx, version, options)
	if err != nil {
		return 0, err
	}
	stops := []func() error{cluster.Stop}
	stop := sync.OnceFunc(func() {
		for _, one := range slices.Backward(stops) {
			end(one)
		}
	})
	defer stop()
	admin, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		return 0, err
	}
	if len(s.Webhooks) > 0 {
		home := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Home}}
		if _, err := admin.CoreV1().Namespaces().Create(ctx, home, metav1.CreateOptions{}); err != nil {
			return 0, err
		}
	}
	if err := s.Install(ctx, cluster, admin); err != nil {
		return 0, err
	}
	if len(s.Webhooks) > 0 && version.Before(controlplane.V1_36) {
		guard, err := AnswerWebhooks(ctx, cluster, Home, s.Webhooks...)
		if guard != nil {
			stops = append(stops, guard.Terminate)
		}
		if err != nil {
			return 0, err
		}
	}
	// The tests own nothing but objects of this API server, so an interrupt ends them with it.
	unhook := context.AfterFunc(ctx, func() {
		stop()
		os.Exit(1)
	})
	defer unhook()
	return m.Run(), nil
}

// end reports that something did not end as it should.
func end(stop func() error) {
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// AnswerWebhooks applies manifests of webhooks, and starts a volume-guard that answers them and does nothing else. Its
// certificates are in the namespace. It returns the program, once it was started, with an error, too.
func AnswerWebhooks(ctx context.Context, cluster *controlplane.ControlPlane, namespace string,
	files ...string) (*program.Program, error) {
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(ports[0])
	if err := manifests.ApplyWebhooks(ctx, cluster.Admin(), port, files...); err != nil {
		return nil, err
	}
	binary, err := program.Build(ctx, Account, os.Stderr, process.RaceFlags()...)
	if err != nil {
		return nil, err
	}
	// The test of its other webhooks covers its permissions.
	kubeconfig, err := cluster.Kubeconfig(cluster.Admin())
	if err != nil {
		return nil, err
	}
	guard, err := program.Start(ctx, program.Options{Name: Account, Binary: binary, Args: []string{
		"--kubeconfig=" + kubeconfig, "--leader-election-namespace=" + namespace, "--leader-election=false",
		"--controllers=-intree", "--webhook-address=" + net.JoinHostPort("127.0.0.1", port), "--webhook-names=localhost",
	}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return guard, guard.WaitReady(ctx)
}

// FreeAddress returns a loopback address with a free port: see [controlplane.FreePorts].
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// PodAddress returns an address of this machine that an API server accepts as a pod's: not a loopback one. It returns
// nil, and says so, without such an address.
func PodAddress(t testing.TB) net.IP {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if of, ok := a.(*net.IPNet); ok && of.IP.To4() != nil && of.IP.IsGlobalUnicast() {
			return of.IP
		}
	}
	t.Log("this machine has no address but the loopback's: no pod is reached through the API server")
	return nil
}

// Must ends the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitTimeout bounds each wait. It is far above the usual time, even on a busy machine.
const waitTimeout = 2 * time.Minute

// Until waits for a condition.
func Until(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, waitTimeout, true,
		func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Verdict is the outcome of a request.
type Verdict struct {
	// RefusedBy and WarnedBy are the policies that did, and Text is their message.
	RefusedBy, WarnedBy, Text string
	// Err is any other error.
	Err error
}

// String returns "admitted", who has refused the request or has warned of it, or the other error.
func (v Verdict) String() string {
	switch {
	case v.Err != nil:
		return v.Err.Error()
	case v.RefusedBy != "":
		return "refused by " + v.RefusedBy
	case v.WarnedBy != "":
		return "warned by " + v.WarnedBy
	}
	return "admitted"
}

// Judge returns the outcome of a request that was answered with an error or none, and with warnings.
func Judge(err error, warnings ...string) (v Verdict) {
	for _, text := range warnings {
		if policy := PolicyIn(text); policy != "" {
			v.WarnedBy, v.Text = policy, text
		}
	}
	switch {
	case err == nil:
	case apierrors.IsForbidden(err) && PolicyIn(err.Error()) != "":
		v.RefusedBy, v.Text = PolicyIn(err.Error()), err.Error()
	default:
		v.Err = err
	}
	return v
}

// PolicyIn returns the name of the policy that a refusal or a warning names, empty for none.
func PolicyIn(text string) string {
	_, rest, found := strings.Cut(text, "ValidatingAdmissionPolicy '")
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, "'")
	return name
}

// ErrInterrupted is the cause of the end of a test that a signal ends.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that ends at the first SIGINT or SIGTERM, so that tests clean up. The next signal has
// its default action. stop restores that action at once.
func Interruptible() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Context returns the context of a test, which ends with the test, after the limit, or with interrupted, which is nil
// for a suite that does not handle signals this way.
func Context(interrupted context.Context, t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	if interrupted == nil {
		interrupted = context.Background()
	}
	bounded, end := context.WithTimeout(t.Context(), limit)
	ctx, cancel := context.WithCancelCause(bounded)
	unhook := context.AfterFunc(interrupted, func() { cancel(ErrInterrupted) })
	t.Cleanup(func() { unhook(); cancel(nil); end() })
	return ctx
}

// Warnings keeps the API server's warnings to a client, as the WarningHandler of its configuration.
type Warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader takes a warning.
func (w *Warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// Take returns the warnings since its last call.
func (w *Warnings) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}
