//go:build unix

package podadmission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// judge sends the request of a row.
func (r request) judge(t *testing.T, all map[string]*user, pod *v1.Pod) suite.Verdict {
	t.Helper()
	as := all[r.as]
	as.Take()
	return suite.Judge(r.send(t.Context(), as, pod), as.Take()...)
}

// judgeAll prepares the rows in a namespace, sets its mode, and sends the requests once the policies are in force.
func judgeAll(t *testing.T, rows map[string]request, all map[string]*user, mode string,
	ready func(namespace string)) map[string]suite.Verdict {
	t.Helper()
	namespace, pods := prepareAll(t, rows, all)
	if mode != "" {
		setMode(t, namespace, mode)
	}
	ready(namespace)
	verdicts := map[string]suite.Verdict{}
	for sentence, r := range rows {
		verdicts[sentence] = r.judge(t, all, pods[sentence])
	}
	return verdicts
}

// forget deletes the objects of the rows, also held ones.
func forget(t *testing.T, namespace string) {
	t.Helper()
	ctx, pods := context.WithoutCancel(t.Context()), client.CoreV1().Pods(namespace)
	_, err := client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+label+`":null}}}`), metav1.PatchOptions{})
	must(t, err)
	left, err := pods.List(ctx, metav1.ListOptions{})
	must(t, err)
	for _, pod := range left.Items {
		_, err := pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		if err == nil {
			err = pods.Delete(ctx, pod.Name, withGrace(0))
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Logf("clean up: %v", err)
		}
	}
	must(t, client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
}

// valuePolicy refuses other values of the label than enforce and warn.
const valuePolicy = "csi-reclaimer-pod-safety-value"

// withoutValuePolicy ends the effect of valuePolicy until the end of the test.
func withoutValuePolicy(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	refused := func() bool {
		o := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "label-other", Labels: map[string]string{label: "other"}}}
		_, err := client.CoreV1().Namespaces().Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	}
	binding, err := bindings.Get(ctx, valuePolicy, metav1.GetOptions{})
	must(t, err)
	must(t, bindings.Delete(ctx, valuePolicy, metav1.DeleteOptions{}))
	t.Cleanup(func() {
		binding.UID, binding.ResourceVersion = "", ""
		_, err := bindings.Create(ctx, binding, metav1.CreateOptions{})
		must(t, err)
		must(t, wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) { return refused(), nil }))
	})
	until(t, valuePolicy+" to end", func() bool { return !refused() })
}

// TestLabelHasTwoValues expects the refusal of other values, which would protect nothing.
func TestLabelHasTwoValues(t *testing.T) {
	namespaces, dryRun := client.CoreV1().Namespaces(), []string{metav1.DryRunAll}
	made := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "label-", Labels: map[string]string{label: warn}}}
	made, err := namespaces.Create(t.Context(), made, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { forget(t, made.Name) })
	for value, refused := range map[string]bool{`"enforce"`: false, `"warn"`: false, "null": false, `"enforced"`: true,
		`"Enforce"`: true, `"true"`: true, `""`: true} {
		labels := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, value)
		sent := map[string]error{}
		_, sent["patch"] = namespaces.Patch(t.Context(), made.Name, types.MergePatchType, labels,
			metav1.PatchOptions{DryRun: dryRun})
		_, sent["patch of the status"] = namespaces.Patch(t.Context(), made.Name, types.MergePatchType, labels,
			metav1.PatchOptions{DryRun: dryRun}, "status")
		if value != "null" {
			created := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "label-new",
				Labels: map[string]string{label: strings.Trim(value, `"`)}}}
			_, sent["create"] = namespaces.Create(t.Context(), created, metav1.CreateOptions{DryRun: dryRun})
		}
		for request, err := range sent {
			want := suite.Verdict{}
			if refused {
				want.RefusedBy = valuePolicy
			}
			if got := suite.Judge(err); got.String() != want.String() {
				t.Errorf("%s of %s: %v, want %v", request, value, got, want)
			}
		}
	}
	_, err = namespaces.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{})
	must(t, err)
}

// TestPolicies sends each request where pod safety is enforced, where it warns, and where it is off.
func TestPolicies(t *testing.T) {
	all, rows := users(t), requests()
	t.Run("enforce", func(t *testing.T) {
		got := judgeAll(t, rows, all, enforce, func(namespace string) { waitStays(t, namespace, all[admin]) })
		for sentence, r := range rows {
			want := suite.Verdict{}
			if r.refused {
				want.RefusedBy = r.policy
			}
			if got[sentence].String() != want.String() {
				t.Errorf("%s, as %s: %v, want %v", sentence, r.as, got[sentence], want)
			}
			if r.refused && got[sentence].Err == nil {
				expectHelp(t, sentence, got[sentence].Text)
			}
		}
	})
	t.Run("warn", func(t *testing.T) {
		got := judgeAll(t, rows, all, warn, func(namespace string) { waitWarns(t, namespace, all[admin]) })
		for sentence, r := range rows {
			want := suite.Verdict{}
			if r.refused && r.policy != holdStays { // nothing is held where pod safety warns
				want.WarnedBy = r.policy
			}
			if got[sentence].String() != want.String() {
				t.Errorf("%s, as %s: %v, want %v", sentence, r.as, got[sentence], want)
			}
		}
	})
	t.Run("off", func(t *testing.T) {
		for sentence, got := range judgeAll(t, rows, all, "", func(string) {}) {
			if got.String() != (suite.Verdict{}).String() {
				t.Errorf("%s: %v", sentence, got)
			}
		}
	})
}

// expectHelp wants the object and a remedy in the message.
func expectHelp(t *testing.T, sentence, text string) {
	t.Helper()
	for _, word := range []string{"pod pods-", "/pod-", "confirm"} {
		if !strings.Contains(text, word) {
			t.Errorf("%s: no %q in %q", sentence, word, text)
		}
	}
	if !strings.Contains(text, "evict") && !strings.Contains(text, "kubectl annotate pod --namespace pods-") {
		t.Errorf("%s: no command in %q", sentence, text)
	}
}

// waitStays waits until pods are held and no user may remove the finalizer: the API server begins with each policy and
// webhook at its own time. The pod stays.
func waitStays(t *testing.T, namespace string, as *user) {
	t.Helper()
	ctx := t.Context()
	waitHolds(t, namespace)
	pod := podOf(namespace, "probe", ownNode)
	pod.Spec.Volumes = []v1.Volume{objects.ClaimVolume("v", "c")}
	_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	until(t, "the finalizer to stay", func() bool {
		_, err := as.CoreV1().Pods(namespace).Patch(ctx, "probe", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return suite.Judge(err).RefusedBy == holdStays
	})
}

// waitWarns waits until a force deletion is warned of. The pod stays.
func waitWarns(t *testing.T, namespace string, as *user) {
	t.Helper()
	ctx, pods := t.Context(), as.CoreV1().Pods(namespace)
	_, err := client.CoreV1().Pods(namespace).Create(ctx, podOf(namespace, "probe", ownNode), metav1.CreateOptions{})
	must(t, err)
	options := withGrace(0)
	options.DryRun = []string{metav1.DryRunAll}
	until(t, "force deletions to be warned of", func() bool {
		as.Take()
		must(t, pods.Delete(ctx, "probe", options))
		return len(as.Take()) > 0
	})
}

// mutant is a policy without one of its guards.
type mutant struct {
	policy, what string
	objects      []object
}

// unchanged is the name of a mutant with all guards, which shows that the others differ only by their guard.
const unchanged = "unchanged"

// mutants returns, for each policy of the table: each match condition removed, each validation that always and never
// holds, and the parts of conditions in parts.
func mutants(t *testing.T) (all []mutant) {
	t.Helper()
	of := map[string][]object{} // a policy and its bindings
	for _, o := range manifest(t, policiesFile) {
		name, found, err := unstructured.NestedString(o.Object, "spec", "policyName")
		must(t, err)
		if !found {
			name = o.GetName()
		}
		of[name] = append(of[name], o)
	}
	for _, policy := range []string{forceDelete, forceEvict, podStatus, holdStays} {
		add := func(what string, change func(policy *unstructured.Unstructured)) {
			all = append(all, mutant{policy, what, variant(t, of[policy], len(all), change)})
		}
		add(unchanged, func(*unstructured.Unstructured) {})
		spec := of[policy][0].Object["spec"].(map[string]any) //nolint:forcetypeassert // else the test fails
		for i := range spec["matchConditions"].([]any) {      //nolint:forcetypeassert // else the test fails
			add(fmt.Sprintf("without match condition %d", i), func(o *unstructured.Unstructured) {
				list, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConditions")
				must(t, unstructured.SetNestedSlice(o.Object, append(list[:i:i], list[i+1:]...), "spec", "matchConditions"))
			})
		}
		for _, always := range []string{"true", "false"} {
			if policy == forceEvict && always == "false" {
				continue // it is
			}
			add("with a validation that is always "+always, func(o *unstructured.Unstructured) {
				list, _, _ := unstructured.NestedSlice(o.Object, "spec", "validations")
				list[0].(map[string]any)["expression"] = always //nolint:forcetypeassert // else the test fails
				must(t, unstructured.SetNestedSlice(o.Object, list, "spec", "validations"))
			})
		}
		for from, to := range parts(policy) {
			add(fmt.Sprintf("with %q for %q", to, from), func(o *unstructured.Unstructured) {
				edit(t, object{o}, func(text string) string {
					if strings.Count(text, from) != 1 {
						t.Fatalf("%s: %d times %q in %s", policy, strings.Count(text, from), from, text)
					}
					return strings.Replace(text, from, to, 1)
				})
			})
		}
	}
	return all
}

// believed is the part of a condition that volume-guard believes, and former begins the conditions before the request.
const (
	believed = `c.?reason.orValue(\"\") + string(c.?observedGeneration.orValue(0))) `
	former   = `!=\noldObject.status.?conditions.orValue([]).filter(c, c.type == \"ContainersReady\").map(c,\n`
)

// parts returns the replacements in the JSON of a policy.
func parts(policy string) map[string]string {
	switch policy {
	case forceDelete:
		return exempt(map[string]string{
			`oldObject.spec.?nodeName.orValue(\"\") != \"\" \u0026\u0026\n(!(`:                         `(!(`,
			`oldObject.metadata.?deletionTimestamp.hasValue() \u0026\u0026\n`:                          ``,
			`\u0026\u0026\n\"csi-reclaimer.io/running\" in oldObject.metadata.?finalizers.orValue([])`: ``,
			`[\"Succeeded\", \"Failed\"]`:                               `[\"Succeeded\"]`,
			`request.options.gracePeriodSeconds\n  :`:                   `30\n  :`,
			`oldObject.spec.?terminationGracePeriodSeconds.orValue(30)`: `30`,
		})
	case podStatus:
		all := exempt(map[string]string{
			`[\"Succeeded\", \"Failed\"]`: `[\"Failed\"]`,
			`[\"Failed\", \"Succeeded\"]`: `[\"Succeeded\"]`,
			`object.status.?phase.orValue(\"\") != oldObject.status.?phase.orValue(\"\") \u0026\u0026\n`: ``,
			`!=\noldObject.status.?conditions`: `!=\nobject.status.?conditions`,
			`\"csi-reclaimer.io/running\" in oldObject.metadata.?finalizers.orValue([]) \u0026\u0026\n`: ``,
			`oldObject.metadata.?deletionTimestamp.hasValue() ||\n`:                                     ``,
			`oldObject.status.?phase.orValue(\"\") == \"Succeeded\" || `:                                ``,
			` || oldObject.status.?phase.orValue(\"\") == \"Failed\"`:                                   ``,
			`!= oldObject.status.?containerStatuses`:                                                    `!= object.status.?containerStatuses`,
			`!= oldObject.status.?initContainerStatuses`:                                                `!= object.status.?initContainerStatuses`,
			`!=\noldObject.status.?ephemeralContainerStatuses`:                                          `!=\nobject.status.?ephemeralContainerStatuses`,
			`[\"kubelet\", \"kubelet.exe\"]`:                                                            `[\"kubelet\"]`,
			`f.?manager.orValue(\"\") in [\"kubelet\", \"kubelet.exe\"] \u0026\u0026 `:                  ``,
			`f.?operation.orValue(\"\") == \"Update\" \u0026\u0026\n`:                                   ``,
			`f.?subresource.orValue(\"\") == \"status\" \u0026\u0026 `:                                  ``,
			` \u0026\u0026 f.?fieldsV1[?\"f:status\"][?\"f:phase\"].hasValue()`:                         ``,
			`== [true, false]`:       `!= [false, false]`,
			`["pods","pods/status"]`: `["pods/status"]`,
			`object.status.?conditions.orValue([]).filter(c, c.type == \"ContainersReady\"`: `object.status.?conditions.orValue([]).filter(c, c.type == \"Ready\"`,
			believed + former + believed:                   strings.ReplaceAll(believed+former+believed, `c.?reason.orValue(\"\") + `, ``),
			`c.type == \"DisruptionTarget\" \u0026\u0026 `: ``,
			`== \"TerminationByKubelet\"`:                  `== \"Other\"`,
			`.?reason.orValue(\"\") == \"Evicted\"`:        `.?reason.orValue(\"\") != \"a\"`,
			`\u0026\u0026\n!oldObject.status.?containerStatuses.orValue([]).exists(c, c.?containerID.orValue(\"\") != \"\")`: ``,
			`[[true, false], [false, true]] :`: `[[true, false]] :`,
			`: [[true, false]])`:               `: [[true, false], [false, true]])`,
			believed + former + believed + `||`: strings.ReplaceAll(believed+former+believed+`||`,
				` + string(c.?observedGeneration.orValue(0))`, ``),
			`!= oldObject.status.?reason`: `!= object.status.?reason`,
		})
		if cluster.Version().Before(controlplane.V1_34) { // its conditions of pods have no observedGeneration
			delete(all, believed+former+believed+`||`)
		}
		return all
	case holdStays:
		return map[string]string{
			`\"csi-reclaimer.io/running\" in oldObject.metadata.?finalizers.orValue([]) \u0026\u0026`:  ``,
			`\u0026\u0026\n!(\"csi-reclaimer.io/running\" in object.metadata.?finalizers.orValue([]))`: ``,
			`"pods","pods/status",`: `"pods",`,
			`["pods",`:              `[`,
			`:csi-reclaimer:`:       `:elsewhere:`,
		}
	}
	return map[string]string{`:csi-reclaimer:`: `:elsewhere:`}
}

// exempt adds replacements that remove the exemptions.
func exempt(more map[string]string) map[string]string {
	more[`\"system:nodes\" in request.userInfo.groups \u0026\u0026`] = ``
	more[`\u0026\u0026\n  request.userInfo.username == \"system:node:\" + oldObject.spec.?nodeName.orValue(\"\")`] = ``
	more[`\"system:serviceaccount:kube-system:pod-garbage-collector\",`] = ``
	more[`\"system:kube-controller-manager\",`] = ``
	more[`:csi-reclaimer:volume-guard`] = `:csi-reclaimer:other`
	return more
}

// variant returns a policy and its bindings under other names, for namespaces with modes of their own.
func variant(t *testing.T, of []object, n int, change func(policy *unstructured.Unstructured)) (all []object) {
	t.Helper()
	for i, o := range of {
		o = object{o.DeepCopy()}
		if i == 0 {
			change(o.Unstructured)
		}
		if mode := modeOf(o); mode != "" {
			must(t, unstructured.SetNestedField(o.Object, mutantMode(mode, n), "spec", "matchResources", "namespaceSelector",
				"matchLabels", label))
			must(t, unstructured.SetNestedField(o.Object, fmt.Sprintf("%s-%d", of[0].GetName(), n), "spec", "policyName"))
		}
		o.SetName(fmt.Sprintf("%s-%d", o.GetName(), n))
		all = append(all, o)
	}
	return all
}

func modeOf(binding object) string {
	mode, _, _ := unstructured.NestedString(binding.Object, "spec", "matchResources", "namespaceSelector", "matchLabels",
		label)
	return mode
}

func mutantMode(mode string, n int) string { return fmt.Sprintf("%s-%d", mode, n) }

// TestEachGuardOfThePolicies removes one guard at a time, and expects a different outcome in the table of requests.
func TestEachGuardOfThePolicies(t *testing.T) {
	suite.Deep(t, suite.Load)
	withoutValuePolicy(t) // the label has a value for each mutant
	all, rows, mutants := users(t), requests(), mutants(t)
	namespace, pods := prepareAll(t, rows, all)
	var objects []object
	for _, m := range mutants {
		objects = append(objects, m.objects...)
	}
	objects = append(objects, canary(t)...) // the API server observes it last
	removeAtEnd(t, objects...)
	must(t, apply(t.Context(), objects...))
	for _, u := range all {
		u.dryRun = []string{metav1.DryRunAll}
	}
	for n, m := range mutants {
		mode := mutantMode(enforce, n)
		setMode(t, namespace, mode)
		until(t, m.policy+" "+m.what+" to be in force", func() bool { return modeObserved(t, namespace) == mode })
		if got := killed(t, m, rows, all, pods); got == (m.what == unchanged) {
			t.Errorf("%s %s: has any request another outcome: %v", m.policy, m.what, got)
		}
	}
	t.Logf("%d mutants", len(mutants))
}

// killed reports whether a request has another outcome with the mutant.
func killed(t *testing.T, m mutant, rows map[string]request, all map[string]*user, pods map[string]*v1.Pod) bool {
	t.Helper()
	for sentence, r := range rows {
		if r.policy != m.policy {
			continue
		}
		got := r.judge(t, all, pods[sentence])
		if got.Err != nil {
			t.Errorf("%s %s: %s: %v", m.policy, m.what, sentence, got.Err)
		}
		if (got.RefusedBy != "") != r.refused {
			return true
		}
	}
	return false
}

// canary is a policy that refuses ConfigMaps with the mode of their namespace.
func canary(t *testing.T) []object {
	t.Helper()
	return parse(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: canary}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["configmaps"]}
  validations:
  - expression: "false"
    messageExpression: "'mode=' + namespaceObject.metadata.labels['`+label+`'] + ';'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: canary}
spec:
  policyName: canary
  validationActions: [Deny]
  matchResources:
    namespaceSelector:
      matchExpressions: [{key: `+label+`, operator: Exists}]
`)
}

// modeObserved returns the mode that the API server's policies observe.
func modeObserved(t *testing.T, namespace string) string {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "canary"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return ""
	}
	_, mode, _ := strings.Cut(err.Error(), "mode=")
	mode, _, _ = strings.Cut(mode, ";")
	return mode
}
