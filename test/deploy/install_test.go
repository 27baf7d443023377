//go:build unix

package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// jobOf returns the Job that removes the finalizers.
func jobOf(t *testing.T, all []document) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{}
	find(t, all, "Job", "volume-guard-release").into(t, job)
	return job
}

func deploymentOf(t *testing.T, all []document) *appsv1.Deployment {
	t.Helper()
	return deploymentNamed(t, all, guard)
}

func deploymentNamed(t *testing.T, all []document, name string) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	find(t, all, "Deployment", name).into(t, deployment)
	return deployment
}

// makeGuardHome makes the namespace of the manifests, which enforces the strictest Pod Security.
func makeGuardHome(t *testing.T) {
	t.Helper()
	for _, d := range manifests(t) {
		if d.file == "volume-guard.yaml" && d.GetKind() == "Namespace" {
			if err := apply(patiently(t), d, d.text, "", false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// forgetGuard deletes volume-guard's objects of other tests now, and those of this one at its end, because helm creates
// its own and adopts no others, and the chart judges by them which features were on.
func forgetGuard(t *testing.T) {
	t.Helper()
	var all []document
	for _, values := range []string{"with webhooks", "with protection", "with pod safety", "with claims of sets"} {
		all = append(all, render(t, guardValues()[values]...)...)
	}
	for _, d := range render(t, guardValues()["with node fencing"]...) {
		if d.GroupVersionKind().Group == rbacv1.GroupName { // the kinds stay for other tests
			all = append(all, d)
		}
	}
	forget := func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, d := range all {
			path, err := pathOf(d, guardHome)
			if err == nil {
				err = client.RESTClient().Delete().AbsPath(path...).Do(ctx).Error()
			}
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", d, err)
			}
		}
	}
	forget()
	t.Cleanup(forget)
}

// TestChartRenderingsAreAccepted sends each rendering to the API server in a dry run with strict field validation.
func TestChartRenderingsAreAccepted(t *testing.T) {
	makeGuardHome(t)
	for name, values := range guardValues() {
		ctx := patiently(t)
		for _, d := range render(t, values...) {
			switch d.GroupVersionKind().Group {
			case "monitoring.coreos.com", certManagerGroup: // operator_test.go and chart_certificate_test.go have these kinds
				continue
			}
			if namespace := d.GetNamespace(); namespace != "" { // such as that of the Jobs of agents
				if err := makeNamespace(ctx, namespace); err != nil {
					t.Fatal(err)
				}
			}
			if err := apply(ctx, d, d.text, guardHome, true); err != nil {
				t.Errorf("%s: %s: %v", name, d, err)
			}
		}
	}
}

// TestChartMeetsRestrictedPodSecurity creates the chart's pods. The example's test shows that other pods are refused.
func TestChartMeetsRestrictedPodSecurity(t *testing.T) {
	ctx := patiently(t)
	makeGuardHome(t)
	heard := &suite.Warnings{}
	config := rest.CopyConfig(cluster.Admin())
	config.WarningHandler = heard
	strict, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"as it comes", "with everything else"} {
		all := render(t, guardValues()[name]...)
		for what, spec := range map[string]v1.PodSpec{"Deployment": deploymentOf(t, all).Spec.Template.Spec,
			"Job": jobOf(t, all).Spec.Template.Spec} {
			account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: spec.ServiceAccountName}}
			if _, err := strict.CoreV1().ServiceAccounts(guardHome).Create(ctx, account,
				metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = client.CoreV1().ServiceAccounts(guardHome).Delete(context.WithoutCancel(ctx), account.Name,
					metav1.DeleteOptions{})
			})
			spec.PriorityClassName = "" // system-cluster-critical is the cluster's, not the level's, to allow
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: spec}
			if _, err := strict.CoreV1().Pods(guardHome).Create(ctx, pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("%s: the pod of the %s is refused: %v", name, what, err)
			}
			if said := heard.Take(); len(said) != 0 {
				t.Errorf("%s: of the %s the API server says %q", name, what, said)
			}
		}
	}
}

// TestChartInstallUpgradeUninstall runs helm on a cluster whose kubelet is this test: it starts the programs of the
// Deployment, and of the Job that removes the finalizers.
func TestChartInstallUpgradeUninstall(t *testing.T) {
	ctx := patiently(t)
	forgetGuard(t)
	makeGuardHome(t)
	kubeconfig, err := cluster.Kubeconfig(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	install, uninstall := documented(t, "helm install"), documented(t, "helm uninstall")
	values := append(sets(guardValues()["with webhooks"]), "--kubeconfig", kubeconfig)
	if _, err := helm(t, append(install, values...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// volume-guard's own objects, as docs/how-to/remove.md says.
		_ = client.CoreV1().Secrets(guardHome).Delete(context.WithoutCancel(ctx), "volume-guard-webhooks",
			metav1.DeleteOptions{})
		_ = client.CoordinationV1().Leases(guardHome).Delete(context.WithoutCancel(ctx), guard, metav1.DeleteOptions{})
	})

	deployment, err := client.AppsV1().Deployments(guardHome).Get(ctx, guard, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	http := suite.FreeAddress(t)
	p := beginGuard(t, deployment.Spec.Template.Spec, map[int32]string{8080: http, 9443: suite.FreeAddress(t)})
	if err := p.WaitLog(ctx, "Became the leader"); err != nil {
		t.Fatal(err)
	}
	probe := deployment.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path
	if err := answers(ctx, "http://"+http+probe); err != nil {
		t.Fatalf("%v\n%s", err, p.LogTail(20))
	}
	if log := p.LogTail(1000); strings.Contains(log, "Preflight") {
		t.Errorf("something is lacking:\n%s", log)
	}
	if bundles := waitTrusted(ctx, t); len(bundles) == 0 {
		t.Error("the API server trusts no webhook")
	}

	upgrade := append([]string{"upgrade", "--set", "replicas=1"}, install[1:]...)
	if _, err := helm(t, append(upgrade, values...)...); err != nil {
		t.Fatal(err)
	}
	if deployment, err = client.AppsV1().Deployments(guardHome).Get(ctx, guard,
		metav1.GetOptions{}); err != nil || *deployment.Spec.Replicas != 1 {
		t.Errorf("after the upgrade: %v, %v replicas", err, deployment.Spec.Replicas)
	}
	// The chart must not remove volume-guard's changes of the configurations.
	for _, bundle := range trusted(ctx, t) {
		if len(bundle) == 0 {
			t.Error("the upgrade took away what the API server is to trust")
		}
	}

	expectHoldKeepsController(t, append(upgrade, values...))

	ended := make(chan error, 1)
	go func() {
		_, err := helm(t, append(uninstall, "--kubeconfig", kubeconfig)...)
		ended <- err
	}()
	pod, err := waitReleasePod(ctx, ended)
	if err != nil {
		t.Fatal(err)
	}
	release := beginGuard(t, pod.Spec, nil)
	select {
	case <-release.Done():
	case <-ctx.Done():
	}
	if err := release.Err(); err != nil || ctx.Err() != nil {
		t.Errorf("the Job's program: %v\n%s", err, release.LogTail(20))
	}
	pod.Status.Phase = v1.PodSucceeded
	if _, err := client.CoreV1().Pods(guardHome).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(guardHome).Get(ctx, guard, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment is still there: %v", err)
	}
}

// expectHoldKeepsController has objects that hold or gate new pods, while an upgrade leaves their controllers off.
func expectHoldKeepsController(t *testing.T, upgrade []string) {
	t.Helper()
	ctx, api := patiently(t), client.AdmissionregistrationV1()
	for name, value := range map[string]string{"csi-reclaimer-pod-hold": "podSafety.enabled",
		"csi-reclaimer-pod-gate": "singleNode.enabled"} {
		meta := metav1.ObjectMeta{Name: name}
		_, err := api.MutatingWebhookConfigurations().Create(ctx,
			&admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta}, metav1.CreateOptions{})
		mustOf(t)(err)
		expectRefused(t, upgrade, value+" is false, and the MutatingWebhookConfiguration")
		mustOf(t)(api.MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{}))
		// Its policy does not exist, so that it changes no pod.
		_, err = api.MutatingAdmissionPolicyBindings().Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "none"}},
			metav1.CreateOptions{})
		mustOf(t)(err)
		expectRefused(t, upgrade, value+" is false, and the MutatingAdmissionPolicyBinding")
		mustOf(t)(api.MutatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	expectRemainsKeepController(t, upgrade)
	expectTaintKeepsFencing(t, upgrade)
}

// expectTaintKeepsFencing expects a refusal of upgrades after which no controller would remove the taint of a node.
func expectTaintKeepsFencing(t *testing.T, upgrade []string) {
	t.Helper()
	makeRole(t, "volume-guard-node-fencing")
	nodes := client.CoreV1().Nodes()
	var want []string
	for _, taint := range []v1.Taint{
		{Key: v1.TaintNodeOutOfService, Value: "csi-reclaimer", Effect: v1.TaintEffectNoExecute},
		{Key: "csi-reclaimer.io/volumes-fenced", Effect: v1.TaintEffectNoSchedule},
		{Key: "csi-reclaimer.io/volumes-fenced", Effect: v1.TaintEffectNoExecute}, // of a person
	} {
		node, err := nodes.Create(patiently(t), &v1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "fenced-"},
			Spec: v1.NodeSpec{Taints: []v1.Taint{taint}}}, metav1.CreateOptions{})
		mustOf(t)(err)
		forget(t, func(ctx context.Context) error { return nodes.Delete(ctx, node.Name, metav1.DeleteOptions{}) })
		want = append(want, "the taint of Node "+node.Name)
	}
	for _, value := range []string{"nodeFencing.enabled=false", "nodeFencing.enabled=true,dryRun=true"} {
		for _, complaint := range want {
			expectRefused(t, slices.Concat(upgrade, []string{"--set", value}), complaint)
		}
	}
}

// expectRemainsKeepController expects a refusal of the upgrade while a pod or claim has a finalizer or gate, although
// the admission objects are gone. The refusal names the only controllers that the next Job may release.
func expectRemainsKeepController(t *testing.T, upgrade []string) {
	t.Helper()
	s := &shell{}
	for _, name := range []string{"volume-guard-pod-safety", "volume-guard-single-node"} { // of other tests
		mustOf(t)(ignoreNotFound(client.RbacV1().ClusterRoles().Delete(patiently(t), name, metav1.DeleteOptions{})))
	}
	makeRole(t, "volume-guard-pod-safety")
	pods := client.CoreV1().Pods(docsHome)
	remove := func(name string) {
		t.Helper()
		_, err := pods.Patch(patiently(t), name, types.MergePatchType, []byte(noFinalizers), metav1.PatchOptions{})
		mustOf(t)(err)
		err = pods.Delete(patiently(t), name, *metav1.NewDeleteOptions(0))
		mustOf(t)(ignoreNotFound(err))
	}
	held := docsPod()
	held.Finalizers = []string{"csi-reclaimer.io/running"}
	s.makeHome(t)
	s.makeDocsPod(t, held)
	expectRefused(t, upgrade, "podSafety.enabled is false, and finalizers or gates of it are on pods and claims (1)")
	expectRefused(t, upgrade, "--controllers=pod-safety and no other")
	makeRole(t, "volume-guard-single-node")
	expectRefused(t, upgrade, "--controllers=single-node,pod-safety and no other")
	remove(held.Name)
	s.makeGated(t)
	expectRefused(t, upgrade, "singleNode.enabled is false, and finalizers or gates of it are on pods and claims (1)")
	expectRefused(t, upgrade, "--controllers=single-node and no other")
	remove(docsOther)
	_, err := helm(t, append(slices.Clone(upgrade), "--dry-run=server")...)
	mustOf(t)(err)
}

// makeRole makes a ClusterRole whose presence shows that the chart ran its controller. It is gone after the test.
func makeRole(t *testing.T, name string) {
	t.Helper()
	roles := client.RbacV1().ClusterRoles()
	_, err := roles.Create(patiently(t), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	mustOf(t)(err)
	forget(t, func(ctx context.Context) error {
		return ignoreNotFound(roles.Delete(ctx, name, metav1.DeleteOptions{}))
	})
}

func expectRefused(t *testing.T, command []string, complaint string) {
	t.Helper()
	if _, err := helm(t, command...); err == nil || !strings.Contains(err.Error(), complaint) {
		t.Errorf("helm %s: %v, want a complaint of %q", command[0], err, complaint)
	}
}

// beginGuard runs the pod's only container as a kubelet would, with its ports at other addresses.
func beginGuard(t *testing.T, pod v1.PodSpec, ports map[int32]string) *process.Process {
	t.Helper()
	binary, err := program.Build(patiently(t), guard, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	container := pod.Containers[0]
	container.VolumeMounts = nil // the account's token; the kubeconfig replaces it
	args := append(onThisMachine(t, container, "", ports),
		"--kubeconfig="+kubeconfigOf(t, guardHome, pod.ServiceAccountName))
	// The release takes the leader's Lease, so that the leader ends with an error.
	p, err := process.Start(process.Command{Path: binary, Args: args, Env: environment(t, container, guardHome)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// trusted returns the CA bundle of each webhook in the API server.
func trusted(ctx context.Context, t *testing.T) (bundles [][]byte) {
	t.Helper()
	mutating, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "csi-reclaimer",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	validating, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "csi-reclaimer",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range mutating.Webhooks {
		bundles = append(bundles, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := range validating.Webhooks {
		bundles = append(bundles, validating.Webhooks[i].ClientConfig.CABundle)
	}
	return bundles
}

// waitTrusted waits until volume-guard has written that.
func waitTrusted(ctx context.Context, t *testing.T) [][]byte {
	t.Helper()
	for {
		bundles := trusted(ctx, t)
		if !slices.ContainsFunc(bundles, func(b []byte) bool { return len(b) == 0 }) {
			return bundles
		}
		select {
		case <-ctx.Done():
			t.Fatal("no certificate was made")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waitReleasePod returns the pod that the Job controller makes, unless helm ends before.
func waitReleasePod(ctx context.Context, ended <-chan error) (*v1.Pod, error) {
	for {
		pods, err := client.CoreV1().Pods(guardHome).List(ctx, metav1.ListOptions{LabelSelector: "app=volume-guard-release"})
		if err == nil && len(pods.Items) > 0 {
			return &pods.Items[0], nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("helm ended before its hook ran: %w", errors.Join(err, errors.New("no Job")))
		case <-ctx.Done():
			return nil, fmt.Errorf("no pod of the Job: %w", errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
