//go:build unix

package upgrade

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// guardKinds and guardPolicies are the manifests of volume-guard's kinds and policies, and guardRights of its
// permissions, with all controllers that are off by default.
var (
	guardKinds    = []string{manifests.PodSafetyCRD, manifests.NodeFencingCRD}
	guardPolicies = []string{manifests.PodSafetyPolicies, manifests.PodSafetyHold, manifests.SingleNodePolicies,
		manifests.SingleNodeGate, manifests.NodeFencingPolicy, manifests.NodeFencingRoles}
	guardRights = []string{"rbac-volume-guard.yaml", "rbac-volume-guard-pvc-protection.yaml",
		"rbac-volume-guard-pv-protection.yaml", "rbac-volume-guard-pod-safety.yaml", "rbac-volume-guard-single-node.yaml",
		"rbac-volume-guard-statefulset-claims.yaml", "rbac-volume-guard-node-fencing.yaml"}
)

// TestUpgradeOfVolumeGuard applies today's kinds, policies and permissions under the previous release. Then today's
// volume-guard takes over, while pods, locks, fences and claims wait.
func TestUpgradeOfVolumeGuard(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	from, to := before(t), today(t)
	env, old := startCluster(t, from, to)
	checks := env.waitings()
	env.applyGuard(to)
	env.touchFences()
	env.expectReleasesEvidence() // by the release before, with today's manifests
	env.hold(checks)
	env.replaceGuard(old, to)
	env.finish(checks)
}

// In TestRollbackOfVolumeGuard the previous release takes over from today's volume-guard, and its manifests are applied
// afterwards.
func TestRollbackOfVolumeGuard(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	from, to := today(t), before(t)
	env, old := startCluster(t, from, to)
	checks := env.waitings()
	env.replaceGuard(old, to)
	env.applyGuard(to)
	env.touchFences()
	env.finish(checks)
}

// startCluster starts volume-guard of a version, with its manifests, to be replaced by another version.
func startCluster(t *testing.T, from, to version) (env *cluster, leader *program.Program) {
	t.Helper()
	compile(t, fixture.VolumeGuardName, from, to)
	env = newCluster(t)
	env.applyGuard(from)
	leader = env.startGuard(from, "old")
	env.waitLeads(leader)
	return env, leader
}

// cluster is a control plane of a test's own, since volume-guard works on the whole cluster.
type cluster struct {
	*environment
	fences *client.Client
	// class is of a driver with a provisioner.
	class string
	// account is volume-guard's, kubeconfig its file.
	account, kubeconfig string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	env := &cluster{environment: &environment{Environment: fixture.NewWithControlPlane(t, fixture.Version(),
		controlplane.Options{
			Scheduler: true,
			Controllers: []string{"*", "-persistentvolumeclaim-protection-controller",
				"-persistentvolume-protection-controller"},
			ControllerManagerArgs: []string{"--node-monitor-grace-period=10s", "--node-monitor-period=1s",
				"--large-cluster-size-threshold=0"},
		})}}
	var err error
	env.fences, err = client.New(env.Plane.Admin())
	env.Must(err)
	env.account, env.kubeconfig = env.User, env.Kubeconfig
	env.UseDriver(mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"})
	env.InstallDriver(nil)
	env.CreateServiceAccount(sidecar)
	env.GrantRole("owner")
	env.StartSidecar(fixture.FastRetries()...)
	env.class = env.CreateStorageClass()
	return env
}

// inNamespace returns the cluster with its own namespace. Its labels decide whether pods are held, and wait for the
// locks of their claims.
func (env *cluster) inNamespace(labels map[string]string) *cluster {
	env.T.Helper()
	sub := *env
	sub.environment = &environment{Environment: env.InOtherNamespace()}
	sub.label(labels)
	return &sub
}

// applyGuard applies the manifests of volume-guard that a version ships, in the order of the documentation, and binds
// the roles.
func (env *cluster) applyGuard(of version) {
	env.T.Helper()
	for _, file := range slices.Concat(guardKinds, guardPolicies, guardRights) {
		env.ApplyManifestOf(of.tree, file, guard.Account, env.account)
	}
	for _, file := range guardRights {
		text, err := os.ReadFile(filepath.Join(of.tree, "deploy", "manifests", file))
		env.Must(err)
		objects, err := manifests.Parse(text)
		env.Must(err)
		for _, o := range objects {
			namespace := o.GetNamespace()
			if o.GetKind() == "Role" && namespace == "" {
				namespace = env.DriverNamespace
			}
			env.bind(o.GetKind(), o.GetName(), namespace)
		}
	}
}

// bind binds a role to volume-guard's account, unless it is.
func (env *cluster) bind(kind, name, namespace string) {
	env.T.Helper()
	var err error
	if kind == "Role" {
		err = rbac.Bind(env.Ctx, env.Client, namespace, name, kind, name, env.DriverNamespace, guard.Name)
	} else {
		err = rbac.BindCluster(env.Ctx, env.Client, name, name, env.DriverNamespace, guard.Name)
	}
	if !apierrors.IsAlreadyExists(err) {
		env.Must(err)
	}
}

// startGuard starts a replica of volume-guard with all of its controllers.
func (env *cluster) startGuard(of version, identity string) *program.Program {
	env.T.Helper()
	binary, err := of.build(fixture.VolumeGuardName)
	env.Must(err)
	g, err := program.Start(env.Ctx, program.Options{Name: fixture.VolumeGuardName, Binary: binary,
		Args: slices.Concat(fixture.NextReplicaFlags(identity), []string{"--kubeconfig=" + env.kubeconfig,
			"--leader-election-namespace=" + env.DriverNamespace,
			"--controllers=*,pvc-protection,pv-protection,pod-safety,single-node,statefulset-claims,node-fencing",
			"--unmount-grace=1s", "--scale-down-grace=1s", "--protection-patience=2s", "--retry-interval-start=50ms",
			"--retry-interval-max=500ms"})})
	env.Must(err)
	env.StopAtEnd(g)
	return g
}

// replaceGuard starts a replica of another version beside the leader, ends that, and returns when the other leads.
func (env *cluster) replaceGuard(leader *program.Program, by version) {
	env.T.Helper()
	next := env.startGuard(by, "next")
	env.Must(next.WaitReady(env.WithTimeout()))
	env.Must(leader.Terminate())
	env.waitLeads(next)
	if log := next.LogTail(1000); strings.Contains(log, "Preflight: may not") {
		env.T.Errorf("%s lacks a permission:\n%s", by.name, log)
	}
}

// touchFences updates each NodeFence, so that the currently served kind validates objects that were stored with the
// other one.
func (env *cluster) touchFences() {
	env.T.Helper()
	list, err := env.fences.Fences.List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	if len(list.Items) == 0 {
		env.T.Error("there is no NodeFence: this test shows nothing")
	}
	for i := range list.Items {
		env.Eventually("NodeFence "+list.Items[i].Name+" is valid", func() bool {
			o, err := env.fences.Fences.Get(env.Ctx, list.Items[i].Name, metav1.GetOptions{})
			env.Must(err)
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "test.csi-reclaimer.io/touched", rand.String(8))
			if _, err = env.fences.Fences.Update(env.Ctx, o, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
				return false // volume-guard has written in between
			}
			env.Must(err)
			return true
		})
	}
}

// waiting is an object that volume-guard keeps until it has evidence.
type waiting struct {
	// kept checks that it is kept.
	kept func()
	// end provides the evidence, and waits for its consequence.
	end func()
}

// waitings brings one of each about.
func (env *cluster) waitings() []waiting {
	env.T.Helper()
	all := []waiting{env.gatedPod(), env.markedClaim(), env.claimInUse()}
	return append(all, env.heldPod(env.machine()), env.fencing(env.machine()), env.fenced(env.machine()))
}

// hold checks that all is kept.
func (env *cluster) hold(all []waiting) {
	env.T.Helper()
	for _, w := range all {
		w.kept()
	}
}

// finish checks that the replica that leads now has kept all, and acts on evidence.
func (env *cluster) finish(all []waiting) {
	env.T.Helper()
	env.expectReleasesEvidence() // it is at work
	env.hold(all)
	for _, w := range all {
		w.end()
	}
}

// set is a StatefulSet with the policy that claims go when replicas are scaled away.
type set struct {
	*cluster
	name string
}

func (s *set) claimName(ordinal int) string { return fmt.Sprintf("data-%s-%d", s.name, ordinal) }

// scaledDown creates a set of two replicas and scales it to one. The second pod is gone before that, and is not
// replaced since the first one is not ready: Kubernetes leaves such a claim behind, and volume-guard deletes it.
func (env *cluster) scaledDown(annotations map[string]string) *set {
	env.T.Helper()
	m := env.machine()
	s, labels := &set{env, "web"}, map[string]string{"app": "web"}
	env.StatefulSets().Create(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Annotations: annotations},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: s.name,
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
				Containers:                    []v1.Container{{Name: "main", Image: "none"}},
				NodeSelector:                  map[string]string{v1.LabelHostname: m.name},
				TerminationGracePeriodSeconds: ptr.To[int64](1),
			}},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: objects.ClaimFor(env.class)}},
		},
	})
	s.waitStatus("two pods", func(now appsv1.StatefulSetStatus) bool { return now.ReadyReplicas == 2 })
	env.Eventually("claim "+s.claimName(1)+" is marked", func() bool {
		return strings.HasPrefix(env.Claims().Get(s.claimName(1)).Annotations["csi-reclaimer.io/statefulset"], s.name+"/")
	})
	s.losePod(1)
	s.StatefulSets().Merge(s.name, `{"spec":{"replicas":1}}`)
	s.waitStatus("one pod", func(now appsv1.StatefulSetStatus) bool { return now.Replicas == 1 })
	return s
}

// losePod deletes the pod of an ordinal. The first pod is not ready from then on.
func (s *set) losePod(ordinal int) {
	s.T.Helper()
	s.Pods().Patch(s.name+"-0", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status")
	s.waitStatus("a pod that is not ready",
		func(now appsv1.StatefulSetStatus) bool { return now.ReadyReplicas < now.Replicas })
	name := fmt.Sprintf("%s-%d", s.name, ordinal)
	s.Pods().Delete(name)
	s.Eventually("pod "+name+" is gone", func() bool { return s.Pods().Find(name) == nil })
}

// waitStatus waits until the StatefulSet controller has acted on the spec, and its status is the wanted one.
func (s *set) waitStatus(what string, want func(appsv1.StatefulSetStatus) bool) {
	s.T.Helper()
	s.Eventually("set "+s.name+" has "+what, func() bool {
		o := s.StatefulSets().Get(s.name)
		return o.Status.ObservedGeneration == o.Generation && want(o.Status)
	})
}

func (s *set) waitClaimGone(ordinal int) {
	s.T.Helper()
	s.Eventually("claim "+s.claimName(ordinal)+" is gone",
		func() bool { return s.Claims().Find(s.claimName(ordinal)) == nil })
}
