//go:build unix

package deploy

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
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
	var deployment appsv1.Deployment
	var job batchv1.Job
	for _, d := range manifests(t) {
		switch {
		case d.file == "volume-guard.yaml" && d.GetKind() == "Deployment":
			d.into(t, &deployment)
		case d.file == releaseFile:
			d.into(t, &job)
		}
	}
	ours, theirs := job.Spec.Template.Spec, deployment.Spec.Template.Spec
	if len(ours.Containers) != 1 || !slices.Equal(ours.Containers[0].Args, []string{theirs.Containers[0].Args[0],
		"--release-finalizers"}) {
		t.Fatalf("the Job runs %+v", ours.Containers)
	}
	ours.RestartPolicy, ours.TopologySpreadConstraints = theirs.RestartPolicy, theirs.TopologySpreadConstraints
	ours.TerminationGracePeriodSeconds = theirs.TerminationGracePeriodSeconds
	one, other := &ours.Containers[0], theirs.Containers[0]
	one.Name, one.Args, one.Ports = other.Name, other.Args, other.Ports
	one.LivenessProbe, one.ReadinessProbe = other.LivenessProbe, other.ReadinessProbe
	if !reflect.DeepEqual(ours, theirs) || job.Namespace != deployment.Namespace {
		t.Errorf("the Job's pod in %s is not that of the Deployment:\n%s\n%s", job.Namespace, pretty(ours), pretty(theirs))
	}
	if app := "app"; job.Spec.Template.Labels[app] == deployment.Spec.Selector.MatchLabels[app] {
		t.Error("the Service of the webhooks finds the Job's pod")
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
	var job batchv1.Job
	for _, d := range manifests(t) {
		if d.file == releaseFile {
			d.into(t, &job)
		}
	}
	if job.Spec.TTLSecondsAfterFinished == nil {
		t.Error("a finished Job stays")
	}
}

// TestVolumeGuardRunsAsInstalled creates the pod under Pod Security restricted, and runs the program with the
// manifest's flags and the permissions bound to its account.
func TestVolumeGuardRunsAsInstalled(t *testing.T) {
	ctx := patiently(t)
	forgetGuard(t)
	var deployment appsv1.Deployment
	for _, file := range []string{"volume-guard.yaml", "rbac-volume-guard.yaml"} {
		for _, d := range manifests(t) {
			switch {
			case d.file != file:
			case d.GetKind() == "Deployment":
				d.into(t, &deployment)
			default:
				if err := apply(ctx, d, d.text, "csi-reclaimer", false); err != nil {
					t.Fatalf("%s: %v", d, err)
				}
			}
		}
	}
	pod := deployment.Spec.Template.Spec
	if _, err := client.CoreV1().Pods(deployment.Namespace).Create(ctx,
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: pod},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("the pod is refused: %v", err)
	}

	config, err := cluster.ServiceAccount(ctx, deployment.Namespace, pod.ServiceAccountName)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cluster.Kubeconfig(config)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := program.Build(ctx, "volume-guard", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	guard := container(t, pod, "volume-guard")
	ports := map[int32]string{guard.Ports[0].ContainerPort: suite.FreeAddress(t)}
	args := slices.Concat(onThisMachine(t, v1.Container{Args: guard.Args}, "", ports),
		[]string{"--kubeconfig=" + kubeconfig})
	p := begin(t, pod, process.Command{Path: binary, Args: args, Env: environment(t, guard, deployment.Namespace)})
	if err := p.WaitLog(ctx, "Became the leader"); err != nil {
		t.Fatal(err)
	}
	for name, probe := range map[string]*v1.Probe{"liveness": guard.LivenessProbe, "readiness": guard.ReadinessProbe} {
		if err := answers(ctx, "http://"+ports[guard.Ports[0].ContainerPort]+probe.HTTPGet.Path); err != nil {
			t.Errorf("%s probe: %v\n%s", name, err, p.LogTail(20))
		}
	}
}
