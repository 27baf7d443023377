//go:build unix

package deploy

import (
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
			mustOf(t)(err)
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
