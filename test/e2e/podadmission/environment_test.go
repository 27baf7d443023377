//go:build unix

package podadmission

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// cluster is the control plane that all tests share; client is its administrator's.
var (
	cluster *controlplane.ControlPlane
	client  *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	os.Exit(suite.Suite{
		Options:  controlplane.Options{Scheduler: true, ControllerManagerQPS: 5000, Progress: os.Stderr},
		Install:  install,
		Webhooks: []string{holdWebhookFile},
	}.Main(m))
}

// install applies an operator's manifests for this version.
func install(ctx context.Context, c *controlplane.ControlPlane, admin *kubernetes.Clientset) error {
	cluster, client = c, admin
	return manifests.Apply(ctx, c.Admin(), manifests.PodSafety(c.Version())...)
}

const (
	label   = "csi-reclaimer.io/pod-safety"
	enforce = "enforce"
	warn    = "warn"
	confirm = "csi-reclaimer.io/confirm-force-delete"

	// home and account are where the manifests have volume-guard.
	home, account = suite.Home, suite.Account
	// ownNode is where the pods of the table are bound. No kubelet runs.
	ownNode = "own-node"
)

var must, until = suite.Must, suite.Until

// user sends requests.
type user struct {
	*kubernetes.Clientset
	// dryRun is "All" for a user whose requests are admitted like others but change nothing.
	dryRun []string
	suite.Warnings
}

func newUser(t *testing.T, config *rest.Config) *user {
	t.Helper()
	u := &user{}
	config = rest.CopyConfig(config)
	config.WarningHandler = &u.Warnings
	var err error
	u.Clientset, err = kubernetes.NewForConfig(config)
	must(t, err)
	return u
}

// The users of the table.
const (
	admin          = "an administrator"
	ownKubelet     = "the kubelet of the pod's node"
	nodeNoGroup    = "a user with the name of the pod's node, in no group"
	groupOtherName = "a user of another name in the group of nodes"
	podGC          = "the pod garbage collector"
	kcm            = "a controller manager with one account"
	guard          = "volume-guard"
	neighbor       = "another account in volume-guard's namespace"
	namesake       = "an account of volume-guard's name in another namespace"
)

// users returns everybody, with permission for all that the table has them do.
func users(t *testing.T) map[string]*user {
	t.Helper()
	ctx := t.Context()
	makeNamespaces(t, home, "elsewhere")
	makeNode(t, ownNode)
	configs := map[string]*rest.Config{admin: cluster.Admin()}
	certificate := func(who, name string, groups ...string) {
		config, err := cluster.ConfigFor(name, groups...)
		must(t, err)
		configs[who] = config
	}
	token := func(who, namespace, name string) {
		config, err := cluster.ServiceAccount(ctx, namespace, name)
		must(t, err)
		configs[who] = config
	}
	certificate(ownKubelet, fakenode.User(ownNode), fakenode.Group)
	certificate(nodeNoGroup, fakenode.User(ownNode), "testers")
	certificate(groupOtherName, "somebody", fakenode.Group, "testers")
	certificate(kcm, "system:kube-controller-manager", "testers")
	token(podGC, metav1.NamespaceSystem, "pod-garbage-collector") // with Kubernetes' own permissions
	token(guard, home, account)
	token(neighbor, home, "other")
	token(namesake, "elsewhere", account)
	grantPods(t)
	all := map[string]*user{}
	for who, config := range configs {
		all[who] = newUser(t, config)
	}
	return all
}

// grantPods lets testers do everything with pods.
func grantPods(t *testing.T) {
	t.Helper()
	ctx, client := context.WithoutCancel(t.Context()), client.RbacV1()
	name := "testers-" + rand.String(8)
	_, err := client.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Verbs: []string{"get", "list", "update", "patch", "delete", "deletecollection", "create"},
			Resources: []string{"pods", "pods/status", "pods/eviction"},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.GroupKind, Name: "testers", APIGroup: rbacv1.GroupName},
			{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: account},
			{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: "other"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "elsewhere", Name: account},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, client.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		must(t, client.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}))
	})
	until(t, "the permissions to be in force", func() bool { return testersMayDelete(t) })
}

// testersMayDelete reports whether the API server knows of the permissions of testers.
func testersMayDelete(t *testing.T) bool {
	t.Helper()
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "somebody", Groups: []string{"testers"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "deletecollection", Resource: "pods"},
		}}, metav1.CreateOptions{})
	must(t, err)
	return review.Status.Allowed
}

// makeNamespaces creates the missing namespaces.
func makeNamespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := client.CoreV1().Namespaces().Create(t.Context(),
			&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// makeNode makes a Node, or the pod garbage collector deletes its pods.
func makeNode(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})) })
}

// namespace makes a namespace, with pod safety as mode says, off for "".
func namespace(t *testing.T, mode string) string {
	t.Helper()
	name, err := cluster.CreateNamespace(t.Context(), "pods")
	must(t, err)
	if mode != "" {
		setMode(t, name, mode)
	}
	return name
}

// setMode labels a namespace.
func setMode(t *testing.T, name, mode string) {
	t.Helper()
	now, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	now.Labels[label] = mode
	_, err = client.CoreV1().Namespaces().Update(t.Context(), now, metav1.UpdateOptions{})
	must(t, err)
}

// podOf returns a pod that is bound to a node.
func podOf(namespace, name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"pod": name}},
		Spec: v1.PodSpec{
			NodeName: node, Containers: []v1.Container{{Name: "c", Image: "none"}},
			AutomountServiceAccountToken: ptr.To(false),
			Tolerations:                  []v1.Toleration{{Operator: v1.TolerationOpExists}},
		},
	}
}

// waitHolds waits until pods of a namespace are held in the write that creates them.
func waitHolds(t *testing.T, namespace string) {
	t.Helper()
	until(t, "pods to be held", func() bool { return holds(t, namespace) })
}

// waitEstablished waits until VolumeLocks are served.
func waitEstablished(t *testing.T) {
	t.Helper()
	until(t, "VolumeLocks to be served", func() bool {
		return client.RESTClient().Get().AbsPath(paths["VolumeLock"]).Do(t.Context()).Error() == nil
	})
	// Until the API server's admission knows the kind as well, it refuses all attachments.
	until(t, "the policy to find the kind VolumeLock", func() bool {
		_, err := attach(t, "none", "other", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && suite.PolicyIn(err.Error()) != attachLock {
			t.Fatal(err)
		}
		return err == nil
	})
}

// holds reports whether new pods are changed. None is stored.
func holds(t *testing.T, namespace string) bool {
	t.Helper()
	ctx := t.Context()
	pod := podOf(namespace, "probe", "")
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	pod.Spec.Volumes = []v1.Volume{objects.ClaimVolume("v", "c")}
	pods := client.CoreV1().Pods(namespace)
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil { // a webhook that is not trusted yet
		return false
	}
	return slices.Contains(made.Finalizers, podsafety.Finalizer) && *made.Spec.TerminationGracePeriodSeconds == 1
}

// before133 reports whether the API server has no pods/resize.
func before133() bool { return cluster.Version().Before(controlplane.V1_33) }

// The manifests, in the order in which they are applied.
const (
	crdFile         = manifests.PodSafetyCRD
	policiesFile    = manifests.PodSafetyPolicies
	holdFile        = manifests.PodSafetyHold
	holdWebhookFile = manifests.PodSafetyHoldWebhook
)

// object is one object of a manifest.
type object struct{ *unstructured.Unstructured }

// paths are where the API server has each kind.
var paths = map[string]string{
	"CustomResourceDefinition":         "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	"MutatingAdmissionPolicy":          "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
	"MutatingAdmissionPolicyBinding":   "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
	"MutatingWebhookConfiguration":     "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
	"VolumeLock":                       "/apis/csi-reclaimer.io/v1alpha1/volumelocks",
}

func (o object) path() string { return path.Join(paths[o.GetKind()], o.GetName()) }

// manifest returns the objects of a file.
func manifest(t *testing.T, file string) []object {
	t.Helper()
	all, err := asObjects(manifests.Read(file))
	must(t, err)
	return all
}

func parse(t *testing.T, text string) []object {
	t.Helper()
	all, err := asObjects(manifests.Parse([]byte(text)))
	must(t, err)
	return all
}

func asObjects(from []*unstructured.Unstructured, err error) (all []object, _ error) {
	for _, o := range from {
		all = append(all, object{o})
	}
	return all, err
}

// apply acts as kubectl apply --server-side.
func apply(ctx context.Context, objects ...object) error {
	for _, o := range objects {
		text, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		err = client.RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(o.path()).
			SetHeader("Accept", "application/json").Param("fieldManager", "test").Param("force", "true").
			Param("fieldValidation", metav1.FieldValidationStrict).Body(text).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply %s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// remove deletes the objects in their order.
func remove(ctx context.Context, objects ...object) error {
	for _, o := range objects {
		err := client.RESTClient().Delete().AbsPath(o.path()).SetHeader("Accept", "application/json").Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// removeAtEnd removes the objects when the test has ended.
func removeAtEnd(t *testing.T, objects ...object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { must(t, remove(ctx, objects...)) })
}

// live returns the current object, so that it can be created again.
func live(t *testing.T, o object) object {
	t.Helper()
	text, err := client.RESTClient().Get().AbsPath(o.path()).Do(t.Context()).Raw()
	must(t, err)
	now := object{&unstructured.Unstructured{}}
	must(t, now.UnmarshalJSON(text))
	now.SetResourceVersion("")
	now.SetUID("")
	now.SetManagedFields(nil)
	return now
}

// edit changes the JSON of an object.
func edit(t *testing.T, o object, change func(string) string) {
	t.Helper()
	text, err := o.MarshalJSON()
	must(t, err)
	must(t, o.UnmarshalJSON([]byte(change(string(text)))))
}
