//go:build unix

package e2e

import (
	_ "embed"
	"fmt"
	"slices"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

//go:embed testdata/referencegrants.yaml
var referenceGrants []byte

// fromAfar has a claim take its data from another namespace.
func fromAfar(namespace string, source *v1.TypedLocalObjectReference) func(*storage.ClaimSpec) {
	return func(spec *storage.ClaimSpec) {
		spec.Change = func(claim *v1.PersistentVolumeClaim) {
			claim.Spec.DataSource = nil
			claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name, Namespace: &namespace}
		}
	}
}

// newStageAcross returns a stage on an API server of its own, which knows references to other namespaces.
func newStageAcross(t *testing.T) *stage {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), version, controlplane.Options{
		AuditLog: true, ControllerManagerQPS: 5000, ControllerManagerArgs: []string{"--pvclaimbinder-sync-period=2s"},
		APIServerArgs: []string{"--feature-gates=CrossNamespaceVolumeDataSource=true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Errorf("stop control plane: %v", err)
		}
	})
	options := mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"}
	s := newStageOn(t, plane, options.Name)
	s.useDriver(options)
	s.account("csi-reclaimer")
	s.grant("owner")
	s.must(plane.InstallSnapshots(s.ctx))
	return s
}

// installReferenceGrants has the API server serve ReferenceGrants, and the account of csi-reclaimer list them.
func (s *stage) installReferenceGrants() schema.GroupVersionResource {
	s.t.Helper()
	api := s.client.Discovery().RESTClient()
	s.must(api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/yaml").Body(referenceGrants).Do(s.ctx).Error())
	s.eventually("ReferenceGrants are served", func() bool {
		return api.Get().AbsPath("/apis/gateway.networking.k8s.io/v1beta1/referencegrants").Do(s.ctx).Error() == nil
	})
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
}

// mayListGrants adds the rule that deploy/manifests/rbac-owner.yaml has in a comment.
func (s *stage) mayListGrants() {
	s.t.Helper()
	_, err := s.client.RbacV1().ClusterRoles().Create(s.ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "referencegrants"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"referencegrants"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.client.RbacV1().ClusterRoleBindings().Create(s.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "referencegrants"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "referencegrants"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: "csi-reclaimer"}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// allowFrom lets claims of a namespace refer to all snapshots and claims of the stage's.
func (s *stage) allowFrom(resource schema.GroupVersionResource, namespace string) {
	s.t.Helper()
	client, err := dynamic.NewForConfig(s.plane.Admin())
	s.must(err)
	grant := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": map[string]any{"name": "data"},
		"spec": map[string]any{
			"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": namespace}},
			"to": []any{
				map[string]any{"group": snapshotv1.GroupName, "kind": "VolumeSnapshot"},
				map[string]any{"group": "", "kind": "PersistentVolumeClaim"},
			},
		},
	}}
	_, err = client.Resource(resource).Namespace(s.Namespace).Create(s.ctx, grant, metav1.CreateOptions{})
	s.must(err)
}

// TestProvisionFromAnotherNamespace restores and clones across namespaces, before and after a ReferenceGrant allows it.
func TestProvisionFromAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := newStageAcross(t)
	shop := *s
	var err error
	shop.Namespace, err = s.plane.CreateNamespace(s.ctx, "shop-")
	s.must(err)
	car := s.sidecar(eager()...)
	class := s.class()
	original := shop.bound(shop.claim(class))
	snapshot := shop.snapshot(original, nil)
	sources := map[string]*v1.TypedLocalObjectReference{"restored": storage.FromSnapshot(snapshot.Name), "cloned": storage.FromClaim(original.claim.Name)}
	want := map[string]backend.Source{"restored": {SnapshotID: snapshot.Handle}, "cloned": {VolumeID: original.Handle}}
	claims := map[string]*storage.Claim{}
	told := func(text string) {
		t.Helper()
		for kind := range sources {
			s.waitTold(claims[kind], "ProvisioningFailed", text)
			s.expectUntouched(claims[kind])
		}
	}
	for kind, source := range sources {
		claims[kind] = s.claim(class, fromAfar(shop.Namespace, source))
	}
	told("the feature gate CrossNamespaceVolumeDataSource of csi-reclaimer is off")

	s.restart(car, append(eager(), "--feature-gates=CrossNamespaceVolumeDataSource=true")...)
	s.must(car.WaitLog(s.soon(), "Preflight: may not list referencegrants: no claim gets its data from another namespace"))
	s.mayListGrants()
	told("it serves no gateway.networking.k8s.io/v1beta1")
	resource := s.installReferenceGrants()
	told(fmt.Sprintf("no ReferenceGrant there allows that; create one in namespace %q", shop.Namespace))

	s.must(s.driver.SetFaults(s.ctx, slowly(false, 2*time.Second)))
	shop.allowFrom(resource, s.Namespace)
	for _, claim := range claims {
		s.asked(claim)
	}
	shop.deleteClaim(original.claim)
	shop.waitClaim(original.claim, "terminating and kept", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, provision.CloningFinalizer)
	})
	shop.deleteVolumeSnapshot(snapshot)
	if there, _, protected := shop.snapshotState(snapshot); !there || !protected {
		t.Error("the snapshot is not kept while it is restored")
	}
	for kind, claim := range claims {
		if got := s.volumeOf(s.bound(claim)).Source; got != want[kind] {
			t.Errorf("%s: from %+v, want %+v", kind, got, want[kind])
		}
	}
	shop.waitNoSnapshot(snapshot)
	shop.waitClaim(original.claim, "gone", noClaim)
}
