//go:build unix

package deploy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestExampleDeploymentWorks runs the two containers' programs as a kubelet would, with only the flags, the environment
// and the service account of the example. Folders, the port and the API server's address are this machine's.
func TestExampleDeploymentWorks(t *testing.T) {
	ctx := patiently(t)
	namespace := installExample(t)
	pod := example(t).Spec.Template.Spec
	for _, d := range manifestsOf(t, exampleFile+" rbac-owner.yaml") {
		in := d.GetNamespace()
		if d.GetKind() == "Role" {
			in = cmp.Or(in, namespace)
		}
		must(t, rbac.InForce(ctx, client, in, namespace, pod.ServiceAccountName, d.rules(t)))
	}
	dir, err := rundir.New("deploy-") // short: a socket's path has little room
	must(t, err)
	t.Cleanup(func() { _ = dir.Remove() })
	volumes := dir.Path()

	driver := container(t, pod, "driver")
	binary, err := mockdriver.Build(ctx, os.Stderr)
	must(t, err)
	begin(t, pod, process.Command{Path: binary, Args: onThisMachine(t, driver, volumes, nil),
		Env: environment(t, driver, namespace)})

	car := container(t, pod, "csi-reclaimer")
	if binary, err = program.BuildSidecar(ctx, os.Stderr); err != nil {
		t.Fatal(err)
	}
	ports := map[int32]string{car.Ports[0].ContainerPort: suite.FreeAddress(t)}
	args := append(onThisMachine(t, car, volumes, ports),
		"--kubeconfig="+kubeconfigOf(t, namespace, pod.ServiceAccountName))
	p := begin(t, pod, process.Command{Path: binary, Args: args, Env: environment(t, car, namespace)})

	expectLeads(t, p, car, ports)
	// The CSIDriver has the driver's name, or there would be another Lease.
	lease := strings.ReplaceAll(find(t, manifestsOf(t, exampleFile), "CSIDriver", "").GetName(), ".", "-")
	if _, err := client.CoordinationV1().Leases(namespace).Get(ctx, lease, metav1.GetOptions{}); err != nil {
		t.Errorf("the Lease: %v", err)
	}
	for line := range strings.Lines(p.LogTail(1000)) {
		// A slow answer of the API server is no lack.
		passes := []string{"could not be reviewed", "all permissions are granted", "the CSIDriver cannot be read"}
		if strings.Contains(line, "Preflight") && !slices.ContainsFunc(passes, func(text string) bool {
			return strings.Contains(line, text)
		}) {
			t.Errorf("something is lacking: %s", line)
		}
	}
}

// TestUnknownFlagIsDetected shows that a wrong flag in the example ends the programs.
func TestUnknownFlagIsDetected(t *testing.T) {
	ctx := patiently(t)
	for name, build := range map[string]func(context.Context) (string, error){
		"csi-reclaimer": func(ctx context.Context) (string, error) { return program.BuildSidecar(ctx, os.Stderr) },
		"driver":        func(ctx context.Context) (string, error) { return mockdriver.Build(ctx, os.Stderr) },
	} {
		binary, err := build(ctx)
		must(t, err)
		args := append(container(t, example(t).Spec.Template.Spec, name).Args, "--nobody-knows-this")
		if err := process.Run(ctx, process.Command{Path: binary, Args: args}); err == nil || !strings.Contains(err.Error(),
			"nobody-knows-this") {
			t.Errorf("%s with an unknown flag: %v, want it named", name, err)
		}
	}
}

// expectLeads waits until a container's program leads, and checks its probes. ports are the addresses of its ports.
func expectLeads(t *testing.T, p *process.Process, c v1.Container, ports map[int32]string) {
	t.Helper()
	must(t, p.WaitLog(patiently(t), "Became the leader"))
	for name, probe := range map[string]*v1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if port := probe.HTTPGet.Port.StrVal; port != c.Ports[0].Name {
			t.Errorf("the %s probe asks port %q, want %q", name, port, c.Ports[0].Name)
		}
		if err := answers(patiently(t), "http://"+ports[c.Ports[0].ContainerPort]+probe.HTTPGet.Path); err != nil {
			t.Errorf("%s probe: %v\n%s", name, err, p.LogTail(20))
		}
	}
}

// begin starts a container's program, which ends with the test, within the pod's grace.
func begin(t *testing.T, pod v1.PodSpec, command process.Command) *process.Process {
	t.Helper()
	p, err := process.Start(command)
	must(t, err)
	t.Cleanup(func() {
		defer p.Close()
		if err := p.Stop(time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second); err != nil {
			t.Errorf("%v\n%s", err, p.LogTail(20))
		}
	})
	return p
}

// container returns the container of that name.
func container(t *testing.T, pod v1.PodSpec, name string) v1.Container {
	t.Helper()
	for _, c := range pod.Containers {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no container %q", name)
	return v1.Container{}
}

// onThisMachine returns the container's arguments with its volumes as folders below volumes,
// and its ports at other addresses. Each of them must be there.
func onThisMachine(t *testing.T, c v1.Container, volumes string, ports map[int32]string) []string {
	t.Helper()
	args := slices.Clone(c.Args)
	replace := func(from, to string) {
		// A whole value, or the beginning of a path: --flag=/from, --flag=unix:///from/file.
		whole := regexp.MustCompile(`(=|=unix://)` + regexp.QuoteMeta(from) + `(/|$)`)
		found := false
		for i, arg := range args {
			if whole.MatchString(arg) {
				args[i], found = whole.ReplaceAllString(arg, "${1}"+to+"${2}"), true
			}
		}
		if !found {
			t.Errorf("container %s: no argument names %s", c.Name, from)
		}
	}
	for _, mount := range c.VolumeMounts {
		folder := filepath.Join(volumes, mount.Name)
		// As the kubelet creates an emptyDir, for any user.
		must(t, os.MkdirAll(folder, 0o777))
		must(t, os.Chmod(folder, 0o777))
		replace(mount.MountPath, folder)
	}
	for port, address := range ports {
		replace(fmt.Sprintf(":%d", port), address)
	}
	return args
}

// environment returns the container's environment.
func environment(t *testing.T, c v1.Container, namespace string) []string {
	t.Helper()
	var env []string
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			env = append(env, e.Name+"="+e.Value)
		case e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			env = append(env, e.Name+"="+namespace)
		default:
			t.Fatalf("container %s: this test does not know where %s comes from", c.Name, e.Name)
		}
	}
	return env
}

// answers returns once the address answers 200.
func answers(ctx context.Context, url string) (err error) {
	_ = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err = get(ctx, url)
		return err == nil, nil
	})
	return err
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

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
	if ours.Affinity != nil && ours.Affinity.PodAntiAffinity == nil { // the Job starts beside the replicas
		theirs.Affinity.PodAntiAffinity = nil
	}
	if !maps.Equal(job.Spec.Template.Annotations, deployment.Spec.Template.Annotations) {
		t.Errorf("%s: the Job's pod has the annotations %v", name, job.Spec.Template.Annotations)
	}
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

// TestHelmTemplateHasNoReleaseJob: kubectl apply ignores the annotation of a hook, and would start the Job.
func TestHelmTemplateHasNoReleaseJob(t *testing.T) {
	for name, values := range guardValues() {
		for _, d := range rendered(t, values...) {
			if d.GetKind() == "Job" {
				t.Errorf("%s: helm template has the Job %s", name, d.GetName())
			}
		}
	}
}

// TestChartReleaseHookRunsFirst also checks that the hook's pod has the Deployment's settings, and that the Service
// does not select it.
func TestChartReleaseHookRunsFirst(t *testing.T) {
	for name, wanted := range map[string]bool{"as it comes": true, "with everything else": true, "without intree": true,
		"for a first look": false, "with little": false} {
		all := render(t, guardValues()[name]...)
		there := slices.ContainsFunc(all, func(d document) bool { return d.GetKind() == "Job" })
		if there != wanted {
			t.Errorf("%s: is there a Job: %v, want %v", name, there, wanted)
		}
		if !there {
			continue
		}
		if hook := jobOf(t, all).Annotations["helm.sh/hook"]; hook != "pre-delete" {
			t.Errorf("%s: hook %q", name, hook)
		}
		var args []string
		if name == "with everything else" {
			args = []string{"--worker-threads=20"} // --terminated-pods counts for a release too
		}
		expectReleaseJob(t, name, all, args...)
	}
}

// TestChartPodsReachAPIServer: in a namespace that denies egress by default, an unselected pod reaches nothing.
func TestChartPodsReachAPIServer(t *testing.T) {
	all := render(t, guardValues()["with everything else"]...)
	for what, pod := range map[string]map[string]string{
		"Deployment": deploymentOf(t, all).Spec.Template.Labels, "Job": jobOf(t, all).Spec.Template.Labels} {
		var reached []string
		for _, d := range all {
			if d.GetKind() != "NetworkPolicy" {
				continue
			}
			var policy networkingv1.NetworkPolicy
			d.into(t, &policy)
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			must(t, err)
			for _, rule := range policy.Spec.Egress {
				for _, to := range rule.To {
					if selector.Matches(labels.Set(pod)) {
						reached = append(reached, to.IPBlock.CIDR)
					}
				}
			}
		}
		if want := []string{"10.0.0.1/32", "fd00::1/128"}; !slices.Equal(reached, want) {
			t.Errorf("the pod of the %s reaches %q, want %q", what, reached, want)
		}
	}
}
