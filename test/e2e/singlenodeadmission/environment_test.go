//go:build unix

package singlenodeadmission

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
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
		Webhooks: []string{manifests.PodSafetyHoldWebhook, manifests.SingleNodeGateWebhook},
	}.Main(m))
}

// install applies an operator's manifests for this version.
func install(ctx context.Context, c *controlplane.ControlPlane, admin *kubernetes.Clientset) error {
	cluster, client = c, admin
	files := append(manifests.PodSafety(c.Version()), manifests.SingleNode(c.Version())...)
	return manifests.Apply(ctx, c.Admin(), files...)
}

const (
	// realKey is the label that asks for locks, and podSafety the label that it needs.
	realKey   = "csi-reclaimer.io/single-node"
	podSafety = "csi-reclaimer.io/pod-safety"
	enforce   = "enforce"
	confirm   = "csi-reclaimer.io/confirm-force-delete"
	// usedBy and lockFinalizer are the lock of a claim.
	usedBy        = "csi-reclaimer.io/used-by"
	lockFinalizer = "csi-reclaimer.io/single-node"
	other         = "example.com/other"

	// home and account are where the manifests have volume-guard.
	home, account = suite.Home, suite.Account
)

var must, until = suite.Must, suite.Until

// The users of the table.
const (
	admin    = "an administrator"
	guard    = "volume-guard"
	neighbor = "another account in volume-guard's namespace"
	namesake = "an account of volume-guard's name in another namespace"
)

// user sends requests.
type user struct {
	*kubernetes.Clientset
	// acts means that the requests are no dry runs.
	acts bool
}

// users returns everybody, with permission for all that the table has them do.
func users(t *testing.T) map[string]user {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	elsewhere, err := cluster.CreateNamespace(ctx, "elsewhere")
	must(t, err)
	configs := map[string]*rest.Config{admin: cluster.Admin()}
	for who, at := range map[string][2]string{guard: {home, account}, neighbor: {home, "other"},
		namesake: {elsewhere, account}} {
		configs[who], err = cluster.ServiceAccount(ctx, at[0], at[1])
		must(t, err)
		name := "testers-" + rand.String(8)
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: at[0], Name: at[1]}},
		}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			must(t, client.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		})
	}
	all := map[string]user{}
	for who, config := range configs {
		c, err := kubernetes.NewForConfig(config)
		must(t, err)
		until(t, who+" to be permitted", func() bool {
			_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil
		})
		all[who] = user{Clientset: c}
	}
	return all
}

// send sends a request. A dry run changes nothing, though it is admitted as others are.
func (u user) send(ctx context.Context, r *rest.Request, path string, body any) error {
	text, ok := body.(string)
	if !ok {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = string(data)
	}
	if !u.acts {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	return r.AbsPath(path).SetHeader("Accept", "application/json").Param("fieldManager", "tester").Body([]byte(text)).
		Do(ctx).Error()
}

func (u user) post(ctx context.Context, path string, body any) error {
	return u.send(ctx, u.RESTClient().Post().SetHeader("Content-Type", "application/json"), path, body)
}

func (u user) put(ctx context.Context, path string, body any) error {
	return u.send(ctx, u.RESTClient().Put().SetHeader("Content-Type", "application/json"), path, body)
}

func (u user) patch(ctx context.Context, kind types.PatchType, path, body string) error {
	return u.send(ctx, u.RESTClient().Patch(kind), path, body)
}

// podOf returns a pod with a claim.
func podOf(namespace, name string, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1.PodSpec{
			Containers:                   []v1.Container{{Name: "c", Image: "none"}},
			Volumes:                      []v1.Volume{objects.ClaimVolume("v", "c")},
			AutomountServiceAccountToken: ptr.To(false),
			Tolerations:                  []v1.Toleration{{Operator: v1.TolerationOpExists}},
		},
	}
	for _, change := range change {
		change(pod)
	}
	return pod
}

// with returns a change that gives a pod volumes.
func with(volumes ...v1.Volume) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Volumes = volumes }
}

// gated returns a change that gives a pod scheduling gates.
func gated(names ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		for _, name := range names {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, v1.PodSchedulingGate{Name: name})
		}
	}
}

func onNode(pod *v1.Pod) { pod.Spec.NodeName = "own-node" }

func mirror(pod *v1.Pod) { pod.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} }

// hasGate reports whether a pod has the gate.
func hasGate(pod *v1.Pod) bool {
	return slices.Contains(pod.Spec.SchedulingGates, v1.PodSchedulingGate{Name: podsafety.Gate})
}

// prepared holds the objects of the table's requests.
type prepared struct {
	// key is the label that asks for locks: the real one, or a mutant's.
	key string
	// namespace has the pods and the claims; its label is all.
	namespace string
	pods      map[string]*v1.Pod
	// other namespaces: plain has no label, both has both, and old an invalid one. old and class, which also has an
	// invalid label, exist only for a key whose policies were not in force yet.
	plain, both, old, class string
}

// replaceKey replaces KEY in the JSON of labels.
func replaceKey(body, key string) string { return strings.ReplaceAll(body, "KEY", key) }

func (p *prepared) path(resource, name string) string {
	return "/api/v1/namespaces/" + p.namespace + "/" + resource + "/" + name
}

// prepare creates the objects of the requests about policies, or about all policies if none is given. Only for the real
// key may policies be in force already.
func prepare(t *testing.T, key string, policies ...string) *prepared {
	t.Helper()
	needed := func(policy string) bool { return len(policies) == 0 || slices.Contains(policies, policy) }
	p := &prepared{key: key, pods: map[string]*v1.Pod{}}
	p.namespace = p.makeNamespace(t, nil)
	if needed(gateStays) {
		p.makePods(t)
	}
	if needed(lockStays) || needed(valuePolicy) {
		p.makeClaims(t)
	}
	both := map[string]string{podSafety: enforce, key: "all"}
	if needed(namespacePolicy) {
		p.plain, p.both = p.makeNamespace(t, nil), p.makeNamespace(t, both)
	}
	if key != realKey && needed(namespacePolicy) {
		p.old = p.makeNamespace(t, map[string]string{key: "maybe"})
	}
	if key != realKey && needed(valuePolicy) {
		p.makeClass(t)
	}
	p.label(t, p.namespace, both)
	return p
}

func (p *prepared) makeNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	n, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "claims-", Labels: labels}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { forget(ctx, t, n.Name, p.key) })
	return n.Name
}

// label sets labels of a namespace, and removes those without a value.
func (p *prepared) label(t *testing.T, namespace string, labels map[string]string) {
	t.Helper()
	values := map[string]any{}
	for key, value := range labels {
		values[key] = value
		if value == "" {
			values[key] = nil
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": values}})
	must(t, err)
	_, err = client.CoreV1().Namespaces().Patch(context.WithoutCancel(t.Context()), namespace, types.MergePatchType, body,
		metav1.PatchOptions{})
	must(t, err)
}

// forget deletes a namespace with a label, and its objects with finalizers.
func forget(ctx context.Context, t *testing.T, namespace, key string) {
	t.Helper()
	// No controller here removes finalizers that a policy keeps.
	_, err := client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType,
		[]byte(replaceKey(`{"metadata":{"labels":{"KEY":null,"`+podSafety+`":null}}}`, key)), metav1.PatchOptions{})
	must(t, err)
	must(t, client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	bare := []byte(`{"metadata":{"finalizers":null}}`)
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	for i := range pods.Items {
		_, err := client.CoreV1().Pods(namespace).Patch(ctx, pods.Items[i].Name, types.MergePatchType, bare,
			metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Logf("clean up: %v", err)
		}
	}
	claims, err := client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	for i := range claims.Items {
		_, err := client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, claims.Items[i].Name, types.MergePatchType,
			bare, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Logf("clean up: %v", err)
		}
	}
}

// The pods of the table.
const (
	waits       = "waits"     // has our gate and another
	waitsToo    = "waits-too" // has our gate alone
	confirmed   = "confirmed" // has our gate, and the UID of its confirmation is right
	misnamed    = "misnamed"  // has our gate, and the UID of its confirmation is wrong
	otherwise   = "otherwise" // has another gate
	applied     = "applied"   // has our gate from an apply of "applier"
	ungatedName = "ungated"   // has none
)

func (p *prepared) makePods(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for name, gates := range map[string][]string{waits: {podsafety.Gate, other}, waitsToo: {podsafety.Gate},
		confirmed: {podsafety.Gate}, misnamed: {podsafety.Gate}, otherwise: {other}, ungatedName: {}} {
		pod, err := client.CoreV1().Pods(p.namespace).Create(ctx, podOf(p.namespace, name, gated(gates...)),
			metav1.CreateOptions{})
		must(t, err)
		p.pods[name] = pod
	}
	for name, value := range map[string]string{confirmed: string(p.pods[confirmed].UID), misnamed: "another"} {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"annotations": map[string]string{confirm: value}}})
		must(t, err)
		p.pods[name], err = client.CoreV1().Pods(p.namespace).Patch(ctx, name, types.MergePatchType, body,
			metav1.PatchOptions{})
		must(t, err)
	}
	body, err := json.Marshal(podOf(p.namespace, applied, gated(podsafety.Gate)))
	must(t, err)
	p.pods[applied], err = client.CoreV1().Pods(p.namespace).Patch(ctx, applied, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "tester"})
	must(t, err)
}

// The claims of the table.
const (
	locked = "locked" // has a lock, and another finalizer
	free   = "free"   // has none
)

func (p *prepared) claim(name string, meta metav1.ObjectMeta) *v1.PersistentVolumeClaim {
	meta.Namespace, meta.Name = p.namespace, name
	return &v1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: meta, Spec: objects.ClaimFor("none")}
}

func (p *prepared) makeClaims(t *testing.T) {
	t.Helper()
	for name, meta := range map[string]metav1.ObjectMeta{free: {}, locked: {
		Annotations: map[string]string{usedBy: "uid web-0"}, Finalizers: []string{other, lockFinalizer}}} {
		_, err := client.CoreV1().PersistentVolumeClaims(p.namespace).Create(t.Context(), p.claim(name, meta),
			metav1.CreateOptions{})
		must(t, err)
	}
}

func storageClass(name string, labels map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Provisioner: "example.com/none"}
}

func (p *prepared) makeClass(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	p.class = "old-" + rand.String(8)
	_, err := client.StorageV1().StorageClasses().Create(ctx, storageClass(p.class, map[string]string{p.key: "yes"}),
		metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, client.StorageV1().StorageClasses().Delete(ctx, p.class, metav1.DeleteOptions{})) })
}
