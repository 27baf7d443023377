//go:build unix

package statefulset

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// plugin runs kubectl-reclaim and reads its JSON.
func (env *environment) plugin(into any, args ...string) {
	env.T.Helper()
	output := env.RunPlugin(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(output), into); err != nil {
		env.T.Fatalf("%v in\n%s", err, output)
	}
}

// preview returns the plugin's preview of the fate of the set's claims. It waits until no claim's volume is in flight:
// csi-reclaimer closes the entry of a volume a moment after it stores the PV, and until then the volume has no fate.
func (s *set) preview(args ...string) (p claims.Preview) {
	s.T.Helper()
	s.Eventually("no volume of the set is in flight", func() bool {
		p = claims.Preview{}
		s.plugin(&p, append([]string{"preview", "statefulset/" + s.name}, args...)...)
		return !slices.ContainsFunc(p.Claims, func(r claims.Row) bool {
			return r.Volume.Reason == string(reclaim.ReasonInFlight)
		})
	})
	if len(p.Unread) > 0 {
		s.T.Errorf("not all is read: %q", p.Unread)
	}
	return p
}

// expectPreview checks a preview: the fate of each claim and its volume, by ordinal.
func (s *set) expectPreview(p claims.Preview, want ...string) {
	s.T.Helper()
	var got []string
	for _, r := range p.Claims {
		got = append(got, fmt.Sprintf("%s %s %s", r.Claim, r.Fate, r.Volume.Fate))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.T.Errorf("the preview has %q, want %q: %+v", got, want, p)
	}
}

// expectTrue waits until claims and volumes are as a preview has said.
func (s *set) expectTrue(p claims.Preview) {
	s.T.Helper()
	for _, r := range p.Claims {
		deleted := r.Fate == "deleted"
		s.Eventually(fmt.Sprintf("claim %s is %s", r.Claim, r.Fate), func() bool {
			claim := s.claimNamed(r.Claim)
			return deleted == (claim == nil)
		})
		s.Eventually(fmt.Sprintf("volume of %s is %s", r.PV, r.Volume.Fate), func() bool {
			pv := s.PVs().Find(r.PV)
			if pv == nil {
				return r.Volume.Fate == volumes.VolumeDeleted
			}
			phase := v1.VolumeBound
			if deleted {
				phase = v1.VolumeReleased
			}
			return r.Volume.Fate == volumes.VolumeKept && pv.Status.Phase == phase
		})
	}
}

// lead has a Lease show that volume-guard runs, and provisions has one show that csi-reclaimer does: the ones of these
// tests elect no leader.
func (env *environment) lead() { env.elect("volume-guard", nil) }

func (env *environment) provisions() {
	env.elect(objects.ElectionLeases(env.Driver)[0], map[string]string{objects.DriverLabel: env.Driver})
}

func (env *environment) elect(name string, labels map[string]string) {
	env.T.Helper()
	env.Leases().Create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("test_1"), LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	})
}

// TestPreview has the plugin preview a change of a set, makes the change, and compares the result with the preview.
func TestPreview(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.run([]scenario{
		{"a scale-down under Delete", func(env *environment) {
			env.lead()
			s := env.runningSet(3, onScaledown)
			p := s.preview("--replicas=1")
			s.expectPreview(p, "data-web-0 kept kept", "data-web-1 deleted deleted", "data-web-2 deleted deleted")
			env.ExpectOutput(env.RunPlugin("explain", "pvc/data-web-1"), "Scaled away  deleted (ScaledDown)",
				"Set deleted  kept (RetainedWhenDeleted)", "it had pod web-1 of the set")
			s.scale(1)
			s.expectTrue(p)
		}},
	},
		scenario{"a claim that has no pod, and one whose PV is retained", func(env *environment) {
			env.lead()
			s := env.runningSet(2, onScaledown)
			s.retainVolume(1)
			s.losePod(1)
			p := s.preview("--replicas=1")
			s.expectPreview(p, "data-web-0 kept kept", "data-web-1 deleted kept")
			if when := p.Claims[1].When; when != "after a grace period of 60s" {
				t.Errorf("it is deleted %q", when)
			}
			s.scale(1)
			s.expectTrue(p)
		}},
		scenario{"a deletion under Delete, with a PV that is held", func(env *environment) {
			env.lead()
			env.provisions()
			s := env.runningSet(2, onSetDeletion)
			held := s.claim(1).Spec.VolumeName
			s.PVs().Annotate(held, holdAnnotation, "audit")
			p := s.preview("--delete")
			s.expectPreview(p, "data-web-0 deleted deleted", "data-web-1 deleted kept")
			s.delete(metav1.DeletePropagationBackground)
			s.expectTrue(p)
			s.PVs().Annotate(held, holdAnnotation, "")
		}},
		scenario{"a deletion of the set alone", func(env *environment) {
			env.lead()
			s := env.runningSet(1, onBoth)
			p := s.preview("--cascade=orphan")
			s.expectPreview(p, "data-web-0 kept kept")
			s.delete(metav1.DeletePropagationOrphan)
			s.waitGone()
			s.expectTrue(p)
		}},
		scenario{"retained", testRetained},
	)
}

// testRetained has claims be left behind, and deletes them as the plugin says.
func testRetained(env *environment) {
	s := env.runningSet(2, keepAll)
	list := func() (l claims.Retained) {
		env.plugin(&l, "status", "--retained")
		return l
	}
	if l := list(); len(l.Claims) != 0 || len(l.Unread) != 0 {
		env.T.Errorf("while all is in use: %+v", l)
	}
	s.scale(1)
	s.waitPods(0, 1)
	l := list()
	if len(l.Claims) != 1 || l.Totals.Size != "1Mi" {
		env.T.Fatalf("after a scale-down: %+v", l)
	}
	if c := l.Claims[0]; c.Name != "data-web-1" || c.StatefulSet != "web" || c.SetGone || c.Likely ||
		c.Reason != "Retained" || c.Since == nil || c.Volume.Fate != volumes.VolumeDeleted {
		env.T.Errorf("after a scale-down: %+v", c)
	}
	env.ExpectOutput(env.RunPlugin("explain", "pvc/data-web-1"), "ordinal 1, scaled away (the set has 1 replica)",
		"kubectl delete pvc data-web-1 -n "+env.Namespace)
	s.delete(metav1.DeletePropagationForeground)
	s.waitGone()
	env.Eventually("both claims are listed", func() bool { return len(list().Claims) == 2 })
	for _, c := range list().Claims {
		if !c.SetGone || c.Likely || c.Evidence == "" {
			env.T.Errorf("after the deletion of the set: %+v", c)
		}
		env.Claims().Delete(c.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(c.UID)})
		env.Eventually("the volume is deleted", func() bool { return env.PVs().Find(c.PV) == nil })
	}
	env.ExpectOutput(env.RunPlugin("status", "--retained"), "No claims that a StatefulSet has left behind were found")
}

// retainVolume retains the volume of an ordinal until the test has ended.
func (s *set) retainVolume(ordinal int) {
	s.T.Helper()
	name := s.claim(ordinal).Spec.VolumeName
	s.PVs().Merge(name, `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	s.T.Cleanup(func() {
		vol := s.ClaimOf(&v1.PersistentVolumeClaim{}).Volume(name)
		s.Must(vol.SetPolicy(s.CleanupContext(), v1.PersistentVolumeReclaimDelete))
	})
}

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
