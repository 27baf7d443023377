//go:build unix

package provision

import (
	_ "embed"
	"fmt"
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

//go:embed testdata/referencegrants.yaml
var referenceGrants []byte

// fromOtherNamespace has a claim take its data from another namespace.
func fromOtherNamespace(namespace string, source *v1.TypedLocalObjectReference) func(*objects.ClaimSpec) {
	return func(spec *objects.ClaimSpec) {
		spec.Change = func(claim *v1.PersistentVolumeClaim) {
			claim.Spec.DataSource = nil
			claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name,
				Namespace: &namespace}
		}
	}
}

// newCrossNamespaceEnvironment returns a environment on an API server of its own, which knows references to other
// namespaces.
func newCrossNamespaceEnvironment(t *testing.T) *environment {
	t.Helper()
	plane := controlplane.ForTest(t, fixture.Version(), controlplane.Options{
		AuditLog: true, ControllerManagerQPS: 5000, ControllerManagerArgs: []string{controlplane.BindOften},
		APIServerArgs: []string{"--feature-gates=CrossNamespaceVolumeDataSource=true"},
	})
	options := mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"}
	env := newOn(t, plane, options.Name)
	env.UseDriver(options)
	env.CreateServiceAccount("csi-reclaimer")
	env.GrantRole("owner")
	env.Must(plane.InstallSnapshots(env.Ctx))
	return env
}

// installReferenceGrants has the API server serve ReferenceGrants, and the account of csi-reclaimer list them.
func (env *environment) installReferenceGrants() schema.GroupVersionResource {
	env.T.Helper()
	api := env.Client.Discovery().RESTClient()
	env.Must(api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/yaml").Body(referenceGrants).Do(env.Ctx).Error())
	env.Eventually("ReferenceGrants are served", func() bool {
		return api.Get().AbsPath("/apis/gateway.networking.k8s.io/v1beta1/referencegrants").Do(env.Ctx).Error() == nil
	})
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
}

// allowListingReferenceGrants adds the rule that deploy/manifests/rbac-owner.yaml has in a comment.
func (env *environment) allowListingReferenceGrants() {
	env.T.Helper()
	_, err := env.Client.RbacV1().ClusterRoles().Create(env.Ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "referencegrants"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"gateway.networking.k8s.io"},
			Resources: []string{"referencegrants"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	env.Must(err)
	_, err = env.Client.RbacV1().ClusterRoleBindings().Create(env.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "referencegrants"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "referencegrants"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: env.Namespace, Name: "csi-reclaimer"}},
	}, metav1.CreateOptions{})
	env.Must(err)
}

// allowFrom lets claims of a namespace refer to all snapshots and claims of the environment's.
func (env *environment) allowFrom(resource schema.GroupVersionResource, namespace string) {
	env.T.Helper()
	client, err := dynamic.NewForConfig(env.Plane.Admin())
	env.Must(err)
	grant := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
		"metadata": map[string]any{"name": "data"},
		"spec": map[string]any{
			"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": namespace}},
			"to": []any{
				map[string]any{"group": snapshotv1.GroupName, "kind": "VolumeSnapshot"},
				map[string]any{"group": "", "kind": "PersistentVolumeClaim"},
			},
		},
	}}
	_, err = client.Resource(resource).Namespace(env.Namespace).Create(env.Ctx, grant, metav1.CreateOptions{})
	env.Must(err)
}

// TestProvisionFromSourceInAnotherNamespace restores and clones across namespaces, before and after a ReferenceGrant
// allows it.
func TestProvisionFromSourceInAnotherNamespace(t *testing.T) {
	suite.Deep(t, suite.OwnControlPlane)
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	env := newCrossNamespaceEnvironment(t)
	shop := env.forSubtest(t)
	var err error
	shop.Namespace, err = env.Plane.CreateNamespace(env.Ctx, "shop-")
	env.Must(err)
	car := env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	original := shop.WaitBound(shop.CreateClaim(class))
	snapshot := shop.CreateSnapshot(original, nil)
	sources := map[string]*v1.TypedLocalObjectReference{"restored": objects.FromSnapshot(snapshot.Name),
		"cloned": objects.FromClaim(original.BoundClaim.Name)}
	want := map[string]backend.Source{"restored": {SnapshotID: snapshot.Handle}, "cloned": {VolumeID: original.Handle}}
	claims := map[string]*objects.Claim{}
	waitEvent := func(text string) {
		t.Helper()
		for kind := range sources {
			env.WaitClaimEvent(claims[kind], "ProvisioningFailed", text)
			env.ExpectClaimUntouched(claims[kind])
		}
	}
	for kind, source := range sources {
		claims[kind] = env.CreateClaim(class, fromOtherNamespace(shop.Namespace, source))
	}
	waitEvent("the feature gate CrossNamespaceVolumeDataSource of csi-reclaimer is off")

	env.RestartSidecar(car, append(fixture.FastRetries(), "--feature-gates=CrossNamespaceVolumeDataSource=true")...)
	env.Must(car.WaitLog(env.WithTimeout(),
		"Preflight: may not list referencegrants: no claim gets its data from another namespace"))
	env.allowListingReferenceGrants()
	waitEvent("it serves no gateway.networking.k8s.io/v1beta1")
	resource := env.installReferenceGrants()
	waitEvent(fmt.Sprintf("no ReferenceGrant there allows that; create one in namespace %q", shop.Namespace))

	env.Must(env.MockDriver.SetFaults(env.Ctx, fixture.BlockCreateVolume(false)))
	shop.allowFrom(resource, env.Namespace)
	for _, claim := range claims {
		env.waitCreateCall(claim)
	}
	shop.MustDeleteClaim(original.BoundClaim)
	shop.WaitClaim(original.BoundClaim, "terminating and kept", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, request.CloningFinalizer)
	})
	shop.deleteVolumeSnapshot(snapshot)
	if there, _, protected := shop.snapshotState(snapshot); !there || !protected {
		t.Error("the snapshot is not kept while it is restored")
	}
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	for kind, claim := range claims {
		if got := env.volumeOnDisk(env.WaitBound(claim)).Source; got != want[kind] {
			t.Errorf("%s: from %+v, want %+v", kind, got, want[kind])
		}
	}
	shop.waitNoSnapshot(snapshot)
	shop.WaitClaim(original.BoundClaim, "gone", fixture.ClaimIsGone)
}
