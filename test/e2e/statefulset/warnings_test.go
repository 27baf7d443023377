//go:build unix

package statefulset

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// warned is one request with its expected warning.
type warned struct {
	policy policy
	change func(*appsv1.StatefulSet)
	send   func(ctx context.Context, sets typedappsv1.StatefulSetInterface, name string) error
	// by is the warning policy, empty for none, and words is its message.
	by, words string
}

// Requests that change a set of 3 replicas.
func scaleTo(replicas int) func(context.Context, typedappsv1.StatefulSetInterface, string) error {
	return mergePatch(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), "scale")
}

func mergePatch(patch string, subresource ...string) func(context.Context, typedappsv1.StatefulSetInterface,
	string) error {
	return func(ctx context.Context, sets typedappsv1.StatefulSetInterface, name string) error {
		_, err := sets.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
		return err
	}
}

func deletionOf(how metav1.DeletionPropagation) func(context.Context, typedappsv1.StatefulSetInterface, string) error {
	return func(ctx context.Context, sets typedappsv1.StatefulSetInterface, name string) error {
		return sets.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &how})
	}
}

func withoutTemplates(o *appsv1.StatefulSet) { o.Spec.VolumeClaimTemplates = nil }

// warnedRequests returns all requests of the test, by description.
func (env *environment) warnedRequests() map[string]warned {
	const update, scale, deletion = "scale-down", "scale", "delete"
	toRetain := `{"spec":{"replicas":1,"persistentVolumeClaimRetentionPolicy":` + annotated(keepAll) + `}}`
	if !env.field {
		toRetain = `{"metadata":{"annotations":{"` + policyAnnotation + `":null}},"spec":{"replicas":1}}`
	}
	all := map[string]warned{
		"kubectl scale, down": {policy: onScaledown, send: scaleTo(1), by: scale,
			words: "3 replicas become 1, and whenScaled is Delete"},
		"kubectl scale, to none":               {policy: onBoth, send: scaleTo(0), by: scale, words: "3 replicas become 0"},
		"kubectl scale, up":                    {policy: onBoth, send: scaleTo(4)},
		"kubectl scale, to the same":           {policy: onBoth, send: scaleTo(3)},
		"kubectl scale, down, under Retain":    {policy: onSetDeletion, send: scaleTo(1)},
		"kubectl scale, down, without a claim": {policy: onBoth, change: withoutTemplates, send: scaleTo(1)},
		"a patch, down": {policy: onScaledown, send: mergePatch(`{"spec":{"replicas":1}}`), by: update,
			words: "the ordinals 0 to 2 become 0 to 0, and whenScaled is Delete"},
		"a patch, to none": {policy: onScaledown, send: mergePatch(`{"spec":{"replicas":0}}`), by: update,
			words: "the ordinals 0 to 2 become none"},
		"a patch, to other ordinals": {policy: onScaledown, send: mergePatch(`{"spec":{"ordinals":{"start":1}}}`), by: update,
			words: "the ordinals 0 to 2 become 1 to 3"},
		"a patch, down and to Retain":    {policy: onBoth, send: mergePatch(toRetain)},
		"a patch, up":                    {policy: onBoth, send: mergePatch(`{"spec":{"replicas":4}}`)},
		"a patch, of something else":     {policy: onBoth, send: mergePatch(`{"metadata":{"labels":{"a":"b"}}}`)},
		"a patch, down, under Retain":    {policy: onSetDeletion, send: mergePatch(`{"spec":{"replicas":1}}`)},
		"a patch, down, without a claim": {policy: onBoth, change: withoutTemplates, send: mergePatch(`{"spec":{"replicas":1}}`)},
		"a deletion": {policy: onSetDeletion, send: deletionOf(metav1.DeletePropagationBackground), by: deletion,
			words: "whenDeleted is Delete, so its claims are deleted with it"},
		"a deletion in the foreground": {policy: onBoth, send: deletionOf(metav1.DeletePropagationForeground), by: deletion,
			words: "whenDeleted is Delete"},
		"a deletion of the set alone": {policy: onBoth, send: deletionOf(metav1.DeletePropagationOrphan)},
		"a deletion under Retain":     {policy: onScaledown, send: deletionOf(metav1.DeletePropagationBackground)},
		"a deletion, without templates": {policy: onBoth, change: withoutTemplates,
			send: deletionOf(metav1.DeletePropagationBackground)},
	}
	both := withAnnotation(policyAnnotation, annotated(onBoth))
	if env.field {
		all["an annotation beside the field, down"] = warned{policy: keepAll, change: both, send: scaleTo(1)}
		all["an annotation beside the field, deleted"] = warned{policy: keepAll, change: both,
			send: deletionOf(metav1.DeletePropagationBackground)}
		return all
	}
	for _, value := range []string{"Delete", `{"whenScaled":"delete","whenDeleted":"Retain"}`, `["whenScaled","Delete"]`} {
		invalid := withAnnotation(policyAnnotation, value)
		all["annotation "+value+", down"] = warned{policy: onBoth, change: invalid, send: scaleTo(1)}
		all["annotation "+value+", deleted"] = warned{policy: onBoth, change: invalid,
			send: deletionOf(metav1.DeletePropagationBackground)}
	}
	return all
}

// TestWarnings sends requests that scale and delete sets, with the warning policies in force in one namespace.
func TestWarnings(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t).scenario(t)
	const binding = "  validationActions: [Warn, Audit]\n"
	env.ApplyManifest("statefulset-claims-warn.yaml", binding, binding+
		"  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+env.Namespace+"}}}\n")
	heard := &suite.Warnings{}
	config := rest.CopyConfig(env.Plane.Admin())
	config.WarningHandler = heard
	client, err := kubernetes.NewForConfig(config)
	env.Must(err)
	sets := client.AppsV1().StatefulSets(env.Namespace)

	nowhere := func(o *appsv1.StatefulSet) {
		o.Spec.Template.Spec.NodeSelector = map[string]string{v1.LabelHostname: "none"}
	}
	names, all := map[string]string{}, env.warnedRequests()
	for sentence, c := range all {
		changes := []func(*appsv1.StatefulSet){nowhere}
		if c.change != nil {
			changes = append(changes, c.change)
		}
		names[sentence] = fmt.Sprintf("set-%d", len(names))
		env.makeSet(names[sentence], 3, c.policy, changes...)
	}
	env.makeSet("last", 3, onScaledown, nowhere)
	env.Eventually("the API server warns, of the set that was created last", func() bool {
		heard.Take()
		_, err := sets.Patch(env.Ctx, "last", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "scale")
		env.Must(err)
		return len(heard.Take()) > 0
	})
	for sentence, c := range all {
		heard.Take()
		env.Must(c.send(env.Ctx, sets, names[sentence]))
		said := strings.Join(heard.Take(), "\n")
		switch name := env.Namespace + "/" + names[sentence]; {
		case c.by == "" && said != "":
			t.Errorf("%s: %q", sentence, said)
		case c.by == "":
		case !strings.Contains(said, "'csi-reclaimer-statefulset-"+c.by+"'") || !strings.Contains(said, c.words) ||
			!strings.Contains(said, "StatefulSet "+name) || !strings.Contains(said, "kubectl reclaim preview statefulset/"):
			t.Errorf("%s: %q, want %q of %s by %s", sentence, said, c.words, name, c.by)
		}
	}
	env.Must(client.AppsV1().StatefulSets(env.Namespace).DeleteCollection(env.Ctx,
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{}))
}
