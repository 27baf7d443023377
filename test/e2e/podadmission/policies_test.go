//go:build unix

package podadmission

import (
	"context"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// verdict is the outcome of a request.
type verdict struct {
	// refusedBy and warnedBy are the policies that did.
	refusedBy, warnedBy string
	// err is any other error.
	err error
	// text is the policy's message.
	text string
}

func (v verdict) String() string {
	switch {
	case v.err != nil:
		return v.err.Error()
	case v.refusedBy != "":
		return "refused by " + v.refusedBy
	case v.warnedBy != "":
		return "warned by " + v.warnedBy
	}
	return "admitted"
}

// judge sends the request of a row.
func (r request) judge(t *testing.T, all map[string]*user, pod *v1.Pod) verdict {
	t.Helper()
	as := all[r.as]
	as.Take()
	return judge(r.send(t.Context(), as, pod), as.Take())
}

// judgeAll prepares the rows in a namespace, sets its mode, and sends the requests once the policies are in force.
func judgeAll(t *testing.T, rows map[string]request, all map[string]*user, mode string,
	ready func(namespace string)) map[string]verdict {
	t.Helper()
	namespace, pods := prepareAll(t, rows, all)
	if mode != "" {
		setMode(t, namespace, mode)
	}
	ready(namespace)
	verdicts := map[string]verdict{}
	for sentence, r := range rows {
		verdicts[sentence] = r.judge(t, all, pods[sentence])
	}
	return verdicts
}

func judge(err error, warnings []string) (v verdict) {
	for _, text := range warnings {
		if policy := suite.PolicyIn(text); policy != "" {
			v.warnedBy, v.text = policy, text
		}
	}
	switch {
	case err == nil:
	case apierrors.IsForbidden(err) && suite.PolicyIn(err.Error()) != "":
		v.refusedBy, v.text = suite.PolicyIn(err.Error()), err.Error()
	default:
		v.err = err
	}
	return v
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

// TestPolicies sends each request where pod safety is enforced, where it warns, and where it is off.
func TestPolicies(t *testing.T) {
	all, rows := users(t), requests()
	t.Run("enforce", func(t *testing.T) {
		got := judgeAll(t, rows, all, enforce, func(namespace string) { waitStays(t, namespace, all[admin]) })
		for sentence, r := range rows {
			want := verdict{}
			if r.refused {
				want.refusedBy = r.policy
			}
			if got[sentence].String() != want.String() {
				t.Errorf("%s, as %s: %v, want %v", sentence, r.as, got[sentence], want)
			}
			if r.refused && got[sentence].err == nil {
				expectHelp(t, sentence, got[sentence].text)
			}
		}
	})
	t.Run("warn", func(t *testing.T) {
		got := judgeAll(t, rows, all, warn, func(namespace string) { waitWarns(t, namespace, all[admin]) })
		for sentence, r := range rows {
			want := verdict{}
			if r.refused && r.policy != holdStays { // nothing is held where pod safety warns
				want.warnedBy = r.policy
			}
			if got[sentence].String() != want.String() {
				t.Errorf("%s, as %s: %v, want %v", sentence, r.as, got[sentence], want)
			}
		}
	})
	t.Run("off", func(t *testing.T) {
		for sentence, got := range judgeAll(t, rows, all, "", func(string) {}) {
			if got.String() != (verdict{}).String() {
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
	pod.Spec.Volumes = []v1.Volume{claimVolume("c")}
	_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	until(t, "the finalizer to stay", func() bool {
		_, err := as.CoreV1().Pods(namespace).Patch(ctx, "probe", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return judge(err, nil).refusedBy == holdStays
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
