//go:build unix

package singlenodeadmission

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

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
			Volumes:                      []v1.Volume{claimVolume("c")},
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

func claimVolume(name string) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}
}

func ephemeralVolume() v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: claimSpec("none")},
	}}}
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

// verdict is the outcome of a request.
type verdict struct {
	// refusedBy is the refusing policy, and text its message.
	refusedBy, text string
	// err is any other error.
	err error
}

func (v verdict) String() string {
	switch {
	case v.err != nil:
		return v.err.Error()
	case v.refusedBy != "":
		return "refused by " + v.refusedBy
	}
	return "admitted"
}

func judge(err error) (v verdict) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return verdict{err: err}
	}
	text := status.Status().Message
	name := suite.PolicyIn(text)
	if name == "" || status.Status().Reason != metav1.StatusReasonForbidden {
		return verdict{err: err}
	}
	return verdict{refusedBy: name, text: text}
}
