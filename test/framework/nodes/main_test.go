//go:build linux

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

const (
	// roleVariable makes the test binary play a run that gets killed.
	roleVariable = "NODES_TEST_ROLE"
	// testTimeout bounds each wait, far above its usual time.
	testTimeout = 2 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		playKilledRun()
	}
	os.Exit(m.Run())
}

// environment is a control plane with a namespace.
type environment struct {
	*testing.T
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	objects.Maker
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	nodes.SkipUnlessSupported(t)
	plane := controlplane.ForTest(t, controlplane.Newest, controlplane.Options{Scheduler: true})
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	env := &environment{T: t, plane: plane, client: client}
	env.Client = client
	env.Namespace, err = plane.CreateNamespace(t.Context(), "nodes")
	env.must(err)
	return env
}

func (env *environment) must(err error) {
	env.Helper()
	if err != nil {
		env.Fatal(err)
	}
}

func (env *environment) eventually(what string, question func(ctx context.Context) error) {
	env.Helper()
	ctx, cancel := context.WithTimeout(env.Context(), testTimeout)
	defer cancel()
	for {
		err := question(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			env.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// forSubtest is the environment for a subtest.
func (env *environment) forSubtest(t *testing.T) *environment {
	sub := *env
	sub.T = t
	return &sub
}

func (env *environment) withTimeout() context.Context {
	ctx, cancel := context.WithTimeout(env.Context(), testTimeout)
	env.Cleanup(cancel)
	return ctx
}

var errNotYet = errors.New("not yet")

// playKilledRun starts a node with a pod that ignores SIGTERM, prints its folder, and waits to be killed.
func playKilledRun() {
	ctx := context.Background()
	plane, err := controlplane.Start(ctx, controlplane.Newest, controlplane.Options{})
	if err != nil {
		panic(err)
	}
	pool, err := nodes.Start(ctx, plane, nodes.Options{Names: []string{"node"}})
	if err != nil {
		panic(err)
	}
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		panic(err)
	}
	maker := objects.Maker{Client: client, Namespace: "default"}
	pod, err := maker.MakePod(ctx, objects.PodSpec{Name: "pod", Node: "node", Change: pausing})
	if err != nil {
		panic(err)
	}
	if _, err := pod.WaitRunning(ctx); err != nil {
		panic(err)
	}
	fmt.Println("folder", pool.Dir())
	time.Sleep(time.Hour)
}
