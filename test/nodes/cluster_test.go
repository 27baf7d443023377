//go:build linux

package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
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
	fixture.OwnVersions.Require(t)
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

const (
	tutorialPage = "docs/tutorial.md"
	// tutorialPause is the image of the tutorial's pod.
	tutorialPause = "registry.k8s.io/pause:3.10"
	// stepTimeout bounds one block of the page. The page's own waits are shorter.
	stepTimeout = 8 * time.Minute
)

// TestTutorial types docs/tutorial.md, word for word, compares the page's output with the printed one, and expects no
// remains in the cluster.
func TestTutorial(t *testing.T) {
	c := newCluster(t)
	c.Must(c.pool.ImportPause(c.Ctx, tutorialPause))
	c.Must(c.pool.ImportProvisioner(c.Ctx))
	root := process.RootForTest(c.T)
	page, err := os.ReadFile(filepath.Join(root, tutorialPage))
	c.Must(err)
	steps, err := terminal.Steps(string(page))
	c.Must(err)
	before := c.objects()
	session, err := terminal.NewSession(root, c.env)
	c.Must(err)
	t.Cleanup(func() { _ = session.Close() })
	for i, step := range steps {
		if i > 0 && steps[i-1].Section != step.Section {
			c.expectVolumesOfPVs(steps[i-1].Section)
		}
		begun := time.Now()
		printed, err := c.typed(session, step)
		t.Logf("%s:%d took %s", tutorialPage, step.Line, time.Since(begun).Round(100*time.Millisecond))
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s%s", tutorialPage, step.Line, err, step.Typed, printed)
		}
		if step.Printed == "" {
			continue
		}
		if err := terminal.Match(step.Printed, printed); err != nil {
			t.Errorf("%s:%d: %s%v", tutorialPage, step.Line, step.Typed, err)
		}
	}
	c.expectNothingLeft(before)
}

// expectVolumesOfPVs expects that the driver has the volumes of all PVs, and no others.
func (c *cluster) expectVolumesOfPVs(after string) {
	c.T.Helper()
	pvs, err := c.Client.CoreV1().PersistentVolumes().List(c.Ctx, metav1.ListOptions{})
	c.Must(err)
	var want, got []string
	for _, pv := range pvs.Items {
		want = append(want, pv.Spec.CSI.VolumeHandle)
	}
	for _, n := range c.pool.Nodes() {
		volumes, err := filepath.Glob(filepath.Join(n.KubeletDir(), "plugins", mockDriver, "volumes", "*"))
		c.Must(err)
		for _, volume := range volumes {
			got = append(got, filepath.Base(volume))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		c.T.Errorf("after %q, the driver has the volumes %q, and PVs are of %q", after, got, want)
	}
}

func (c *cluster) typed(session *terminal.Session, step terminal.Step) (string, error) {
	ctx, cancel := context.WithTimeout(c.Ctx, stepTimeout)
	defer cancel()
	return session.Type(ctx, step.Typed)
}

// expectNothingLeft waits until the cluster has only the objects of before. Then it expects that none of them names an
// installed object, and that the driver has left no volume on the node.
func (c *cluster) expectNothingLeft(before map[string]string) {
	c.T.Helper()
	var left map[string]string
	deadline := time.Now().Add(podsTimeout)
	for {
		left = c.objects()
		maps.DeleteFunc(left, func(name, text string) bool {
			_, was := before[name]
			return was && !strings.Contains(text, "csi-reclaimer") && !strings.Contains(text, "external-provisioner")
		})
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Second)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		c.T.Errorf("LEFT: %s: %s", name, left[name])
	}
	c.expectVolumesOfPVs("the end")
}

// objects returns all objects of the API by kind, namespace and name, as text: without Events, which expire by
// themselves, managed fields, and the list of images that a node has downloaded.
func (c *cluster) objects() map[string]string {
	c.T.Helper()
	client, err := dynamic.NewForConfig(c.Plane.Admin())
	c.Must(err)
	finder, err := discovery.NewDiscoveryClientForConfig(c.Plane.Admin())
	c.Must(err)
	lists, err := finder.ServerPreferredResources()
	c.Must(err)
	all := map[string]string{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		c.Must(err)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
				continue
			}
			found, err := client.Resource(group.WithResource(resource.Name)).List(c.Ctx, metav1.ListOptions{})
			c.Must(err)
			for _, object := range found.Items {
				name := fmt.Sprintf("%s %s/%s", resource.Kind, object.GetNamespace(), object.GetName())
				object.SetManagedFields(nil)
				unstructured.RemoveNestedField(object.Object, "status", "images")
				text, err := json.Marshal(object.Object)
				c.Must(err)
				all[name] = string(text)
			}
		}
	}
	return all
}

// Names in deploy/manifests/example-mounts.yaml.
const (
	mockHome   = "mock-csi"
	mockDriver = "mock.csi-reclaimer.io"
	mockClass  = "mock"
	mockLabel  = mockDriver + "/volumes"
	guardHome  = "csi-reclaimer"
)

// TestImagesRunAsPods installs the images of "make images" by the charts and a manifest, as an operator does. The pods
// run on real kubelets, and provision and reclaim volumes.
func TestImagesRunAsPods(t *testing.T) {
	c := newCluster(t)
	t.Run("each image says its version", func(t *testing.T) { c.in(t).testVersions() })
	c.installGuard()
	c.installMock()
	t.Run("volume-guard runs with few rights", func(t *testing.T) {
		for _, pod := range c.in(t).waitPods(guardHome, "app=volume-guard", 2) {
			c.in(t).expectConfined(&pod, "volume-guard")
		}
	})
	t.Run("csi-reclaimer runs with few rights beside a driver that is root", func(t *testing.T) {
		c.in(t).expectConfined(&c.in(t).waitPods(mockHome, "app=mock-csi-controller", 1)[0], "csi-reclaimer")
	})
	for order, pvFirst := range map[string]bool{"the PV is deleted first": true, "the claim is deleted first": false} {
		t.Run(order, func(t *testing.T) { c.in(t).testReclaimed(pvFirst) })
	}
	t.Run("the plugin runs in the cluster", func(t *testing.T) { c.in(t).testPlugin() })
	t.Run("the chart uninstalls", func(t *testing.T) { c.in(t).testUninstall() })
}

// in is the cluster in a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	sub := *c
	sub.Environment = c.ForSubtest(t)
	return &sub
}

// installGuard installs volume-guard by its chart.
func (c *cluster) installGuard() {
	c.T.Helper()
	c.run("helm", "install", "volume-guard", "deploy/charts/volume-guard", "--namespace", guardHome, "--create-namespace",
		"--set", "image.tag="+imagesVersion)
}

// installMock follows the head of the manifest: the driver runs on the first node, with the permissions of the chart.
func (c *cluster) installMock() {
	c.T.Helper()
	c.run("kubectl", "label", "node", node1, mockLabel+"=here")
	root := process.RootForTest(c.T)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "manifests", "example-mounts.yaml"))
	c.Must(err)
	manifest := filepath.Join(c.T.TempDir(), "example-mounts.yaml")
	c.Must(os.WriteFile(manifest, []byte(strings.ReplaceAll(string(text), ":latest ", ":"+imagesVersion+" ")), 0o600))
	c.run("kubectl", "apply", "-f", manifest)
	c.run("helm", "install", "mock", "deploy/charts/csi-reclaimer", "--namespace", mockHome, "--set",
		"serviceAccount=mock-csi-controller")
}

// saysVersionAs is the beginning of the output of --version, for each program that has an image.
var saysVersionAs = map[string]string{"csi-reclaimer": "csi-reclaimer ", "volume-guard": "volume-guard ",
	"kubectl-reclaim": "kubectl reclaim version ", "mock-driver": "mock-driver "}

// testVersions runs each image with --version.
func (c *cluster) testVersions() {
	for program, says := range saysVersionAs {
		text := c.runPod(program, "--version")
		if want := " " + says + imagesVersion + "\n"; !strings.HasSuffix(text, want) {
			c.T.Errorf("%s --version: %q, want %q", program, text, want)
		}
	}
}

// testPlugin asks the plugin in a pod, which reads with the permissions of its service account.
func (c *cluster) testPlugin() {
	c.run("kubectl", "create", "clusterrolebinding", "plugin", "--clusterrole=cluster-admin",
		"--serviceaccount="+c.Namespace+":default")
	claim := c.CreateClaim(mockClass)
	bound := c.boundVolume(claim)
	if text := c.runPod("kubectl-reclaim", "explain", "pv/"+bound.Name); !strings.Contains(text, mockDriver) {
		c.T.Errorf("kubectl reclaim explain does not name the driver of PV %s:\n%s", bound.Name, text)
	}
	c.run("kubectl", "delete", "pvc", claim.Name, "-n", c.Namespace, "--wait=false")
	c.waitPVGone(bound)
}

func (c *cluster) waitPVGone(pv *v1.PersistentVolume) {
	c.T.Helper()
	c.Eventually("PV "+pv.Name+" is gone", func() bool {
		_, err := c.Client.CoreV1().PersistentVolumes().Get(c.Ctx, pv.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// runPod runs a pod of a program's image until it succeeds, and returns its log, where a time is before each line.
func (c *cluster) runPod(program string, args ...string) (log string) {
	c.T.Helper()
	pod := c.CreatePod(objects.PodSpec{Name: "run-" + program, Change: func(pod *v1.Pod) {
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		pod.Spec.Containers = []v1.Container{{Name: program, Image: program + ":" + imagesVersion, Args: args}}
	}})
	var now *v1.Pod
	c.Must(pod.Wait(c.WithTimeout(), "ended", func(p *v1.Pod) bool {
		now = p
		return p != nil && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed)
	}))
	log, err := c.pool.Node(now.Spec.NodeName).PodLog(c.Ctx, now)
	c.Must(err)
	if now.Status.Phase != v1.PodSucceeded {
		c.T.Errorf("%s %s: %s\n%s", program, strings.Join(args, " "), now.Status.Phase, log)
	}
	c.Must(pod.Delete(c.Ctx))
	c.Must(pod.WaitGone(c.WithTimeout()))
	return log
}

// expectConfined checks, at the process, that the container of the pod runs as no user of the machine, cannot gain
// privileges, and can write to nothing of its image; and that it was started once, with the token of its account.
func (c *cluster) expectConfined(pod *v1.Pod, name string) {
	c.T.Helper()
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name && (status.RestartCount != 0 || !status.Ready) {
			c.T.Errorf("pod %s: container %s is ready: %v, after %d restarts", pod.Name, name, status.Ready,
				status.RestartCount)
		}
	}
	node := c.pool.Node(pod.Spec.NodeName)
	containers, err := node.Containers(c.Ctx)
	c.Must(err)
	for _, running := range containers {
		if running.PodUID != pod.UID || running.Name != name {
			continue
		}
		status, err := node.Proc(c.Ctx, running, "status")
		c.Must(err)
		mounts, err := node.Proc(c.Ctx, running, "mounts")
		c.Must(err)
		for what, want := range map[string]string{"user": `(?m)^Uid:(\s65532){4}$`, "group": `(?m)^Gid:(\s65532){4}$`,
			"capabilities": `(?m)^CapBnd:\s0+$`, "new privileges": `(?m)^NoNewPrivs:\s1$`, "seccomp": `(?m)^Seccomp:\s2$`} {
			if !regexp.MustCompile(want).MatchString(status) {
				c.T.Errorf("pod %s: %s of container %s: want %s in\n%s", pod.Name, what, name, want, status)
			}
		}
		if !regexp.MustCompile(`(?m)^\S+ / \S+ ro[, ]`).MatchString(mounts) {
			c.T.Errorf("pod %s: container %s can write to its root file system:\n%s", pod.Name, name, mounts)
		}
		if !strings.Contains(mounts, "/run/secrets/kubernetes.io/serviceaccount ") {
			c.T.Errorf("pod %s: container %s has no token:\n%s", pod.Name, name, mounts)
		}
		return
	}
	c.T.Errorf("pod %s: no container %s runs: %+v", pod.Name, name, containers)
}

// testReclaimed has a pod write to a volume of a claim, deletes claim and PV in one of the orders, and expects the
// volume to be gone from the disk once the pod has ended.
func (c *cluster) testReclaimed(pvFirst bool) {
	claim := c.CreateClaim(mockClass)
	bound := c.boundVolume(claim)
	disk := filepath.Join(c.pool.Node(node1).KubeletDir(), "plugins", mockDriver, "volumes", bound.Spec.CSI.VolumeHandle)
	pod := c.CreatePod(objects.PodSpec{Name: "writer-" + claim.Name, Change: func(pod *v1.Pod) {
		pod.Spec = nodes.WriterSpec(claim.Name)
		pod.Spec.HostNetwork = false
	}})
	c.Eventually("the pod writes to the volume", func() bool {
		written, err := stamps.Read(filepath.Join(disk, "data", stamps.FileName))
		c.Must(err)
		return count(written, pod.UID) > 5
	})
	if pvFirst {
		c.run("kubectl", "delete", "pv", bound.Name, "--wait=false")
		c.run("kubectl", "delete", "pvc", claim.Name, "-n", c.Namespace, "--wait=false")
	} else {
		c.run("kubectl", "delete", "pvc", claim.Name, "-n", c.Namespace, "--wait=false")
	}
	now := c.PVs().Get(bound.Name)
	if !fixture.HasFinalizer(now) {
		c.T.Errorf("PV %s has finalizers %q", bound.Name, now.Finalizers)
	}
	if _, err := os.Stat(disk); err != nil {
		c.T.Errorf("the volume is in use: %v", err)
	}
	c.Must(pod.Delete(c.Ctx))
	c.waitPVGone(bound)
	if _, err := os.Stat(disk); !os.IsNotExist(err) {
		c.T.Errorf("the PV is gone, and its volume is at %s: %v", disk, err)
	}
}

// boundVolume waits until a claim is bound, and returns its PV, which the driver's own csi-reclaimer has provisioned.
func (c *cluster) boundVolume(claim *objects.Claim) *v1.PersistentVolume {
	c.T.Helper()
	c.WaitClaim(claim, "bound", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.Status.Phase == v1.ClaimBound
	})
	return c.PVs().Get(fixture.PVName(claim))
}

// testUninstall has the chart remove volume-guard, by a Job that runs its image and whose log stays for a day.
func (c *cluster) testUninstall() {
	c.run("helm", "uninstall", "volume-guard", "--namespace", guardHome)
	c.waitPods(guardHome, "app!=volume-guard-release", 0)
}
