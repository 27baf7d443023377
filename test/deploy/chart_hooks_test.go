//go:build unix

package deploy

import (
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

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
		job := jobOf(t, all)
		if hook := job.Annotations["helm.sh/hook"]; hook != "pre-delete" {
			t.Errorf("%s: hook %q", name, hook)
		}
		var deployment appsv1.Deployment
		find(t, all, "Deployment", guard).into(t, &deployment)
		if labels := job.Spec.Template.Labels; labels["app"] == deployment.Spec.Selector.MatchLabels["app"] {
			t.Errorf("%s: the Job's pod looks like one of the Deployment: %v", name, labels)
		}
		ours, theirs := job.Spec.Template.Spec, deployment.Spec.Template.Spec
		want := []string{theirs.Containers[0].Args[0], "--release-finalizers"}
		if name == "with everything else" {
			want = append(want, "--worker-threads=20") // --terminated-pods counts for a release too
		}
		if got := ours.Containers[0].Args; !slices.Equal(got, want) {
			t.Errorf("%s: runs %q, want %q", name, got, want)
		}
		ours.Containers[0].Name, ours.Containers[0].Args, ours.RestartPolicy = guard, theirs.Containers[0].Args,
			theirs.RestartPolicy
		ours.Containers[0].Ports, ours.Containers[0].LivenessProbe, ours.Containers[0].ReadinessProbe =
			theirs.Containers[0].Ports, theirs.Containers[0].LivenessProbe, theirs.Containers[0].ReadinessProbe
		ours.TopologySpreadConstraints = theirs.TopologySpreadConstraints // there is one pod
		ours.TerminationGracePeriodSeconds = theirs.TerminationGracePeriodSeconds
		if !reflect.DeepEqual(ours, theirs) {
			t.Errorf("%s: the Job's pod is not that of the Deployment:\n%s\n%s", name, pretty(ours), pretty(theirs))
		}
	}
}
