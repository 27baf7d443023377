//go:build unix

package singlenodeadmission

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
)

// waitGates waits until the API server adds gates, and observes the label of the namespace. It has enforced the
// validating policies since they were installed.
func waitGates(t *testing.T, namespace string) {
	t.Helper()
	until(t, "pods to be gated, and pods with a node to be refused", func() bool {
		pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), podOf(namespace, "probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || !hasGate(pod) { // a webhook that is not trusted yet
			return false
		}
		_, err = client.CoreV1().Pods(namespace).Create(t.Context(), podOf(namespace, "probe", onNode),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return judge(err).refusedBy == gateRequired
	})
}

// TestPolicies sends each request with everything installed.
func TestPolicies(t *testing.T) {
	all, p := users(t), prepare(t, realKey)
	for _, mode := range []string{"all", "selected"} {
		p.label(t, p.namespace, map[string]string{realKey: mode})
		waitGates(t, p.namespace)
		for sentence, r := range requests() {
			if !r.alone {
				r.expect(t, mode+", "+sentence, all, p)
			}
		}
	}
}

// expect sends a request, and compares its outcome.
func (r request) expect(t *testing.T, sentence string, all map[string]user, p *prepared) {
	t.Helper()
	want := verdict{}
	if r.refused {
		want.refusedBy = r.policy
	}
	got := judge(r.send(t.Context(), all[r.as], p))
	if got.String() != want.String() {
		t.Errorf("%s, as %s: %v, want %v", sentence, r.as, got, want)
	}
	if got.refusedBy == "" {
		return
	}
	for _, words := range r.says {
		if !strings.Contains(got.text, words) {
			t.Errorf("%s: no %q in %q", sentence, words, got.text)
		}
	}
}

// TestSubresourcesKeepGate expects admitted requests to a subresource to leave the gate.
func TestSubresourcesKeepGate(t *testing.T) {
	p := prepare(t, realKey, gateStays)
	waitGates(t, p.namespace)
	as := user{Clientset: client, acts: true}
	for _, subresource := range podSubresources() {
		for what, send := range map[string]func(context.Context, user, *prepared) error{
			"a patch":   patches(waits, types.MergePatchType, replacesGates, subresource),
			"an update": replaces(waits, ungated, subresource),
		} {
			must(t, send(t.Context(), as, p))
			pod, err := client.CoreV1().Pods(p.namespace).Get(t.Context(), waits, metav1.GetOptions{})
			must(t, err)
			if !hasGate(pod) {
				t.Errorf("%s through %s: gates %q", what, subresource, gatesOf(pod))
			}
		}
	}
}

// TestGatedPodsAreNotBound tries a scheduler that does not know gates, and a legacy Binding.
func TestGatedPodsAreNotBound(t *testing.T) {
	p := prepare(t, realKey, gateStays)
	waitGates(t, p.namespace)
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: waits},
		Target: v1.ObjectReference{Kind: "Node", Name: "own-node"}}
	legacy := client.CoreV1().RESTClient().Post().Namespace(p.namespace).Resource("bindings").Body(binding)
	for what, err := range map[string]error{
		"pods/binding": client.CoreV1().Pods(p.namespace).Bind(t.Context(), binding, metav1.CreateOptions{}),
		"bindings":     legacy.Do(t.Context()).Error(),
	} {
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "schedulingGates") {
			t.Errorf("%s: %v", what, err)
		}
	}
	pod, err := client.CoreV1().Pods(p.namespace).Get(t.Context(), waits, metav1.GetOptions{})
	must(t, err)
	if pod.Spec.NodeName != "" {
		t.Errorf("bound to node %s", pod.Spec.NodeName)
	}
}

// TestOtherNamespacesAreUnaffected expects no refusals of requests for pods and claims in a namespace without the
// label.
func TestOtherNamespacesAreUnaffected(t *testing.T) {
	all, p := users(t), prepare(t, realKey)
	waitGates(t, p.namespace) // else the namespace may seem never to have asked
	p.label(t, p.namespace, map[string]string{realKey: ""})
	until(t, "pods not to be gated", func() bool {
		pod, err := client.CoreV1().Pods(p.namespace).Create(t.Context(), podOf(p.namespace, "probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && !hasGate(pod)
	})
	for sentence, r := range requests() {
		switch r.policy {
		case gateRequired, gateStays, lockStays:
			if got := judge(r.send(t.Context(), all[r.as], p)); got.String() != (verdict{}).String() {
				t.Errorf("%s, as %s: %v", sentence, r.as, got)
			}
		}
	}
}

// The policy adds the gate or, on a Kubernetes without it, the webhook.
func TestPodsWithClaimsAreGated(t *testing.T) {
	p := prepared{key: realKey}
	namespaces := map[string]string{"": p.makeNamespace(t, nil)}
	for _, mode := range []string{"all", "selected"} {
		namespaces[mode] = p.makeNamespace(t, map[string]string{podSafety: enforce, realKey: mode})
		waitGates(t, namespaces[mode])
	}
	for sentence, c := range map[string]struct {
		change func(*v1.Pod)
		gates  string
	}{
		"a claim":                          {func(*v1.Pod) {}, podsafety.Gate},
		"an ephemeral volume":              {with(ephemeralVolume()), podsafety.Gate},
		"a claim among others":             {with(v1.Volume{Name: "e"}, claimVolume("c")), podsafety.Gate},
		"another gate":                     {gated(other), other + " " + podsafety.Gate},
		"the gate":                         {gated(podsafety.Gate), podsafety.Gate},
		"no volume":                        {with(), ""},
		"no volume, another gate":          {func(pod *v1.Pod) { with()(pod); gated(other)(pod) }, other},
		"other volumes":                    {with(v1.Volume{Name: "e"}), ""},
		"a mirror pod":                     {func(pod *v1.Pod) { mirror(pod); onNode(pod) }, ""},
		"a node, no volume":                {func(pod *v1.Pod) { with()(pod); onNode(pod) }, ""},
		"a name that the API server makes": {generated, podsafety.Gate},
	} {
		for mode, namespace := range namespaces {
			pod := podOf(namespace, "new", c.change)
			want, sent := c.gates, gatesOf(pod)
			if mode == "" {
				want = sent
			}
			pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			must(t, err)
			if got := gatesOf(pod); got != want {
				t.Errorf("%s, mode %q: gates %q, want %q", sentence, mode, got, want)
			}
		}
	}
}

// An empty list in a request is no list that the gate can be appended to.
func TestPodWithEmptyGatesIsGated(t *testing.T) {
	namespace := (&prepared{key: realKey}).makeNamespace(t, map[string]string{podSafety: enforce, realKey: "all"})
	waitGates(t, namespace)
	must(t, user{Clientset: client}.post(t.Context(), "/api/v1/namespaces/"+namespace+"/pods",
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"schedulingGates": [],
			"containers": [{"name": "c", "image": "i"}],
			"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}`))
}

func gatesOf(pod *v1.Pod) string {
	var names []string
	for _, gate := range pod.Spec.SchedulingGates {
		names = append(names, gate.Name)
	}
	return strings.Join(names, " ")
}
