//go:build unix

package deploy

import (
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

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
	ports := map[int32]string{guard.Ports[0].ContainerPort: freeAddress(t)}
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
