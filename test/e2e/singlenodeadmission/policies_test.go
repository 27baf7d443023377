//go:build unix

package singlenodeadmission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
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
		return suite.Judge(err).RefusedBy == gateRequired
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
	want := suite.Verdict{}
	if r.refused {
		want.RefusedBy = r.policy
	}
	got := suite.Judge(r.send(t.Context(), all[r.as], p))
	if got.String() != want.String() {
		t.Errorf("%s, as %s: %v, want %v", sentence, r.as, got, want)
	}
	if got.RefusedBy == "" {
		return
	}
	for _, words := range r.says {
		if !strings.Contains(got.Text, words) {
			t.Errorf("%s: no %q in %q", sentence, words, got.Text)
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
			if got := suite.Judge(r.send(t.Context(), all[r.as], p)); got.String() != (suite.Verdict{}).String() {
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
		"an ephemeral volume":              {with(objects.EphemeralVolume("v", "none")), podsafety.Gate},
		"a claim among others":             {with(v1.Volume{Name: "e"}, objects.ClaimVolume("v", "c")), podsafety.Gate},
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

// mutant is a policy without one of its guards, for a label of its own.
type mutant struct {
	policy, what, key string
	objects           []*unstructured.Unstructured
}

// unchanged is the name of a mutant with all guards, which shows that the others differ only by their guard.
const unchanged = "unchanged"

// mutants returns for each policy: each match condition removed, each validation that always and never holds, and the
// parts of conditions in parts.
func mutants(t *testing.T) (all []mutant) {
	t.Helper()
	objects, err := manifests.Read(manifests.SingleNodePolicies)
	must(t, err)
	of := map[string][]*unstructured.Unstructured{} // a policy and its binding
	for _, o := range objects {
		of[o.GetName()] = append(of[o.GetName()], o)
	}
	for _, policy := range slices.Sorted(maps.Keys(of)) {
		add := func(what string, change func(spec map[string]any)) {
			all = append(all, mutate(t, of[policy], what, len(all), change))
		}
		add(unchanged, func(map[string]any) {})
		spec, _, err := unstructured.NestedMap(of[policy][0].Object, "spec")
		must(t, err)
		conditions, validations := listIn(spec, "matchConditions"), listIn(spec, "validations")
		for i := range conditions {
			add(fmt.Sprintf("without match condition %d", i), func(spec map[string]any) {
				spec["matchConditions"] = slices.Concat(listIn(spec, "matchConditions")[:i], conditions[i+1:])
			})
		}
		for i := range validations {
			for _, always := range []string{"true", "false"} {
				if validations[i].(map[string]any)["expression"] == always { //nolint:forcetypeassert // else the test fails
					continue
				}
				add(fmt.Sprintf("with validation %d always %s", i, always), func(spec map[string]any) {
					listIn(spec, "validations")[i].(map[string]any)["expression"] = always //nolint:forcetypeassert // as above
				})
			}
		}
		for from, to := range parts()[policy] {
			add(fmt.Sprintf("with %q for %q", to, from), func(spec map[string]any) {
				text := jsonOf(t, spec)
				if strings.Count(text, from) != 1 {
					t.Fatalf("%s: %d times %q in %s", policy, strings.Count(text, from), from, text)
				}
				must(t, json.Unmarshal([]byte(strings.Replace(text, from, to, 1)), &spec))
			})
		}
	}
	return all
}

func listIn(spec map[string]any, field string) []any {
	list, _, _ := unstructured.NestedSlice(spec, field)
	spec[field] = list
	return list
}

// jsonOf returns the JSON of a value, without escapes of characters such as &.
func jsonOf(t *testing.T, value any) string {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	must(t, encoder.Encode(value))
	return text.String()
}

// parts returns the replacements in the JSON of the spec of each policy.
func parts() map[string]map[string]string {
	const (
		account = `:csi-reclaimer:`
		and, or = ` &&\n`, ` ||\n`
		mode    = `ect.metadata.?labels[?\"csi-reclaimer.io/single-node\"]`
		safety  = `ect.metadata.?labels[?\"csi-reclaimer.io/pod-safety\"]`
		usedBy  = `ect.metadata.?annotations[?\"csi-reclaimer.io/used-by\"]`
		gates   = `ect.spec.?schedulingGates.orValue([])`
		ours    = `.exists(g, g.name == \"csi-reclaimer.io/volume\")`
		kept    = `\"csi-reclaimer.io/single-node\" in oldObject.metadata.?finalizers.orValue([])`
		lost    = `!(\"csi-reclaimer.io/single-node\" in object.metadata.?finalizers.orValue([]))`
		isNew   = `oldObject == null` + or
		differs = ` !=\n  oldObj`
	)
	return map[string]map[string]string{
		namespacePolicy: {
			`"CREATE",`: ``, `,"UPDATE"`: ``, `"namespaces/status",`: ``, `,"namespaces/finalize"`: ``, isNew: ``,
			or + `obj` + safety + differs + safety: ``, `obj` + mode + differs + mode + or: ``,
			`[\"selected\", \"all\"]`: `[\"all\"]`, `== \"enforce\"`: `!= \"\"`,
		},
		valuePolicy: {
			`["persistentvolumeclaims",`: `[`, `,"persistentvolumes"`: ``, `"storageclasses"`: `"csidrivers"`, isNew: ``,
		},
		gateRequired: {
			`has(v.persistentVolumeClaim) || `: ``, ` || has(v.ephemeral)`: ``,
			`g.name == \"csi-reclaimer.io/volume\"`: `true`,
		},
		gateStays: {
			account: `:elsewhere:`, `:volume-guard`: `:other`,
			`oldObj` + gates + ours + and: ``, and + `!obj` + gates + ours: ``,
			`!obj` + gates + ours + `"`:               `obj` + gates + `.size() == 0"`,
			`orValue(\"\") == oldObject.metadata.uid`: `orValue(\"\") != \"\"`,
		},
		lockStays: {
			account: `:elsewhere:`, `:volume-guard`: `:other`,
			`"persistentvolumeclaims",`: ``, `,"persistentvolumeclaims/status"`: ``,
			`obj` + usedBy + differs + usedBy + or: ``, or + kept + and + lost: ``, kept + and: ``, and + lost: ``,
		},
	}
}

// mutate returns a policy and its binding under other names, about another label.
func mutate(t *testing.T, of []*unstructured.Unstructured, what string, n int, change func(map[string]any)) mutant {
	t.Helper()
	m := mutant{policy: of[0].GetName(), what: what, key: fmt.Sprintf("%s-%d", realKey, n)}
	const quoted = `\"` + lockFinalizer
	for i, o := range of {
		o = o.DeepCopy()
		if i == 0 {
			spec, _, err := unstructured.NestedMap(o.Object, "spec")
			must(t, err)
			change(spec)
			o.Object["spec"] = spec
		}
		text := strings.ReplaceAll(jsonOf(t, o.Object), m.policy, fmt.Sprintf("%s-%d", m.policy, n))
		text = strings.ReplaceAll(text, realKey, m.key)
		for _, object := range []string{"oldObject", "object"} { // the finalizer has the name of the label
			in := ` in ` + object + `.metadata.?finalizers`
			text = strings.ReplaceAll(text, `\"`+m.key+`\"`+in, quoted+`\"`+in)
		}
		o = &unstructured.Unstructured{}
		must(t, json.Unmarshal([]byte(text), &o.Object))
		m.objects = append(m.objects, o)
	}
	return m
}

// TestEachGuardOfThePolicies removes one guard at a time, and expects a different outcome in the table of requests.
func TestEachGuardOfThePolicies(t *testing.T) {
	suite.Deep(t, suite.Load)
	all, rows, mutants := users(t), requests(), mutants(t)
	about := make([]*prepared, len(mutants))
	for n, m := range mutants {
		about[n] = prepare(t, m.key, m.policy)
	}
	// Some mutants refuse all requests, so the cleanup of the namespaces waits until the API server enforces none.
	t.Cleanup(func() { must(t, manifests.WaitPolicies(context.WithoutCancel(t.Context()), cluster.Admin())) })
	for _, m := range mutants {
		create(t, m.objects...)
	}
	must(t, manifests.WaitPolicies(t.Context(), cluster.Admin()))
	for n, m := range mutants {
		killed := false
		for sentence, r := range rows {
			if r.policy != m.policy {
				continue
			}
			switch got := suite.Judge(r.send(t.Context(), all[r.as], about[n])); {
			case m.what == unchanged:
				got.RefusedBy = strings.TrimSuffix(got.RefusedBy, fmt.Sprintf("-%d", n))
				want := suite.Verdict{}
				if r.refused {
					want.RefusedBy = r.policy
				}
				if got.String() != want.String() {
					t.Errorf("%s, as %s: %v, want %v", sentence, r.as, got, want)
				}
			case (got.RefusedBy != "" || got.Err != nil) != r.refused:
				killed = true
			}
		}
		if !killed && m.what != unchanged {
			t.Errorf("%s %s: every request has the outcome that it has with the policy as it is", m.policy, m.what)
		}
	}
	t.Logf("%d mutants", len(mutants))
}

// admissionregistration is the group of the policies.
var admissionregistration = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}

// create creates objects until the test ends.
func create(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	c, err := dynamic.NewForConfig(cluster.Admin())
	must(t, err)
	ctx := context.WithoutCancel(t.Context())
	for _, o := range objects {
		resource := "validatingadmissionpolicies"
		if strings.HasSuffix(o.GetKind(), "Binding") {
			resource = "validatingadmissionpolicybindings"
		}
		all := c.Resource(admissionregistration.WithResource(resource))
		_, err := all.Create(ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		must(t, err)
		t.Cleanup(func() {
			if err := all.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				must(t, err)
			}
		})
	}
}
