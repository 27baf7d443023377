//go:build unix

package deploy

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// releaseFile has the Job that removes the finalizers where volume-guard was installed without Helm.
const releaseFile = "volume-guard-release.yaml"

// TestReleaseJobRunsAsDeployment compares the pod of the Job with that of the Deployment: account, environment, so the
// namespace of the Lease, and rights.
func TestReleaseJobRunsAsDeployment(t *testing.T) {
	expectReleaseJob(t, releaseFile, manifestsOf(t, "volume-guard.yaml "+releaseFile))
}

// expectReleaseJob checks that the Job's pod has the settings of the Deployment, save for the arguments, and that the
// Service of the webhooks does not select it. args are the Job's own ones.
func expectReleaseJob(t *testing.T, name string, all []document, args ...string) {
	t.Helper()
	job, deployment := jobOf(t, all), deploymentOf(t, all)
	ours, theirs := job.Spec.Template.Spec, deployment.Spec.Template.Spec
	one, other := &ours.Containers[0], theirs.Containers[0]
	if want := append([]string{other.Args[0], "--release-finalizers"}, args...); !slices.Equal(one.Args, want) {
		t.Errorf("%s: the Job runs %q, want %q", name, one.Args, want)
	}
	ours.RestartPolicy, ours.TopologySpreadConstraints = theirs.RestartPolicy, theirs.TopologySpreadConstraints
	ours.TerminationGracePeriodSeconds = theirs.TerminationGracePeriodSeconds
	one.Name, one.Args, one.Ports = other.Name, other.Args, other.Ports
	one.LivenessProbe, one.ReadinessProbe = other.LivenessProbe, other.ReadinessProbe
	if !reflect.DeepEqual(ours, theirs) || job.Namespace != deployment.Namespace {
		t.Errorf("%s: the Job's pod in %s is not that of the Deployment:\n%s\n%s", name, job.Namespace, pretty(ours),
			pretty(theirs))
	}
	if app := "app"; job.Spec.Template.Labels[app] == deployment.Spec.Selector.MatchLabels[app] {
		t.Errorf("%s: the Service of the webhooks finds the Job's pod", name)
	}
}

// TestReleaseJobCanRunAgain checks that the old Job is deleted first: kubectl apply would leave it unchanged, and
// kubectl wait would show its success.
func TestReleaseJobCanRunAgain(t *testing.T) {
	const remove, create = "kubectl delete job -n csi-reclaimer volume-guard-release", "kubectl apply -f "
	page := filepath.Join("docs", "how-to", "remove.md")
	var typed []string
	for _, c := range commands(t) {
		if c.page == page {
			typed = append(typed, c.text)
		}
	}
	for where, text := range map[string]string{page: strings.Join(typed, "\n"),
		releaseFile: string(read(t, "manifests", releaseFile))} {
		before, after, found := strings.Cut(text, remove)
		if !found || strings.Contains(before, create) || !strings.Contains(after, create) {
			t.Errorf("%s: the Job is not deleted before it is created", where)
		}
	}
	if jobOf(t, manifestsOf(t, releaseFile)).Spec.TTLSecondsAfterFinished == nil {
		t.Error("a finished Job stays")
	}
}

// TestVolumeGuardRunsAsInstalled creates the pod under Pod Security restricted, and runs the program with the
// manifest's flags and the permissions bound to its account.
func TestVolumeGuardRunsAsInstalled(t *testing.T) {
	ctx := patiently(t)
	forgetGuard(t)
	all := manifestsOf(t, "volume-guard.yaml rbac-volume-guard.yaml")
	deployment := deploymentOf(t, all)
	install(t, guardHome, slices.DeleteFunc(all, func(d document) bool { return d.GetKind() == "Deployment" }))
	pod := deployment.Spec.Template.Spec
	if _, err := client.CoreV1().Pods(deployment.Namespace).Create(ctx,
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: pod},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("the pod is refused: %v", err)
	}

	binary, err := program.Build(ctx, "volume-guard", os.Stderr)
	must(t, err)
	guard := container(t, pod, "volume-guard")
	ports := map[int32]string{guard.Ports[0].ContainerPort: suite.FreeAddress(t)}
	args := append(onThisMachine(t, v1.Container{Args: guard.Args}, "", ports),
		"--kubeconfig="+kubeconfigOf(t, deployment.Namespace, pod.ServiceAccountName))
	p := begin(t, pod, process.Command{Path: binary, Args: args, Env: environment(t, guard, deployment.Namespace)})
	expectLeads(t, p, guard, ports)
}
