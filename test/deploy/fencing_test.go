//go:build unix

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

const fencingFile = "example-node-fencing.yaml"

// fenceAgent returns the PodTemplate of the example.
func fenceAgent(t *testing.T) v1.PodTemplate {
	t.Helper()
	return *findAs[v1.PodTemplate](t, manifestsOf(t, fencingFile), "PodTemplate", "")
}

// TestFenceAgentRunsWithLeastRights checks the example agent under Pod Security restricted, without a token.
func TestFenceAgentRunsWithLeastRights(t *testing.T) {
	ctx := patiently(t)
	template := fenceAgent(t)
	install(t, template.Namespace, manifestsOf(t, fencingFile+" Namespace;"+fencingFile+" ServiceAccount"))
	pod, err := client.CoreV1().Pods(template.Namespace).Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: template.Template.Spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatalf("the pod is refused: %v", err)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected != nil {
			t.Errorf("the pod has a token: %+v", volume)
		}
	}
}

// TestNodeFencingInstallsInDocumentedOrder creates the namespace, installs the chart, and applies the example, as
// docs/how-to/node-fencing.md says. Then the chart adopts all of its objects again in an upgrade.
func TestNodeFencingInstallsInDocumentedOrder(t *testing.T) {
	suite.Deep(t, suite.OwnControlPlane)
	env := newCharts(t)
	_, err := env.Client.CoreV1().Namespaces().Create(env.Ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "node-fencing"}}, metav1.CreateOptions{})
	env.Must(err)
	chart := []string{guard, inDeploy(t, "charts", guard), "--namespace", guardHome, "--create-namespace", "--set",
		"nodeFencing.enabled=true,nodeFencing.jobNamespaces={node-fencing}"}
	env.run(append([]string{"install"}, chart...)...)
	env.Eventually("the example is applied", func() bool { // once the API server has the kind of the FencePolicy
		err := shipped.Apply(env.Ctx, env.Plane.Admin(), fencingFile)
		t.Log(err)
		return err == nil
	})
	env.run(append([]string{"upgrade"}, chart...)...)
}

// TestExampleIsNotNamedAsChart: helm refuses to adopt an object of the same name, whichever comes first.
func TestExampleIsNotNamedAsChart(t *testing.T) {
	chart := string(read(t, "charts", guard, "templates", "node-fencing.yaml"))
	for _, d := range manifestsOf(t, fencingFile) {
		if strings.Contains(chart, `"`+d.GetName()+`" "namespace"`) {
			t.Errorf("%s has the name of an object of the chart", d)
		}
	}
}

// machine plays curl against one machine: power is a file with its state, and resets is whether it obeys.
const machine = `#!/bin/sh
data= previous=
for word in "$@"; do
  [ "$previous" = --data ] && data=$word
  previous=$word
done
echo "$previous $data" >> "$PLAYED/calls"
[ "$OBEYS" = refuses ] && exit 22
case $data in
"") printf '{"Id": "1", "PowerState": "%s", "Status": {}}' "$(cat "$PLAYED/power")" ;;
*ForceOff*) [ "$OBEYS" = no ] || echo Off > "$PLAYED/power" ;;
*On*) [ "$OBEYS" = no ] || echo On > "$PLAYED/power" ;;
esac
`

// TestFenceAgentExitCode matters because the agent's exit code releases pods.
func TestFenceAgentExitCode(t *testing.T) {
	main := fenceAgent(t).Template.Spec.Containers[0]
	for name, c := range map[string]struct {
		action, node, power, obeys string
		// power is the machine's at the end of a run that succeeds.
		succeeds bool
		after    string
		resets   int
	}{
		"on":                       {"fence", "worker-1", "On", "yes", true, "Off", 1},
		"off already":              {"fence", "worker-1", "Off", "yes", true, "Off", 0},
		"takes it and does it not": {"fence", "worker-1", "On", "no", false, "", 1},
		"refuses":                  {"fence", "worker-1", "On", "refuses", false, "", 1},
		"another state":            {"fence", "worker-1", "PoweringOff", "no", false, "", 1},
		"an unknown node":          {"fence", "worker-2", "Off", "yes", false, "", 0},
		"an unknown action":        {"reboot", "worker-1", "Off", "yes", false, "", 0},
		"undone":                   {"unfence", "worker-1", "Off", "yes", true, "On", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"curl": machine, "power": c.power, "worker-1": "https://bmc-1/system",
				"calls": ""})
			// The Job ends a run that waits forever; here it ends after some polls.
			script := strings.NewReplacer("/etc/bmc", dir, "sleep 2",
				`[ "$(wc -l < "$PLAYED/calls")" -lt 9 ] || exit 124`).Replace(main.Args[0])
			err := process.Run(patiently(t), process.Command{Path: "/bin/sh", Args: append(main.Command[1:], script),
				Env: []string{"FENCE_ACTION=" + c.action, "FENCE_NODE=" + c.node, "PLAYED=" + dir, "OBEYS=" + c.obeys,
					fmt.Sprintf("PATH=%s:%s", dir, os.Getenv("PATH"))}})
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if (err == nil) != c.succeeds || strings.Count(string(calls), "ResetType") != c.resets {
				t.Errorf("%v after\n%s", err, calls)
			}
			power, _ := os.ReadFile(filepath.Join(dir, "power"))
			if c.succeeds && strings.TrimSpace(string(power)) != c.after {
				t.Errorf("the power is %s", power)
			}
		})
	}
}
