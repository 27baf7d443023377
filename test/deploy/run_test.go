//go:build unix

package deploy

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestExampleDeploymentWorks runs the two containers' programs as a kubelet would, with only the flags, the environment
// and the service account of the example. Folders, the port and the API server's address are this machine's.
func TestExampleDeploymentWorks(t *testing.T) {
	ctx := patiently(t)
	namespace := installExample(t)
	pod := example(t).Spec.Template.Spec
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
	if log := p.LogTail(1000); strings.Contains(log, "Preflight") {
		t.Errorf("something is lacking:\n%s", log)
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
