//go:build unix

package deploy

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// checkoutVersion is the appVersion of both charts.
func checkoutVersion(t *testing.T, chart string) string {
	t.Helper()
	_, after, _ := strings.Cut(string(read(t, "charts", chart, "Chart.yaml")), "\nappVersion: \"")
	version, _, found := strings.Cut(after, "\"")
	if !found {
		t.Fatal("no appVersion")
	}
	return version
}

// TestChartsNameImages by the same values, by default with the tag that "make images" makes, and never latest.
func TestChartsNameImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	guardTag, carTag := checkoutVersion(t, guard), checkoutVersion(t, car)
	for values, want := range map[string][2]string{
		"image.pullPolicy=Always":           {"volume-guard:" + guardTag, "csi-reclaimer:" + carTag},
		"image.tag=v5":                      {"volume-guard:v5", "csi-reclaimer:v5"},
		"image.registry=r.io:5000/x":        {"r.io:5000/x/volume-guard:" + guardTag, "r.io:5000/x/csi-reclaimer:" + carTag},
		"image.repository=r/p,image.tag=v5": {"r/p:v5", "r/p:v5"},
		"image.repository=r/p":              {"r/p:" + guardTag, "r/p:" + carTag},
		"image.digest=" + digest:            {"volume-guard@" + digest, "csi-reclaimer@" + digest},
	} {
		container := deploymentOf(t, render(t, values)).Spec.Template.Spec.Containers[0]
		if container.Image != want[0] {
			t.Errorf("%s: volume-guard runs %s, want %s", values, container.Image, want[0])
		}
		if got := snippet(t, values).Image; got != want[1] {
			t.Errorf("%s: csi-reclaimer runs %s, want %s", values, got, want[1])
		}
	}
	for named, want := range map[string]string{
		"r.io:5000/p":           "r.io:5000/p:" + carTag,
		"r.io:5000/p:latest":    "r.io:5000/p:" + carTag,
		"r.io:5000/p:v5":        "r.io:5000/p:v5",
		"r.io:5000/p@" + digest: "r.io:5000/p@" + digest,
	} {
		if got := snippet(t, "container.image="+named).Image; got != want {
			t.Errorf("container.image=%s: runs %s, want %s", named, got, want)
		}
	}
	if got := snippet(t, "container.image=r/p@"+digest, "image.tag=v5").Image; got != "r/p:v5" {
		t.Errorf("image.tag does not take precedence: %s", got)
	}
}

// TestSidecarRunsAsRoot beside a driver whose socket is root's, and has no capability all the same.
func TestSidecarRunsAsRoot(t *testing.T) {
	got := snippet(t, "container.securityContext.runAsUser=0", "container.securityContext.runAsNonRoot=false",
		"container.extraEnv[0].name=A", "container.extraEnv[0].value=b")
	want := snippet(t).SecurityContext
	want.RunAsUser, want.RunAsNonRoot = ptr.To(int64(0)), ptr.To(false)
	if !reflect.DeepEqual(got.SecurityContext, want) {
		t.Errorf("the container has %s, want %s", pretty(got.SecurityContext), pretty(want))
	}
	if env := got.Env[len(got.Env)-1]; env != (v1.EnvVar{Name: "A", Value: "b"}) {
		t.Errorf("the environment ends with %+v", env)
	}
}

func TestChartPodsHaveValues(t *testing.T) {
	pod := deploymentOf(t, render(t, guardValues()["with everything else"]...)).Spec.Template.Spec
	if want := []v1.LocalObjectReference{{Name: "pull"}, {Name: "other"}}; !reflect.DeepEqual(pod.ImagePullSecrets, want) {
		t.Errorf("the Secrets for the registry are %+v", pod.ImagePullSecrets)
	}
	container := pod.Containers[0]
	if !strings.HasPrefix(container.Image, "registry.example.com/storage/guard@sha256:") {
		t.Errorf("the image is %s", container.Image)
	}
	if env := container.Env[len(container.Env)-1]; env != (v1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}) {
		t.Errorf("the environment ends with %+v", env)
	}
	ofPod, ofContainer := pod.SecurityContext, container.SecurityContext
	if *ofPod.FSGroup != 65532 || *ofPod.RunAsUser != 65532 || ofContainer.ProcMount == nil {
		t.Errorf("the security contexts are %s, %s", pretty(ofPod), pretty(ofContainer))
	}
	if spread := pod.TopologySpreadConstraints; len(spread) != 1 || spread[0].TopologyKey != v1.LabelHostname ||
		spread[0].WhenUnsatisfiable != v1.ScheduleAnyway || spread[0].LabelSelector.MatchLabels["app"] != guard {
		t.Errorf("the pods are spread by %s", pretty(spread))
	}
	out := mustHelm(t, template(t, "--set-json", "topologySpreadConstraints=[]")...)
	pod = deploymentOf(t, documents(t, guard, []byte(out))).Spec.Template.Spec
	if len(pod.TopologySpreadConstraints) != 0 {
		t.Errorf("the pods are spread by %s", pretty(pod.TopologySpreadConstraints))
	}
}

// TestChartLeavesUserToPlatform that gives each namespace users of its own, and refuses all others.
func TestChartLeavesUserToPlatform(t *testing.T) {
	pods := 0
	for _, d := range render(t, "podSecurityContext.runAsUser=null", "podSecurityContext.runAsGroup=null") {
		if d.GetKind() != "Deployment" && d.GetKind() != "Job" {
			continue
		}
		pods++
		for _, field := range []string{"runAsUser", "runAsGroup", "fsGroup"} {
			if strings.Contains(string(d.text), field+":") {
				t.Errorf("%s sets %s", d, field)
			}
		}
	}
	if pods < 2 {
		t.Errorf("%d objects with pods", pods)
	}
}

// TestSidecarChartIsADependency: the chart of a driver includes the container, as _container.tpl says.
func TestSidecarChartIsADependency(t *testing.T) {
	_, call, _ := strings.Cut(string(read(t, "charts", car, "templates", "_container.tpl")), "\n{{ ")
	call, _, _ = strings.Cut(call, " | nindent")
	parent := t.TempDir()
	must(t, os.CopyFS(filepath.Join(parent, "charts", car), os.DirFS(inDeploy(t, "charts", car))))
	writeFiles(t, parent, map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: driver\nversion: 9.9.9\nappVersion: v9.9.9\n",
		"templates/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: driver}\nspec:\n  containers: {{ " + call +
			" | nindent 2 }}\n",
	})
	out := mustHelm(t, "template", "driver", parent, "--set", car+".serviceAccount=a")
	pod := findAs[v1.Pod](t, documents(t, "driver", []byte(out)), "Pod", "driver")
	if got, want := container(t, pod.Spec, car), snippet(t); !reflect.DeepEqual(got, want) {
		t.Errorf("the dependency has %s, want %s", pretty(got), pretty(want))
	}
}
