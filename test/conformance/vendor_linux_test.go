package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestReclaimerTakesThePlaceOfProvisionerAlone(t *testing.T) {
	t.Parallel()
	objects, err := manifests.Parse([]byte(`
kind: ServiceAccount
metadata: {name: disk, namespace: csi}
---
kind: StatefulSet
metadata: {name: disk, namespace: csi}
spec:
  template:
    spec:
      serviceAccountName: disk
      containers:
      - {name: resizer, image: "registry.k8s.io/sig-storage/csi-resizer:v2.3.0", args: ["-v=5"]}
      - name: provisioner
        image: registry.example.com:5000/mirror/csi-provisioner@sha256:abc
        command: [/csi-provisioner]
        args: [--csi-address=/csi/csi.sock, --leader-election]
        env: [{name: A, value: B}]
---
kind: Pod
metadata: {name: other}
spec: {containers: [{name: a, image: "csi-provisioner-not:v1"}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	accounts := replaceProvisioner(objects)
	if len(accounts) != 1 || accounts[0] != (types.NamespacedName{Namespace: "csi", Name: "disk"}) {
		t.Errorf("accounts %v", accounts)
	}
	var text strings.Builder
	for _, o := range objects {
		line := must.Get(o.MarshalJSON())(t)
		text.Write(line)
	}
	for _, want := range []string{`"image":"` + reclaimerImage + `"`, "csi-resizer:v2.3.0", "csi-provisioner-not:v1",
		`["--csi-address=/csi/csi.sock","--leader-election"]`, `{"name":"A","value":"B"},{"name":"POD_NAMESPACE"`} {
		if strings.Count(text.String(), want) != 1 {
			t.Errorf("%s is not there once: %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "/csi-provisioner\"") {
		t.Errorf("the command is the provisioner's: %s", text.String())
	}
}

func TestContainerThatIsNotReadyIsNamed(t *testing.T) {
	t.Parallel()
	running := v1.ContainerStateRunning{}
	statuses := []v1.ContainerStatus{
		{Name: "sidecar", Ready: true, State: v1.ContainerState{Running: &running}},
		{Name: "setup", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
	}
	for want, state := range map[string]v1.ContainerState{
		"container disk waits: CrashLoopBackOff: 20s": {Waiting: &v1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "20s"}},
		"container disk waits: ContainerCreating": {Waiting: &v1.ContainerStateWaiting{
			Reason: "ContainerCreating"}},
		"container disk ended with exit code 2":               {Terminated: &v1.ContainerStateTerminated{ExitCode: 2}},
		"container disk runs, and its probe does not succeed": {Running: &running},
	} {
		pod := v1.Pod{Status: v1.PodStatus{
			ContainerStatuses: append(statuses[:2:2], v1.ContainerStatus{Name: "disk", State: state})}}
		if got := whyNotReady(pod); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := whyNotReady(v1.Pod{}); got != "its phase is Pending" {
		t.Errorf("a pod without containers: %q", got)
	}
}

func TestVendorSuiteIsOfOneDriver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "pod.yaml")
	suiteOf := func(text string) Suite {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		s := must.Get(VendorSuite("mock-driver.yaml", dir, "subPath"))(t)
		return s
	}
	s := suiteOf("kind: Pod")
	for name, want := range map[string]bool{"External Storage [Driver: " + driverName + "] subPath should": true,
		"External Storage [Driver: " + driverName + "] volumes should": false,
		"External Storage [Driver: another] subPath should":            false} {
		if regexp.MustCompile(s.Focus).MatchString(name) != want {
			t.Errorf("%s has %q: %v, want %v", s.Focus, name, !want, want)
		}
	}
	if s.Name != driverName || suiteOf("kind: Job").Inputs == s.Inputs {
		t.Errorf("%+v does not tell its files from others", s)
	}
}
