//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// roleVariable makes the test binary play a test run that gets killed.
const roleVariable = "CONTROLPLANE_TEST_ROLE"

// testTimeout bounds each wait. Events come within a second; slow machines and the race detector get more.
const testTimeout = 3 * time.Minute

// shared is the control plane of all tests that need an ordinary one and restore its state.
var shared struct {
	start sync.Once
	cp    *ControlPlane
	err   error
}

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		playKilledRun()
	}
	code := m.Run()
	if shared.cp != nil {
		if err := shared.cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// sharedControlPlane starts the shared control plane for the first test that asks.
func sharedControlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	shared.start.Do(func() {
		shared.cp, shared.err = Start(context.Background(), Newest, Options{AuditLog: true, Progress: os.Stderr})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cp
}

// start starts a control plane that the test may do to as it likes.
func start(t *testing.T, version Version, options Options) *ControlPlane {
	t.Helper()
	options.Progress = os.Stderr
	cp, err := Start(t.Context(), version, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func namespace(t *testing.T, cp *ControlPlane) string {
	t.Helper()
	name, err := cp.CreateNamespace(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

var errNotYet = errors.New("not yet")

// eventually repeats question until it has no error.
func eventually(t *testing.T, what string, question func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := poll(ctx, func() error { return question(ctx) }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// errNotYetBecause hides from poll that err looks final.
func errNotYetBecause(err error) error { return fmt.Errorf("%w: %v", errNotYet, err) } //nolint:errorlint // on purpose
