package claims

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

func TestRetained(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*environment)
		// want lists the claims with their sets, and a ? for likely. said lists words of the JSON output.
		want, said []string
	}{
		"in use": {func(*environment) {}, nil, nil},
		"scaled away": {func(env *environment) { env.scaled(1) }, []string{"data-db-1 db",
			"data-db-2 db"}, []string{`"20Gi"`, "kube-controller-manager created it", "Retained"}},
		"in range, and its pod is gone": {func(env *environment) { env.removePod() }, nil, nil},
		"scaled away, and its pod is not gone": {func(env *environment) { env.set.Spec.Replicas = ptr.To[int32](2) }, nil,
			nil},
		"scaled away, and another pod uses it": {func(env *environment) {
			env.addPod(2)
			env.pods[3].Name = "backup"
			env.scaled(2)
			env.addPod(2)
			env.pods[2].Name = "backup"
		}, nil, nil},
		"scaled away, and terminating": {func(env *environment) {
			env.scaled(2)
			env.claims[2].DeletionTimestamp = ptr.To(ago(0))
		}, nil, nil},
		"scaled away, by its mark": {func(env *environment) { mark(env.stray(), "set", 2, statefulset.Retain) },
			[]string{"data-db-2 db"}, []string{statefulset.MarkAnnotation + " names the set"}},
		"scaled away, by its owner": {func(env *environment) { own(env.stray(), "apps/v1", "StatefulSet", "db", "set") },
			[]string{"data-db-2 db"}, []string{"the set owns it"}},
		"scaled away, by name and labels": {func(env *environment) {
			env.scaled(2)
			createdBy(env.claims[2], "velero")
		}, []string{"data-db-2? db"}, []string{"labels of a claim of the set, but nothing shows who created it",
			"!deleteCommand"}},
		"scaled away, by name": {func(env *environment) { env.stray().Labels = nil },
			[]string{"data-db-2? db"}, []string{"neither its labels nor anything else"}},
		"made for an ordinal to come": {func(env *environment) {
			env.addClaim("data", 3)
			createdBy(env.claims[3],
				"kubectl")
		},
			[]string{"data-db-3? db"}, nil},
		"condemned, and volume-guard does not run": {func(env *environment) { env.condemned() },
			[]string{"data-db-2 db"}, []string{"ScaleDownGrace"}},
		"its pod was its owner, and is gone": {func(env *environment) {
			env.scaled(2)
			own(env.claims[2], "v1", "Pod", "db-2", "p")
		}, nil, nil},
		"scaled away, and the set is being deleted": {func(env *environment) {
			env.scaled(2)
			env.set.DeletionTimestamp = ptr.To(ago(0))
		}, nil, nil},
		"scaled away, owned by another pod": {func(env *environment) {
			env.scaled(2)
			own(env.claims[2], "v1", "Pod", "job", "p")
		}, []string{"data-db-2? db"}, nil},
		"scaled away, with the mark of another ordinal": {func(env *environment) {
			mark(env.stray(), "set", 1, statefulset.Retain)
		}, []string{"data-db-2? db"}, nil},
		"scaled away, with the mark of an earlier set": {func(env *environment) {
			mark(env.stray(), "gone", 2, statefulset.Retain)
		}, []string{"data-db-2? db"}, nil},
		"scaled away, with the mark of another name": {func(env *environment) {
			env.stray().Annotations[statefulset.MarkAnnotation] = "other/set/2/Retain/" + string(env.claims[2].UID)
		}, []string{"data-db-2? db"}, nil},
		"scaled away, with the mark of another claim": {func(env *environment) {
			env.stray().Annotations[statefulset.MarkAnnotation] = "db/set/2/Retain/before"
		}, []string{"data-db-2? db"}, nil},
		"an ephemeral claim": {func(env *environment) {
			env.scaled(2)
			env.set.Name = "other"
			for _, claim := range env.claims {
				own(claim, "v1", "Pod", "data-db", "p")
			}
		}, nil, nil},
		"the set is gone": {func(env *environment) { env.set, env.pods = nil, nil },
			[]string{"data-db-0  gone", "data-db-1  gone", "data-db-2  gone"},
			[]string{`"reason":"SetGone"`, "none has a template with its name"}},
		"the set was deleted before it owned the claim, and only the name is left": {func(env *environment) {
			env.policy(deletes, retains)
			env.set, env.pods, env.pvs = nil, nil, nil
			env.claims = env.claims[:1]
			c := env.claims[0]
			c.Labels, c.Annotations, c.Finalizers, c.CreationTimestamp = nil, nil, nil, ago(time.Second)
			createdBy(c, controllerManager)
			c.Spec.VolumeName, c.Status = "", v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
		}, []string{"data-db-0  gone"}, []string{`"reason":"SetGone"`, "kubectl delete pvc data-db-0 -n shop",
			"kube-controller-manager created it, as it does for StatefulSets", `"likely":0`}},
		"the set is gone, and a backup of the claims was restored with their managedFields": {func(env *environment) {
			env.set, env.pods = nil, nil
			for _, claim := range env.claims {
				claim.CreationTimestamp = ago(time.Hour)
			}
		}, nil, nil},
		"the set is gone, and restored claims have the PVs of the old ones": {func(env *environment) {
			env.set, env.pods = nil, nil
			env.claims[0].UID = "restored"
			env.claims = env.claims[:2]
		}, []string{"data-db-0?  gone", "data-db-1  gone"}, []string{"a claim restored from a backup may look the same",
			"kubectl delete pvc data-db-1 -n shop", "!kubectl delete pvc data-db-0", `"likely":1`}},
		"scaled away, and a restored claim has the PV of the old one": {func(env *environment) {
			env.scaled(2)
			env.claims[2].UID = "restored"
		}, []string{"data-db-2? db"}, []string{"the name of a claim of the set; managedFields name", "!deleteCommand"}},
		"the set is gone, and Velero restored the claims, which were written since": {func(env *environment) {
			env.set, env.pods = nil, nil
			for _, claim := range env.claims {
				claim.Labels["velero.io/restore-name"] = "r"
			}
		}, nil, nil},
		"an ephemeral claim that was restored": {func(env *environment) {
			env.set, env.pods = nil, nil
			for _, claim := range env.claims {
				claim.UID = "restored"
				own(claim, "v1", "Pod", "data-db", "p")
			}
		}, nil, nil},
		"the set is gone, its pods are not": {func(env *environment) { env.set = nil }, nil, nil},
		"the set is gone, by marks": {func(env *environment) {
			env.set, env.pods = nil, nil
			for n, claim := range env.claims {
				claim.ManagedFields = nil
				mark(claim, "gone", n, statefulset.Retain)
			}
		}, []string{"data-db-0 db gone", "data-db-1 db gone", "data-db-2 db gone"}, []string{"UID gone"}},
		"the set is gone, and nothing shows who created the claims": {func(env *environment) {
			env.set, env.pods = nil, nil
			for _, claim := range env.claims {
				createdBy(claim, "velero")
			}
		}, nil, nil},
		"a name without an ordinal, created by kube-controller-manager": {func(env *environment) {
			env.set, env.pods = nil, nil
			env.claims = env.claims[:1]
			env.claims[0].Name = "prime-1a"
		}, nil, nil},
		"the set is gone, and garbage collection deletes the claims": {func(env *environment) {
			env.set, env.pods = nil, nil
			for n, claim := range env.claims {
				mark(claim, "gone", n, statefulset.Retain)
				own(claim, "apps/v1", "StatefulSet", "db", "gone")
			}
		}, nil, nil},
		"of an earlier set of the name": {func(env *environment) {
			env.scaled(2)
			mark(env.claims[2], "gone", 2, statefulset.Retain)
		}, []string{"data-db-2 db"}, nil},
		"in another namespace": {func(env *environment) {
			env.set.Namespace = "elsewhere"
			for _, pod := range env.pods {
				pod.Namespace = "elsewhere"
			}
		}, []string{"data-db-0  gone", "data-db-1  gone", "data-db-2  gone"}, nil},
		"with ordinals that do not begin at 0": {func(env *environment) {
			env.set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
			env.set.Spec.Replicas = ptr.To[int32](2)
			env.pods = env.pods[1:]
		}, []string{"data-db-0 db"}, nil},
		"another set may need it": {func(env *environment) {
			other := setOf("b", "other", "data-d")
			other.Spec.Replicas = ptr.To[int32](0)
			env.set.Name, env.pods = "d-b", nil
			env.others = []*appsv1.StatefulSet{other}
			env.claims = env.claims[:1]
			env.claims[0].Name = "data-d-b-0"
		}, nil, nil},
		"its PV stays": {func(env *environment) {
			env.scaled(2)
			env.pvs[2].Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}, []string{"data-db-2 db"}, []string{`"volume":{"fate":"kept"`, `"reclaimPolicy":"Retain"`,
			"kubectl delete pvc data-db-2 -n shop"}},
		"scaled away, and held": {func(env *environment) {
			env.scaled(1)
			env.claims[2].Annotations[statefulset.HoldAnnotation] = "why"
		}, []string{"data-db-1 db", "data-db-2 db"}, []string{"kubectl delete pvc data-db-1 -n shop", `"held":true`,
			`"likely":0,"held":1`, "!kubectl delete pvc data-db-2"}},
		"scaled away, and its PV is held": {func(env *environment) {
			env.scaled(1)
			env.pvs[2].Annotations[volume.HoldAnnotation] = "why"
		}, []string{"data-db-1 db", "data-db-2 db"}, []string{`"likely":0,"held":1`, `"volume":{"fate":"unknown"`,
			"!kubectl delete pvc data-db-2"}},
		"scaled away, and another object needs it": {func(env *environment) {
			env.scaled(1)
			own(env.claims[2], "example.com/v1", "Cluster", "db", "c")
		}, []string{"data-db-1 db", "data-db-2 db"}, []string{"kubectl delete pvc data-db-1 -n shop",
			`"owner":"Cluster db"`, `"held":0,"owned":1`, "!kubectl delete pvc data-db-2"}},
		"the set is gone, and another object needs the claim": {func(env *environment) {
			env.set, env.pods = nil, nil
			env.claims = env.claims[:1]
			own(env.claims[0], "example.com/v1", "Cluster", "db", "c")
		}, []string{"data-db-0  gone"}, []string{"deletes the claim with its owner, Cluster db", "!kubectl delete pvc"}},
		"PVs cannot be read": {func(env *environment) {
			env.scaled(2)
			explained.Forbid(&env.facts.PVs)
		}, []string{"data-db-2 db"}, []string{`"volume":{"fate":"unknown"`, "!reclaimPolicy", "PVs: forbidden"}},
	} {
		env := newEnvironment()
		c.change(env)
		l := RetainedOf(env.read())
		var got []string
		for _, r := range l.Claims {
			line := r.Name
			if r.Likely {
				line += "?"
			}
			line += " " + r.StatefulSet
			if r.SetGone {
				line += " gone"
			}
			got = append(got, line)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
		t.Run(sentence, func(t *testing.T) { explained.Expect(t, explained.JSON(l), c.said...) })
	}
}

// Without pods or sets, a claim in use may look retained.
func TestRetainedWithFailedReads(t *testing.T) {
	env := newEnvironment()
	env.scaled(0)
	f := env.read()
	explained.Forbid(&f.Pods)
	if l := RetainedOf(f); len(l.Claims) != 0 || len(l.Unread) == 0 {
		t.Errorf("pods are not read: %+v", l)
	}
	f = env.read()
	explained.Forbid(&f.Sets)
	if l := RetainedOf(f); len(l.Claims) != 0 || len(l.Unread) == 0 {
		t.Errorf("sets are not read: %+v", l)
	}
}

// The condition Unused takes precedence over the last change of spec.replicas.
func TestRetainedSince(t *testing.T) {
	env := newEnvironment()
	env.scaled(0)
	env.claims[1].Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimUnused,
		Status: v1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
	env.claims[2].CreationTimestamp = ago(time.Minute)
	env.claims[2].Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimUnused,
		Status: v1.ConditionFalse, LastTransitionTime: ago(time.Second)}}
	replicas := func(at time.Duration, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "kubectl", Time: ptr.To(ago(at)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	env.set.ManagedFields = []metav1.ManagedFieldsEntry{replicas(9*time.Hour, `{"f:spec":{"f:replicas":{}}}`),
		replicas(2*time.Hour, `{"f:spec":{"f:replicas":{}}}`), replicas(0, `{"f:spec":{"f:template":{}}}`),
		replicas(0, `{"f:status":{"f:replicas":{}}}`), replicas(0, `no JSON`)}
	var got []string
	for _, c := range RetainedOf(env.read()).Claims {
		if c.Since == nil {
			got = append(got, "-")
			continue
		}
		got = append(got, fmt.Sprintf("%v %s", now().Sub(c.Since.Time), c.SinceEvidence))
	}
	want := []string{"2h0m0s the last change of spec.replicas of the set", "1h0m0s condition Unused of the claim", "-"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDeleteCommands(t *testing.T) {
	l := Retained{Claims: []RetainedClaim{{Namespace: "b", Name: "x"}, {Namespace: "a", Name: "y"},
		{Namespace: "a", Name: "z", Likely: true}, {Namespace: "a", Name: "w"}, {Namespace: "a", Name: "v", Held: true},
		{Namespace: "a", Name: "u", Owner: "Cluster c"}}}
	want := "kubectl delete pvc -n a y w\nkubectl delete pvc -n b x"
	if got := strings.Join(l.DeleteCommands(), "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
