//go:build controlplane && unix

package statefulset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m, nil)) }

// bench is a namespace of a real API server.
type bench struct {
	*apiserver.Bench
	apiServer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Bench: apiserver.New(t, "sets-", nil)}
	clients, err := kube.NewClients(apiserver.Admin())
	b.Must(err)
	b.apiServer = apiServer{clients}
	return b
}

// makeClaim creates a claim without finalizers.
func (b *bench) makeClaim(name string, alter ...func(*v1.PersistentVolumeClaim)) statefulset.Claim {
	b.Helper()
	b.CreateClaim(name, alter...)
	o, err := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Patch(b.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	b.Must(err)
	return statefulset.ClaimOf(o)
}

// makeSet creates a set that deletes claims when it is scaled down.
func (b *bench) makeSet(name string, replicas int32) *appsv1.StatefulSet {
	b.Helper()
	labels := map[string]string{"app": name}
	o, err := b.Client.AppsV1().StatefulSets(b.Namespace).Create(b.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{statefulset.GraceAnnotation: "200ms"}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}}},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					Resources: v1.VolumeResourceRequirements{
						Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}}}}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
		},
	}, metav1.CreateOptions{})
	b.Must(err)
	return o
}

// makePod creates a pod of a set without a node.
func (b *bench) makePod(set *appsv1.StatefulSet, ordinal int) *v1.Pod {
	b.Helper()
	name := fmt.Sprintf("%s-%d", set.Name, ordinal)
	return b.CreatePod(name, "data-"+name, func(o *v1.Pod) {
		o.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	})
}

func (b *bench) claim(name string) (statefulset.Claim, bool) {
	b.Helper()
	c, found, err := b.readClaim(b.Context(), b.Namespace, name)
	b.Must(err)
	return c, found
}

// A set is scaled down after its pods were deleted.
func TestControllerAgainstAPIServer(t *testing.T) {
	b := newBench(t)
	recorder := record.NewFakeRecorder(100)
	c, err := New(apiserver.Admin(), Config{Settings: controllers.Settings{Events: recorder}})
	b.Must(err)
	ctx, stop := t.Context(), b.Run(c)

	b.makeClaim("data-db-0") // before its set
	set := b.makeSet("db", 3)
	b.makePod(set, 0)
	for ordinal := 1; ordinal < 3; ordinal++ {
		b.makePod(set, ordinal)
		b.makeClaim(fmt.Sprintf("data-db-%d", ordinal))
	}
	b.makeClaim("data-db-7") // it never had a pod
	for ordinal := range 3 {
		b.Until("the claim is marked", func() bool {
			c, _ := b.claim(fmt.Sprintf("data-db-%d", ordinal))
			return c.Mark == statefulset.Mark{Set: "db", UID: set.UID, Ordinal: ordinal, WhenScaled: statefulset.Delete,
				Claim: c.UID}
		})
	}
	b.Must(b.Client.CoreV1().Pods(b.Namespace).Delete(ctx, "db-1", metav1.DeleteOptions{}))
	b.Must(b.Client.CoreV1().Pods(b.Namespace).Delete(ctx, "db-2", metav1.DeleteOptions{}))
	_, err = b.Client.AppsV1().StatefulSets(b.Namespace).Patch(ctx, "db", types.MergePatchType,
		[]byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	b.Must(err)
	for ordinal := 1; ordinal < 3; ordinal++ {
		b.Until("the claim is deleted", func() bool {
			_, found := b.claim(fmt.Sprintf("data-db-%d", ordinal))
			return !found
		})
	}
	for _, name := range []string{"data-db-0", "data-db-7"} {
		if c, found := b.claim(name); !found || c.Terminating {
			t.Errorf("claim %s is deleted", name)
		}
	}
	for range 4 { // two claims, each on itself and its set
		b.Until("an Event", func() bool {
			select {
			case e := <-recorder.Events:
				return strings.HasPrefix(e, "Normal ScaledDown ")
			default:
				return false
			}
		})
	}

	stop()
	done, err := c.Release(t.Context())
	if err != nil || done.Claims < 1 || len(done.Left) > 0 {
		t.Errorf("released %+v, %v", done, err)
	}
	if c, _ := b.claim("data-db-0"); c.Marked {
		t.Error("a claim is marked after the release")
	}
}

// Each write meets an object that has changed, one that was created again, and one that is gone.
func TestWritePreconditions(t *testing.T) {
	b := newBench(t)
	set := b.makeSet("db", 1)
	makers := map[string]func(name string, n int) (types.UID, string){
		"claim": func(name string, _ int) (types.UID, string) {
			c := b.makeClaim(name)
			return c.UID, c.ResourceVersion
		},
		"pod": func(_ string, n int) (types.UID, string) {
			p := b.makePod(set, n)
			return p.UID, p.ResourceVersion
		},
	}
	mark := statefulset.Mark{Set: "db", UID: "u", Claim: "c"}
	for i, c := range []struct {
		what, kind string
		write      func(ctx context.Context, ask statefulset.Ask) error
		versioned  bool
	}{
		{"patch of a claim", "claim", b.patchClaim, true},
		{"deletion of a claim", "claim", b.deleteClaim, true},
		{"deletion of a pod", "pod", b.deletePod, false},
	} {
		name := map[string]string{"claim": fmt.Sprintf("data-web-%d", i), "pod": fmt.Sprintf("db-%d", i)}[c.kind]
		uid, version := makers[c.kind](name, i)
		ask := statefulset.Ask{Namespace: b.Namespace, Name: name, UID: uid, ResourceVersion: version, Mark: mark}
		other := ask
		other.UID = "00000000-0000-0000-0000-000000000000"
		if err := c.write(t.Context(), other); !errors.Is(err, kube.ErrGone) && !errors.Is(err, kube.ErrChanged) {
			t.Errorf("%s of another UID: %v", c.what, err)
		}
		if c.versioned {
			stale := ask
			stale.ResourceVersion = "1"
			if err := c.write(t.Context(), stale); !errors.Is(err, kube.ErrChanged) {
				t.Errorf("%s that has changed: %v", c.what, err)
			}
		}
		if err := c.write(t.Context(), ask); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		ask.Name = "gone-0"
		if err := c.write(t.Context(), ask); !errors.Is(err, kube.ErrGone) {
			t.Errorf("%s that is gone: %v", c.what, err)
		}
	}
}

// Foreign annotations and owner references stay.
func TestPatchLeavesForeignFields(t *testing.T) {
	b := newBench(t)
	foreign := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1",
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
	ours := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "2"}
	c := b.makeClaim("data-db-0", func(o *v1.PersistentVolumeClaim) {
		o.Annotations = map[string]string{"theirs": "stays"}
		o.OwnerReferences = []metav1.OwnerReference{foreign}
	})
	claims := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace)
	mark := statefulset.Mark{Set: "db", UID: "2", Ordinal: 0, WhenScaled: statefulset.Delete, Claim: c.UID}
	for _, step := range []struct {
		mark   statefulset.Mark
		owners []metav1.OwnerReference
		want   map[string]string
	}{
		{mark, []metav1.OwnerReference{foreign, ours},
			map[string]string{"theirs": "stays",
				statefulset.MarkAnnotation: mark.String()}},
		{mark, []metav1.OwnerReference{foreign}, map[string]string{"theirs": "stays",
			statefulset.MarkAnnotation: mark.String()}},
		{statefulset.Mark{}, []metav1.OwnerReference{foreign}, map[string]string{"theirs": "stays"}},
		{statefulset.Mark{}, nil, map[string]string{"theirs": "stays"}},
	} {
		b.Must(b.patchClaim(t.Context(), statefulset.Ask{Namespace: b.Namespace, Name: c.Name, UID: c.UID,
			ResourceVersion: c.ResourceVersion, Mark: step.mark, Owners: step.owners}))
		o, err := claims.Get(t.Context(), c.Name, metav1.GetOptions{})
		b.Must(err)
		same := func(a, b metav1.OwnerReference) bool {
			return a.UID == b.UID && ptr.Equal(a.Controller, b.Controller) &&
				ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
		}
		if !maps.Equal(o.Annotations, step.want) || !slices.EqualFunc(o.OwnerReferences, step.owners, same) {
			t.Errorf("annotations %v, owners %v, want %v, %v", o.Annotations, o.OwnerReferences, step.want, step.owners)
		}
		c = statefulset.ClaimOf(o)
	}
}

func TestWokenAnnotation(t *testing.T) {
	b := newBench(t)
	o := b.makeSet("db", 1)
	s := statefulset.SetOf(o)
	woken := func() bool {
		s, _, err := b.readSet(t.Context(), b.Namespace, "db")
		b.Must(err)
		return s.Woken
	}
	b.Must(b.patchWoken(t.Context(), s, ptr.To("x")))
	if !woken() {
		t.Error("the set does not have the annotation")
	}
	b.Must(b.patchWoken(t.Context(), s, nil))
	if after, found, err := b.readSet(t.Context(), b.Namespace, "db"); err != nil || !found || after.Woken ||
		!after.GraceGiven || after.Source != statefulset.SourceField {
		t.Errorf("the set is %+v, %v, %v", after, found, err)
	}
	s.UID = "another"
	if err := b.patchWoken(t.Context(), s, nil); !errors.Is(err, kube.ErrGone) && !errors.Is(err, kube.ErrChanged) {
		t.Errorf("a set of another UID: %v", err)
	}
	b.Must(b.Client.AppsV1().StatefulSets(b.Namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	if err := b.patchWoken(t.Context(), s, nil); !errors.Is(err, kube.ErrGone) {
		t.Errorf("a set that is gone: %v", err)
	}
	if _, found, err := b.readSet(t.Context(), b.Namespace, "db"); found || err != nil {
		t.Errorf("a set that is gone: %v, %v", found, err)
	}
}
