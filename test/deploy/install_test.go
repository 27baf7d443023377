//go:build unix

package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// jobOf returns the Job that removes the finalizers.
func jobOf(t *testing.T, all []document) *batchv1.Job {
	t.Helper()
	return findAs[batchv1.Job](t, all, "Job", "volume-guard-release")
}

func deploymentOf(t *testing.T, all []document) *appsv1.Deployment {
	t.Helper()
	return deploymentNamed(t, all, guard)
}

func deploymentNamed(t *testing.T, all []document, name string) *appsv1.Deployment {
	t.Helper()
	return findAs[appsv1.Deployment](t, all, "Deployment", name)
}

// argsOf returns the arguments of the Deployment's only container.
func argsOf(t *testing.T, all []document, name string) []string {
	t.Helper()
	return deploymentNamed(t, all, name).Spec.Template.Spec.Containers[0].Args
}

// makeGuardHome makes the namespace of the manifests, which enforces the strictest Pod Security.
func makeGuardHome(t *testing.T) {
	t.Helper()
	install(t, "", manifestsOf(t, "volume-guard.yaml Namespace"))
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
	undo := func(ctx context.Context) error {
		var errs []error
		for _, d := range all {
			errs = append(errs, removeDocument(ctx, d))
		}
		return errors.Join(errs...)
	}
	must(t, undo(patiently(t)))
	forget(t, undo)
}

// TestChartRenderingsAreAccepted sends each rendering to the API server in a dry run with strict field validation.
func TestChartRenderingsAreAccepted(t *testing.T) {
	makeGuardHome(t)
	for name, values := range guardValues() {
		expectAccepted(t, name, slices.DeleteFunc(render(t, values...), func(d document) bool {
			group := d.GroupVersionKind().Group // operator_test.go and chart_certificate_test.go have these kinds
			return group == "monitoring.coreos.com" || group == certManagerGroup
		}))
	}
}

// TestChartMeetsRestrictedPodSecurity creates the chart's pods. The example's test shows that other pods are refused.
func TestChartMeetsRestrictedPodSecurity(t *testing.T) {
	ctx := patiently(t)
	makeGuardHome(t)
	strict, heard := hearingClient(t)
	for _, name := range []string{"as it comes", "with everything else"} {
		all := render(t, guardValues()[name]...)
		for what, spec := range map[string]v1.PodSpec{"Deployment": deploymentOf(t, all).Spec.Template.Spec,
			"Job": jobOf(t, all).Spec.Template.Spec} {
			accounts := client.CoreV1().ServiceAccounts(guardHome)
			_, err := accounts.Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: spec.ServiceAccountName}},
				metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				must(t, err)
			}
			forget(t, func(ctx context.Context) error { return remove(ctx, accounts, spec.ServiceAccountName) })
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
	must(t, err)
	install, uninstall := documented(t, "helm install"), documented(t, "helm uninstall")
	values := append(sets(guardValues()["with webhooks"]), "--kubeconfig", kubeconfig)
	mustHelm(t, append(install, values...)...)
	forget(t, func(ctx context.Context) error { // volume-guard's own objects, as docs/how-to/remove.md says
		return errors.Join(remove(ctx, client.CoreV1().Secrets(guardHome), "volume-guard-webhooks"),
			remove(ctx, client.CoordinationV1().Leases(guardHome), guard))
	})

	deployment, err := client.AppsV1().Deployments(guardHome).Get(ctx, guard, metav1.GetOptions{})
	must(t, err)
	http := suite.FreeAddress(t)
	p := beginGuard(t, deployment.Spec.Template.Spec, map[int32]string{8080: http, 9443: suite.FreeAddress(t)})
	must(t, p.WaitLog(ctx, "Became the leader"))
	probe := deployment.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path
	if err := answers(ctx, "http://"+http+probe); err != nil {
		t.Fatalf("%v\n%s", err, p.LogTail(20))
	}
	if log := p.LogTail(1000); strings.Contains(log, "Preflight") {
		t.Errorf("something is lacking:\n%s", log)
	}
	until(t, "the API server trusts each webhook", func() bool { return allTrusted(t) })

	upgrade := append([]string{"upgrade", "--set", "replicas=1"}, install[1:]...)
	mustHelm(t, append(upgrade, values...)...)
	if deployment, err = client.AppsV1().Deployments(guardHome).Get(ctx, guard,
		metav1.GetOptions{}); err != nil || *deployment.Spec.Replicas != 1 {
		t.Errorf("after the upgrade: %v, %v replicas", err, deployment.Spec.Replicas)
	}
	// The chart must not remove volume-guard's changes of the configurations.
	if !allTrusted(t) {
		t.Error("the upgrade took away what the API server is to trust")
	}

	expectHoldKeepsController(t, append(upgrade, values...))

	ended := make(chan error, 1)
	go func() {
		_, err := helm(t, append(uninstall, "--kubeconfig", kubeconfig)...)
		ended <- err
	}()
	pod, err := waitReleasePod(ctx, ended)
	must(t, err)
	release := beginGuard(t, pod.Spec, nil)
	select {
	case <-release.Done():
	case <-ctx.Done():
	}
	if err := release.Err(); err != nil || ctx.Err() != nil {
		t.Errorf("the Job's program: %v\n%s", err, release.LogTail(20))
	}
	pod.Status.Phase = v1.PodSucceeded
	_, err = client.CoreV1().Pods(guardHome).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	must(t, err)
	must(t, <-ended)
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
		meta, webhooks, bindings := metav1.ObjectMeta{Name: name}, api.MutatingWebhookConfigurations(),
			api.MutatingAdmissionPolicyBindings()
		create(t, webhooks, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta})
		expectRefused(t, value+" is false, and the MutatingWebhookConfiguration", upgrade...)
		must(t, remove(ctx, webhooks, name))
		// Its policy does not exist, so that it changes no pod.
		create(t, bindings, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "none"}})
		expectRefused(t, value+" is false, and the MutatingAdmissionPolicyBinding", upgrade...)
		must(t, remove(ctx, bindings, name))
	}
	expectRemainsKeepController(t, upgrade)
	expectTaintKeepsFencing(t, upgrade)
	expectFenceKeepsAgent(t, upgrade)
	expectRequestKeepsFencingOff(t, upgrade)
}

// expectRequestKeepsFencingOff expects a refusal of an installation of node-fencing that would carry out a NodeFence
// from before it. A fence that has ended asks for nothing.
func expectRequestKeepsFencingOff(t *testing.T, upgrade []string) {
	t.Helper()
	must(t, remove(patiently(t), client.RbacV1().ClusterRoles(), "volume-guard-node-fencing")) // of other tests
	agent := v1alpha1.Agent{Name: "power", Covers: v1alpha1.CoversUntilUnfenced,
		Job: &v1alpha1.JobAgent{Namespace: docsHome, PodTemplateName: "off"}}
	fences := fenceClient(t).Fences
	create(t, fences, newFence("chart-requested", agent))
	ended := create(t, fences, newFence("chart-ended", agent))
	ended.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReturned, Status: metav1.ConditionTrue,
		Reason: "Ended", LastTransitionTime: metav1.Now()}}
	_, err := fences.UpdateStatus(patiently(t), ended, metav1.UpdateOptions{})
	must(t, err)
	upgrade = append(slices.Clone(upgrade), "--set", "nodeFencing.enabled=true")
	const refusal = "by NodeFences from before the controller or from its dry run: chart-requested. Delete them"
	expectRefused(t, refusal, upgrade...)
	rule := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"nodefences"},
		Verbs: []string{"get", "list", "watch"}}
	role := create(t, client.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ // as the chart has it with dryRun
		ObjectMeta: metav1.ObjectMeta{Name: "volume-guard-node-fencing"}, Rules: []rbacv1.PolicyRule{rule}})
	expectRefused(t, refusal, upgrade...)
	role.Rules[0].Verbs = append(role.Rules[0].Verbs, "patch")
	_, err = client.RbacV1().ClusterRoles().Update(patiently(t), role, metav1.UpdateOptions{})
	must(t, err)
	if _, err := helm(t, upgrade...); err == nil || strings.Contains(err.Error(), "from before the controller") {
		t.Errorf("the controller was installed before: %v", err)
	}
}

// expectFenceKeepsAgent expects a refusal of upgrades that take the permissions of an agent away from a fence.
func expectFenceKeepsAgent(t *testing.T, upgrade []string) {
	t.Helper()
	must(t, shipped.Apply(patiently(t), cluster.Admin(), shipped.NodeFencingCRD))
	fence := newFence("chart-fenced", v1alpha1.Agent{Name: "storage", Covers: v1alpha1.CoversVolumes,
		NetworkFence: &v1alpha1.NetworkFenceAgent{Driver: "d", NetworkFenceClassName: "class"}})
	fence.Finalizers = []string{"csi-reclaimer.io/fence"}
	job := newFence("chart-switched-off", v1alpha1.Agent{Name: "power", Covers: v1alpha1.CoversUntilUnfenced,
		Job: &v1alpha1.JobAgent{Namespace: docsHome, PodTemplateName: "off"}},
		v1alpha1.Agent{Name: "reboot", Covers: v1alpha1.CoversReboot, Remediation: &v1alpha1.RemediationAgent{
			APIVersion: "r.example.com/v1", Kind: "RTemplate", Namespace: docsHome, Name: "r"}})
	job.Finalizers = fence.Finalizers
	fences := fenceClient(t).Fences
	create(t, fences, fence)
	create(t, fences, job)
	upgrade = append(slices.Clone(upgrade), "--set", "nodeFencing.enabled=true")
	if _, err := helm(t, upgrade...); err == nil || strings.Contains(err.Error(), "could not stop or undo") {
		t.Errorf("permissions that the chart did not give are missed: %v", err)
	}
	const network, prefix = "volume-guard-fence-agent-network", "volume-guard-fence-agent-"
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	create(t, client.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: network}, RoleRef: role(network)})
	for _, name := range []string{prefix + "job", prefix + "remediation"} {
		create(t, client.RbacV1().RoleBindings(docsHome), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: role(name)})
	}
	expectRefused(t, "networkFences (agent storage of NodeFence chart-fenced)", upgrade...)
	expectRefused(t, "jobNamespaces "+docsHome+" (agent power of NodeFence chart-switched-off)", upgrade...)
	expectRefused(t, "remediationNamespaces "+docsHome+" (agent reboot of NodeFence chart-switched-off)", upgrade...)
	kept := append(slices.Clone(upgrade), "--set", "nodeFencing.networkFences=true,nodeFencing.jobNamespaces={"+docsHome+
		"},nodeFencing.remediationNamespaces={"+docsHome+"}")
	if _, err := helm(t, kept...); err == nil || strings.Contains(err.Error(), "could not stop or undo") {
		t.Errorf("the fences keep their agents: %v", err)
	}
}

// expectTaintKeepsFencing expects a refusal of upgrades after which no controller would remove the taint of a node.
func expectTaintKeepsFencing(t *testing.T, upgrade []string) {
	t.Helper()
	makeRole(t, "volume-guard-node-fencing")
	var want []string
	for _, taint := range []v1.Taint{
		{Key: v1.TaintNodeOutOfService, Value: "csi-reclaimer", Effect: v1.TaintEffectNoExecute},
		{Key: "csi-reclaimer.io/volumes-fenced", Effect: v1.TaintEffectNoSchedule},
		{Key: "csi-reclaimer.io/volumes-fenced", Effect: v1.TaintEffectNoExecute}, // of a person
	} {
		want = append(want, "the taint of Node "+create(t, client.CoreV1().Nodes(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "fenced-"}, Spec: v1.NodeSpec{Taints: []v1.Taint{taint}}}).Name)
	}
	for _, value := range []string{"nodeFencing.enabled=false", "nodeFencing.enabled=true,dryRun=true"} {
		for _, complaint := range want {
			expectRefused(t, complaint, slices.Concat(upgrade, []string{"--set", value})...)
		}
	}
}

// expectRemainsKeepController expects a refusal of the upgrade while a pod or claim has a finalizer or gate, although
// the admission objects are gone. The refusal names the only controllers that the next Job may release.
func expectRemainsKeepController(t *testing.T, upgrade []string) {
	t.Helper()
	for _, name := range []string{"volume-guard-pod-safety", "volume-guard-single-node"} { // of other tests
		must(t, remove(patiently(t), client.RbacV1().ClusterRoles(), name))
	}
	makeRole(t, "volume-guard-pod-safety")
	pods := client.CoreV1().Pods(docsHome)
	makeDocsPod(t, heldPod())
	expectRefused(t, "podSafety.enabled is false, and finalizers or gates of it are on pods and claims (1)", upgrade...)
	expectRefused(t, "--controllers=pod-safety and no other", upgrade...)
	makeRole(t, "volume-guard-single-node")
	expectRefused(t, "--controllers=single-node,pod-safety and no other", upgrade...)
	must(t, remove(patiently(t), pods, docsHolder))
	makeGatedPod(t)
	expectRefused(t, "singleNode.enabled is false, and finalizers or gates of it are on pods and claims (1)", upgrade...)
	expectRefused(t, "--controllers=single-node and no other", upgrade...)
	must(t, remove(patiently(t), pods, docsOther))
	mustHelm(t, append(slices.Clone(upgrade), "--dry-run=server")...)
}

// makeRole makes a ClusterRole whose presence shows that the chart ran its controller.
func makeRole(t *testing.T, name string) {
	t.Helper()
	create(t, client.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// beginGuard runs the pod's only container as a kubelet would, with its ports at other addresses.
func beginGuard(t *testing.T, pod v1.PodSpec, ports map[int32]string) *process.Process {
	t.Helper()
	binary, err := program.Build(patiently(t), guard, os.Stderr)
	must(t, err)
	container := pod.Containers[0]
	container.VolumeMounts = nil // the account's token; the kubeconfig replaces it
	args := append(onThisMachine(t, container, "", ports),
		"--kubeconfig="+kubeconfigOf(t, guardHome, pod.ServiceAccountName))
	// The release takes the leader's Lease, so that the leader ends with an error.
	p, err := process.Start(process.Command{Path: binary, Args: args, Env: environment(t, container, guardHome)})
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// allTrusted reports whether each webhook has a CA bundle in the API server.
func allTrusted(t *testing.T) bool {
	t.Helper()
	api := client.AdmissionregistrationV1()
	mutating, err := api.MutatingWebhookConfigurations().Get(patiently(t), "csi-reclaimer", metav1.GetOptions{})
	must(t, err)
	validating, err := api.ValidatingWebhookConfigurations().Get(patiently(t), "csi-reclaimer", metav1.GetOptions{})
	must(t, err)
	if len(mutating.Webhooks) == 0 || len(validating.Webhooks) == 0 {
		t.Fatal("the chart has no webhooks")
	}
	return !slices.ContainsFunc(mutating.Webhooks,
		func(w admissionv1.MutatingWebhook) bool { return len(w.ClientConfig.CABundle) == 0 }) &&
		!slices.ContainsFunc(validating.Webhooks,
			func(w admissionv1.ValidatingWebhook) bool { return len(w.ClientConfig.CABundle) == 0 })
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

// TestChartAfterConflictAndFailedUninstall has helm meet objects that others changed or deleted, as
// docs/how-to/remove.md says: a released driver, and an uninstall whose Job does not end.
func TestChartAfterConflictAndFailedUninstall(t *testing.T) {
	suite.Deep(t, suite.OwnControlPlane)
	const driver = "disk.csi.example.com"
	env, tree := newCharts(t), filepath.Dir(inDeploy(t))
	c := installed{name: guard, namespace: guardHome, values: []string{"podSafety.enabled=true", "singleNode.enabled=true",
		"admissionPolicy.enabled=true", `protectedDrivers.disk\.csi\.example\.com=owner`}}
	env.run(append([]string{"install", guard, c.of(tree), "--namespace", guardHome, "--create-namespace"},
		sets(c.values)...)...)
	want := env.render(c, tree)
	env.expectInstalled(want, nil)

	done, err := admission.RemoveDrivers(env.Ctx, env.Plane.Admin(), []string{driver})
	env.Must(err)
	if len(done.Objects) == 0 {
		t.Fatalf("%s is in no list", driver)
	}
	upgrade := []string{"upgrade", guard, c.of(tree), "--namespace", guardHome, "--reset-then-reuse-values"}
	expectRefused(t, "matchConditions", env.with(upgrade)...)
	env.run(append(upgrade, "--force-conflicts")...)
	env.expectInstalled(want, nil)

	// No kubelet runs here, so the Job of the uninstall does not end.
	expectRefused(t, "", env.with([]string{"uninstall", guard, "--namespace", guardHome, "--timeout", "2s"})...)
	env.expectInstalled(want, nil)
	deleted := 0
	for _, o := range want {
		if strings.HasSuffix(o.GetKind(), "PolicyBinding") {
			env.remove(o)
			deleted++
		}
	}
	if deleted == 0 {
		t.Fatal("the chart has no bindings, which the Job deletes last")
	}
	expectRefused(t, "no deployed releases", env.with(upgrade)...)
	env.run("rollback", guard, strconv.Itoa(env.revision("uninstalling")), "--namespace", guardHome)
	env.expectInstalled(want, nil)
}

// revision returns the revision of volume-guard with this status.
func (env *charts) revision(status string) int {
	env.T.Helper()
	var all []struct {
		Revision int
		Status   string
	}
	out := env.run("history", guard, "--namespace", guardHome, "-o", "json")
	env.Must(json.Unmarshal([]byte(out), &all))
	for _, r := range all {
		if r.Status == status {
			return r.Revision
		}
	}
	env.T.Fatalf("no revision is %s: %s", status, out)
	return 0
}

// remove deletes an object.
func (env *charts) remove(o *unstructured.Unstructured) {
	env.T.Helper()
	env.Must(ignoreNotFound(env.resource(o).Delete(env.Ctx, o.GetName(), metav1.DeleteOptions{})))
}
