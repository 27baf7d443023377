package fakenode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// patience bounds the registration of a node and the removal of its objects, far above their usual time.
const patience = 2 * time.Minute

// Cluster is the part of a control plane that ForTest needs.
type Cluster interface {
	// ConfigFor returns a configuration for a user in groups.
	ConfigFor(user string, groups ...string) (*rest.Config, error)
	// Admin returns a configuration for a user with all permissions.
	Admin() *rest.Config
}

// Play plays a node until stop is called or ctx ends, and returns once it is registered. stop returns how it has ended.
func Play(ctx context.Context, cluster Cluster, name string, config Config) (node *Node, stop func() error, err error) {
	user, err := cluster.ConfigFor(User(name), Group)
	if err == nil {
		node, err = New(user, name, config)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("play node %q: %w", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	registration := time.NewTimer(patience)
	defer registration.Stop()
	select {
	case <-node.Registered():
		return node, stop, nil
	case <-registration.C:
		return nil, nil, errors.Join(fmt.Errorf("play node %q: not registered after %s", name, patience), stop())
	case <-ctx.Done():
		return nil, nil, errors.Join(fmt.Errorf("play node %q: %w", name, context.Cause(ctx)), stop())
	}
}

// ForTest plays a node until the test ends, and returns once it is registered. Its objects are removed at the end, so
// that no scheduler sends pods of another test to it. silence ends it before that, as a machine ends that loses power,
// and leaves its objects.
func ForTest(t process.TB, cluster Cluster, name string, config Config) (node *Node, silence func()) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		t.Fatalf("play node %q: %v", name, err)
	}
	node, stop, err := Play(t.Context(), cluster, name, config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	silence = func() {
		if err := stop(); err != nil {
			t.Errorf("play node %q: %v", name, err)
		}
	}
	t.Cleanup(func() {
		silence()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := Remove(ctx, admin, name); err != nil {
			t.Errorf("%v", err)
		}
	})
	return node, silence
}

// Remove removes the objects of a node that has ended: its Node, CSINode and Lease. It is for an administrator's
// client, as kubectl delete node is; a node that continues would write some of them again.
func Remove(ctx context.Context, client kubernetes.Interface, name string) error {
	for what, remove := range map[string]func(context.Context, string, metav1.DeleteOptions) error{
		"Node":    client.CoreV1().Nodes().Delete,
		"CSINode": client.StorageV1().CSINodes().Delete,
		"Lease":   client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete,
	} {
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove %s %q: %w", what, name, err)
		}
	}
	return nil
}
