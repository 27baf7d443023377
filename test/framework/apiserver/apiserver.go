//go:build unix

// Package apiserver is the bench of tests against a real API server without controllers, whose part the tests play. All
// tests of a package share the API server, and each has a namespace there.
package apiserver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// Shared is the API server, in tests of a package whose TestMain calls Main.
var Shared *controlplane.ControlPlane

// Admin returns a configuration with all permissions, without a limit on requests.
func Admin() *rest.Config { return Shared.Admin() }

// Main starts the API server, runs the tests, and returns the exit status, for TestMain. prepare, which may be nil, is
// called before the tests. The admission plugin ServiceAccount is off, since no controller creates the accounts that
// pods need, and these plugins are off, too.
func Main(m *testing.M, prepare func(context.Context) error, withoutAdmission ...string) int {
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, controlplane.Newest, controlplane.Options{
		NoControllerManager: true, Progress: os.Stderr, APIServerArgs: []string{
			"--disable-admission-plugins=" + strings.Join(append([]string{"ServiceAccount"}, withoutAdmission...), ",")},
	})
	if err == nil {
		Shared = cp
		defer func() { _ = cp.Stop() }()
		if prepare != nil {
			err = prepare(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Bench is a namespace of the API server.
type Bench struct {
	*testing.T
	Client    *kubernetes.Clientset
	Namespace string
}

// New creates a namespace with these labels. prefix begins its name.
func New(t *testing.T, prefix string, labels map[string]string) *Bench {
	t.Helper()
	b := &Bench{T: t}
	var err error
	b.Client, err = kubernetes.NewForConfig(Admin())
	b.Must(err)
	namespace, err := b.Client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: labels}}, metav1.CreateOptions{})
	b.Must(err)
	b.Namespace = namespace.Name
	return b
}

// Must fails the test on an error.
func (b *Bench) Must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// Until waits for a condition.
func (b *Bench) Until(what string, is func() bool) {
	b.Helper()
	Until(b.Context(), b, what, is)
}

// Until waits for a condition, or fails the test.
func Until(ctx context.Context, t testing.TB, what string, is func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) { return is(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Run runs a controller until the test ends, or until stop is called.
func (b *Bench) Run(c interface {
	Run(ctx context.Context) error
}) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	running := true
	stop = func() {
		b.Helper()
		if running {
			running = false
			cancel()
			b.Must(<-ended)
		}
	}
	b.Cleanup(stop)
	return stop
}

// CreateClaim creates a claim of a class that does not exist.
func (b *Bench) CreateClaim(name string, changes ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	b.Helper()
	o := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	for _, change := range changes {
		change(o)
	}
	o, err := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Create(b.Context(), o, metav1.CreateOptions{})
	b.Must(err)
	return o
}

// CreatePod creates a pod that uses a claim, without a node.
func (b *Bench) CreatePod(name, claim string, changes ...func(*v1.Pod)) *v1.Pod {
	b.Helper()
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", Image: "none"}},
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
	}
	for _, change := range changes {
		change(o)
	}
	o, err := b.Client.CoreV1().Pods(b.Namespace).Create(b.Context(), o, metav1.CreateOptions{})
	b.Must(err)
	return o
}
