package capacity

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	fakemetadata "k8s.io/client-go/metadata/fake"
)

// part returns the metadata of an object with the given owners.
func part(version, kind, name, uid string, controllers ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), OwnerReferences: controllers},
	}
}

func TestFindOwner(t *testing.T) {
	yes := true
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "u-set", Controller: &yes,
		BlockOwnerDeletion: &yes}
	deployment := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "driver", UID: "u-driver",
		Controller: &yes}
	other, strange := set, set
	other.UID, strange.Kind = "u-other", "Unheard"
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := fakemetadata.NewSimpleMetadataClient(scheme,
		part("v1", "Pod", "pod", "u-pod", set), part("v1", "Pod", "alone", "u-alone"),
		part("v1", "Pod", "stale", "u-stale", other),
		part("v1", "Pod", "strange", "u-strange", strange), part("apps/v1", "ReplicaSet", "set", "u-set", deployment))
	kinds := &fakediscovery.FakeDiscovery{Fake: &fake.NewClientset().Fake}
	kinds.Resources = []*metav1.APIResourceList{{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
		{Name: "replicasets/status", Kind: "ReplicaSet", Namespaced: true}, {Name: "replicasets", Kind: "ReplicaSet",
			Namespaced: true}}}}
	find := owners{"ns", objects, kinds}.find
	for name, c := range map[string]struct {
		by   OwnedBy
		want string
		err  func(error) bool
	}{
		"the pod itself":               {OwnedBy{"pod", 0}, "v1 Pod pod u-pod", nil},
		"its controller":               {OwnedBy{"pod", 1}, "apps/v1 ReplicaSet set u-set", nil},
		"its controller's controller":  {OwnedBy{"pod", 2}, "apps/v1 Deployment driver u-driver", nil},
		"nothing controls the pod":     {OwnedBy{"alone", 1}, "", is(errUncontrolled)},
		"another set has the name now": {OwnedBy{"stale", 2}, "", is(errReplaced)},
		"an unknown kind":              {OwnedBy{"strange", 2}, "", is(errNoKind)},
		"the pod is not there":         {OwnedBy{"gone", 2}, "", apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			owner, err := find(context.Background(), c.by)
			if c.err != nil {
				if !c.err(err) {
					t.Errorf("%+v, %v", owner, err)
				}
				return
			}
			got := owner.APIVersion + " " + owner.Kind + " " + owner.Name + " " + string(owner.UID)
			if err != nil || got != c.want || owner.Controller == nil || !*owner.Controller || owner.BlockOwnerDeletion != nil {
				t.Errorf("%+v, %v", owner, err)
			}
		})
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
