//go:build unix

package deploy

import (
	"slices"
	"testing"

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
