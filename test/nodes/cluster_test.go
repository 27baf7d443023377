//go:build linux

package nodes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"
)

// cluster is a separate control plane with two nodes, whose pods reach it as in any cluster, and a terminal.
type cluster struct {
	*fixture.Environment
	pool *nodes.Pool
	env  []string // of the terminal
}

// imagesVersion is the version of the images under test, as in docs/tutorial.md.
const imagesVersion = "v0.1.0"

// imagesOnce builds the images of this platform, with "make images", in the directory that it returns.
var imagesOnce = sync.OnceValues(func() (string, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".build", "images-of-nodes")
	var complaints bytes.Buffer
	if err := process.Run(context.Background(), process.Command{Name: "make images", Path: "make", Args: []string{"images",
		"IMAGES=" + dir, "VERSION=" + imagesVersion, "IMAGE_PLATFORMS=linux/" + runtime.GOARCH, "ONLY=", "PUSH=",
		"REVISION=test", "SOURCE_DATE_EPOCH=1700000000"}, Dir: root, Tee: &complaints}); err != nil {
		return "", fmt.Errorf("%w\n%s", err, complaints.String())
	}
	return dir, nil
})

// newCluster starts a cluster, and gives its nodes the images of all programs.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	fixture.NewestOnly(t, fixture.OwnVersions)
	nodes.SkipUnlessSupported(t)
	images, err := imagesOnce()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Environment: fixture.NewWithControlPlane(t, fixture.Version(), controlplane.Options{Scheduler: true})}
	c.pool = nodes.ForTest(t, c.Plane, nodes.Options{Names: []string{node1, node2}, PodNetwork: true, Progress: os.Stderr})
	for program := range saysVersionAs {
		c.Must(c.pool.ImportImages(c.Ctx, filepath.Join(images, program, program+".tar")))
	}
	c.env, err = terminal.Environment(c.Ctx, t.TempDir(), c.Plane.Admin())
	c.Must(err)
	t.Cleanup(c.showPods)
	return c
}

// run runs a program of the terminal at the root of the project.
func (c *cluster) run(name string, args ...string) {
	c.T.Helper()
	root := process.RootForTest(c.T)
	var out, complaints bytes.Buffer
	// sh finds the program in the terminal's PATH.
	err := process.Run(c.WithTimeout(), process.Command{Name: name, Path: "sh",
		Args: append([]string{"-c", `"$0" "$@"`, name}, args...), Env: c.env, Dir: root, Stdout: &out, Tee: &complaints})
	if err != nil {
		c.T.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), complaints.String())
	}
}

// showPods prints the state and the logs of the pods, if the test has failed.
func (c *cluster) showPods() {
	if !c.T.Failed() {
		return
	}
	ctx := c.CleanupContext()
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.T.Log(err)
		return
	}
	for _, pod := range pods.Items {
		c.T.Logf("pod %s/%s on %q: %s %+v", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase,
			pod.Status.ContainerStatuses)
		if n := c.pool.Node(pod.Spec.NodeName); n != nil {
			text, err := n.PodLog(ctx, &pod)
			c.T.Logf("%s\n%v", text, err)
		}
	}
	events, err := c.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.T.Log(err)
		return
	}
	for _, e := range events.Items {
		if e.Type != v1.EventTypeNormal {
			c.T.Logf("Event about %s %s/%s: %s: %s", e.InvolvedObject.Kind, e.Namespace, e.InvolvedObject.Name, e.Reason,
				e.Message)
		}
	}
}

// waitPods waits until all pods with a label are ready and returns them: so many.
func (c *cluster) waitPods(namespace, label string, want int) (pods []v1.Pod) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.Ctx, podsTimeout)
	defer cancel()
	for {
		list, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
		c.Must(err)
		ready := 0
		for _, pod := range list.Items {
			if isReady(&pod) {
				ready++
			}
		}
		if ready == want && len(list.Items) == want {
			return list.Items
		}
		select {
		case <-ctx.Done():
			c.T.Fatalf("%d of %d pods %s are ready, want %d", ready, len(list.Items), label, want)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// podsTimeout bounds the start of pods: containers, probes, leases.
const podsTimeout = 3 * time.Minute

func isReady(pod *v1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodReady {
			return condition.Status == v1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
