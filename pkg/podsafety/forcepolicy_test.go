package podsafety

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// shipped reads a policy that refuses force deletions, and its binding, from the manifest.
func shipped(t *testing.T, name string) (policy admissionv1.ValidatingAdmissionPolicy,
	binding admissionv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	content := must.Get(os.ReadFile("../../deploy/manifests/pod-safety-policies.yaml"))(t)
	for _, part := range bytes.Split(content, []byte("\n---\n")) {
		var meta metav1.PartialObjectMetadata
		must.OK(t, yaml.Unmarshal(part, &meta))
		var into any
		switch meta.Name {
		case name:
			into = &policy
		case name + enforced:
			into = &binding
		default:
			continue
		}
		must.OK(t, yaml.Unmarshal(part, into))
	}
	return policy, binding
}

func TestRefusesForceWithShippedPolicy(t *testing.T) {
	type (
		policy  = admissionv1.ValidatingAdmissionPolicy
		binding = admissionv1.ValidatingAdmissionPolicyBinding
	)
	gone, some := &metav1.Time{Time: time.Unix(1, 0)}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	rules := []admissionv1.NamedRuleWithOperations{{}}
	for sentence, c := range map[string]struct {
		change func(*policy, *binding)
		want   bool
	}{
		"as shipped":           {func(*policy, *binding) {}, true},
		"it can fail":          {func(p *policy, _ *binding) { p.Spec.FailurePolicy = ptr.To(admissionv1.Ignore) }, false},
		"by default it cannot": {func(p *policy, _ *binding) { p.Spec.FailurePolicy = nil }, true},
		"of an earlier version": {
			func(p *policy, _ *binding) {
				for i := range p.Spec.MatchConditions {
					if c := &p.Spec.MatchConditions[i]; c.Name == "may-run-or-be-mounted" {
						c.Name = "may-run"
					}
				}
			}, false},
		"it validates nothing":      {func(p *policy, _ *binding) { p.Spec.Validations = nil }, false},
		"it is being deleted":       {func(p *policy, _ *binding) { p.DeletionTimestamp = gone }, false},
		"the binding is":            {func(_ *policy, b *binding) { b.DeletionTimestamp = gone }, false},
		"the binding is of another": {func(_ *policy, b *binding) { b.Spec.PolicyName = "other" }, false},
		"it only warns": {
			func(_ *policy, b *binding) {
				b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
			}, false},
		"it is for other namespaces": {
			func(_ *policy, b *binding) {
				b.Spec.MatchResources.NamespaceSelector.MatchLabels[podsafety.NamespaceLabel] = "warn"
			}, false},
		"its selector is not valid": {
			func(_ *policy, b *binding) {
				b.Spec.MatchResources.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a"}}
			}, false},
		"it names no namespaces": {func(_ *policy, b *binding) { b.Spec.MatchResources = nil }, false},
		"it has the defaults of the API server": {
			func(p *policy, b *binding) {
				for _, m := range []*admissionv1.MatchResources{p.Spec.MatchConstraints, b.Spec.MatchResources} {
					m.ObjectSelector, m.MatchPolicy = &metav1.LabelSelector{}, ptr.To(admissionv1.Equivalent)
				}
				p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{}
			}, true},
		"it leaves out a namespace": {
			func(_ *policy, b *binding) {
				b.Spec.MatchResources.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{
					Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}}}
			}, false},
		"its policy leaves out namespaces": {
			func(p *policy, _ *binding) {
				p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			}, false},
		"it leaves out pods":         {func(_ *policy, b *binding) { b.Spec.MatchResources.ObjectSelector = some }, false},
		"its policy leaves out pods": {func(p *policy, _ *binding) { p.Spec.MatchConstraints.ObjectSelector = some }, false},
		"it excludes resources": {
			func(_ *policy, b *binding) { b.Spec.MatchResources.ExcludeResourceRules = rules }, false},
		"its policy excludes resources": {
			func(p *policy, _ *binding) { p.Spec.MatchConstraints.ExcludeResourceRules = rules }, false},
		"it is for some resources": {
			func(_ *policy, b *binding) { b.Spec.MatchResources.ResourceRules = rules }, false},
		"its policy is for other resources": {
			func(p *policy, _ *binding) {
				p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"pods/status"}
			}, false},
		"its policy is for other operations": {
			func(p *policy, _ *binding) {
				p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Update}
			}, false},
		"its policy is for some names": {
			func(p *policy, _ *binding) { p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{"db-0"} }, false},
		"its policy is for another group": {
			func(p *policy, _ *binding) { p.Spec.MatchConstraints.ResourceRules[0].APIGroups = []string{"apps"} }, false},
		"its policy is for another version": {
			func(p *policy, _ *binding) { p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v2"} }, false},
		"its policy has parameters": {
			func(p *policy, _ *binding) { p.Spec.ParamKind = &admissionv1.ParamKind{Kind: "ConfigMap"} }, false},
		"its conditions are in another order": {func(p *policy, _ *binding) { slices.Reverse(p.Spec.MatchConditions) }, true},
		"its policy has no constraints":       {func(p *policy, _ *binding) { p.Spec.MatchConstraints = nil }, false},
		"its policy has another condition": {
			func(p *policy, _ *binding) {
				p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "not-break-glass"})
			}, false},
	} {
		p, b := shipped(t, refusals[0].policy)
		c.change(&p, &b)
		if got := refusals[0].by(&p, &b); got != c.want {
			t.Errorf("%s: %t", sentence, got)
		}
	}
	if p, b := shipped(t, refusals[1].policy); !refusals[1].by(&p, &b) || refusals[0].by(&p, &b) {
		t.Error("the policy on evictions is not recognized, or is taken for the other one")
	}
}

func TestForcePolicyIsReadAgain(t *testing.T) {
	w := newWorld(t, Config{})
	w.show(held(terminating))
	synctest.Test(t, func(t *testing.T) {
		since := func() time.Time { f, _ := w.observer.observe("ns/db"); return f.ForceRefusedSince }
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(),
			textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))))
		defer cancel()
		go w.Watch(ctx) // as a replica does that waits for leadership
		synctest.Wait()
		begun := w.clock.Now().Add(forcePolicyDelay)
		if got := since(); !got.Equal(begun) {
			t.Errorf("at first: %v", got)
		}
		step := func(err error) time.Time {
			w.mu.Lock()
			w.fail["get policy"] = err
			w.mu.Unlock()
			w.clock.Step(forcePolicyEvery)
			synctest.Wait()
			return since()
		}
		if got := step(nil); !got.Equal(begun) {
			t.Errorf("the same again: %v", got)
		}
		w.policy = "another version"
		if got := step(nil); !got.Equal(begun.Add(2 * forcePolicyEvery)) {
			t.Errorf("it has been changed: %v", got)
		}
		if got := step(errors.New("not found")); !got.IsZero() {
			t.Errorf("it is gone: %v", got)
		}
		step(errors.New("not found"))
		if n := strings.Count(log.String(), "no policy refuses force deletions"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if got := step(nil); !got.Equal(begun.Add(5 * forcePolicyEvery)) {
			t.Errorf("it is back: %v", got)
		}
	})
}

// TestForceIsRefusedSinceTheLabel has the label of a namespace leave and return, while the policies stay.
func TestForceIsRefusedSinceTheLabel(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	at := testclock.NewFakeClock(began)
	o := newObserver(podsafety.Rules{}, false, at, wake{namespace: func(string) {}})
	since := func(namespace string) time.Time {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.forceRefusedIn(namespace)
	}
	of := func(mode podsafety.Mode) namespace { return namespace{Name: "ns", Mode: mode} }
	o.namespaceChanged(namespace{}, of(podsafety.ModeEnforce))
	if got := since("ns"); !got.IsZero() {
		t.Errorf("no policy was read, and force deletions are refused since %v", got)
	}
	at.Step(time.Minute)
	o.forceRefused("policies", at.Now())
	first := at.Now().Add(forcePolicyDelay)
	if got := since("ns"); !got.Equal(first) {
		t.Errorf("refused since %v, want %v", got, first)
	}
	if got := since("other"); !got.IsZero() {
		t.Errorf("refused since %v in a namespace without the label", got)
	}
	at.Step(time.Hour)
	o.namespaceChanged(of(podsafety.ModeEnforce), of(podsafety.ModeWarn))
	if got := since("ns"); !got.IsZero() {
		t.Errorf("refused since %v, although the policies only warn", got)
	}
	o.namespaceChanged(of(podsafety.ModeWarn), of(podsafety.ModeEnforce))
	if got, want := since("ns"), at.Now().Add(forcePolicyDelay); !got.Equal(want) {
		t.Errorf("refused since %v, want %v, after the label returned", got, want)
	}
	o.namespaceChanged(of(podsafety.ModeEnforce), namespace{})
	if len(o.enforcedSince) != 0 {
		t.Errorf("namespaces that are gone are remembered: %v", o.enforcedSince)
	}
}
