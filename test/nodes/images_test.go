//go:build linux

package nodes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

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
	pod, err := c.MakePod(c.Ctx, objects.PodSpec{Name: "run-" + program, Change: func(pod *v1.Pod) {
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		pod.Spec.Containers = []v1.Container{{Name: program, Image: program + ":" + imagesVersion, Args: args}}
	}})
	c.Must(err)
	var now *v1.Pod
	c.Must(pod.Wait(c.WithTimeout(), "ended", func(p *v1.Pod) bool {
		now = p
		return p != nil && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed)
	}))
	log, err = c.pool.Node(now.Spec.NodeName).PodLog(c.Ctx, now)
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
	pod, err := c.MakePod(c.Ctx, objects.PodSpec{Name: "writer-" + claim.Name, Change: func(pod *v1.Pod) {
		pod.Spec = nodes.WriterSpec(claim.Name)
		pod.Spec.HostNetwork = false
	}})
	c.Must(err)
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
	now, err := c.Client.CoreV1().PersistentVolumes().Get(c.Ctx, bound.Name, metav1.GetOptions{})
	c.Must(err)
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
func (c *cluster) boundVolume(claim *objects.Claim) (pv *v1.PersistentVolume) {
	c.T.Helper()
	c.WaitClaim(claim, "bound", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.Status.Phase == v1.ClaimBound
	})
	pv, err := c.Client.CoreV1().PersistentVolumes().Get(c.Ctx, fixture.PVName(claim), metav1.GetOptions{})
	c.Must(err)
	return pv
}

// testUninstall has the chart remove volume-guard, by a Job that runs its image.
func (c *cluster) testUninstall() {
	c.run("helm", "uninstall", "volume-guard", "--namespace", guardHome)
	c.Eventually("no pod of volume-guard is left", func() bool {
		pods, err := c.Client.CoreV1().Pods(guardHome).List(c.Ctx, metav1.ListOptions{})
		c.Must(err)
		return len(pods.Items) == 0
	})
}
