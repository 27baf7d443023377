//go:build unix

// Package pods has two acts in one cluster: pods whose node is cut off, and Deployments that share a claim. The nodes
// are real where this machine can run them, else they are played.
package pods

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/guard"
)

// Act returns the scenarios in which a node is cut off, as they are listed.
func Act() stage.Act {
	return stage.NewAct("Then pods whose node is cut off, with volume-guard and without.", podScenarios(&playedNodes{}))
}

// LockAct returns the scenarios in which two pods share a claim, as they are listed. Show plays them next.
func LockAct() stage.Act {
	return stage.NewAct("Then Deployments that share a claim, with a lock and without.", lockScenarios(&playedNodes{}))
}

// Show plays the scenarios of both acts in a cluster that ends with them.
func Show(ctx context.Context, p *stage.Printer) (err error) {
	env, err := setUp(ctx, p)
	defer func() { err = env.End(ctx, err) }()
	if err == nil {
		err = env.playPods(ctx)
		if stage.Judged(err) {
			err = errors.Join(err, env.playLocks(ctx))
		}
	}
	env.Explain(ctx, err)
	return err
}

func (env *environment) playPods(ctx context.Context) error {
	var all []stage.Scenario
	for _, sc := range podScenarios(env.nodes) {
		sc.Play = (&podPlay{environment: env, scenario: sc}).run
		all = append(all, sc.Scenario)
	}
	return env.Printer.Play(ctx, "What the API server and the volume say", all)
}

func (env *environment) playLocks(ctx context.Context) error {
	var all []stage.Scenario
	for _, sc := range lockScenarios(env.nodes) {
		sc.Play = (&lockPlay{environment: env, scenario: sc}).run
		all = append(all, sc.Scenario)
	}
	return env.Printer.Play(ctx, "What the API server, the volume and the plugin say", all)
}

// environment is the cluster of both acts.
type environment struct {
	*cluster.Cluster
	nodes podNodes
	// binary is volume-guard.
	binary string
	fences *client.Client
}

// setUp starts everything except volume-guard. With an error, the environment still holds the started parts.
func setUp(ctx context.Context, p *stage.Printer) (env *environment, err error) {
	env = &environment{Cluster: &cluster.Cluster{Printer: p}}
	p.Head("Getting ready for pods")
	t := p.LiveTimeline()
	t.Demo("compiling missing programs")
	if env.binary, err = guard.Build(ctx, env.Cluster); err != nil {
		return env, err
	}
	if err := env.BuildPlugin(ctx); err != nil {
		return env, err
	}
	options := controlplane.Options{Scheduler: true,
		// A node counts as unreachable sooner than after 50 seconds.
		ControllerManagerArgs: []string{"--node-monitor-grace-period=20s", "--node-monitor-period=1s"}}
	if err := env.StartPlane(ctx, t, controlplane.Newest, options); err != nil {
		return env, err
	}
	env.Maker = objects.Maker{Client: env.Client, Driver: podsDriver}
	building, cancel := context.WithTimeout(ctx, cluster.BuildPatience)
	defer cancel()
	real, why := startRealNodes(building, env.Cluster)
	switch {
	case real != nil:
		env.nodes = real
	case ctx.Err() != nil:
		return env, ctx.Err()
	default:
		t.Demo(why.Error())
		if env.nodes, err = startPlayedNodes(ctx, env.Cluster); err != nil {
			return env, err
		}
		if _, err := env.Maker.MakeDriver(ctx, nil); err != nil {
			return env, err
		}
	}
	t.Demo(env.nodes.describe())
	t.Demo("all up: API server " + env.Plane.URL())
	return env, nil
}

// podsDriver is the CSI driver on real nodes. Paths of sockets have its name, and are short.
const podsDriver = "pods.csi-reclaimer.io"

// guardHome is volume-guard's namespace: the policies exempt the account of the manifests and no other.
const guardHome = "csi-reclaimer"

// startPodSafety installs pod safety as an operator does, and starts volume-guard. It may fence nodes and lock claims,
// and does neither.
func (env *environment) startPodSafety(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	if err := env.makeNamespace(ctx, guardHome, nil); err != nil {
		return err
	}
	if err := manifests.Apply(ctx, env.Plane.Admin(), manifests.PodSafety(controlplane.Newest)...); err != nil {
		return err
	}
	_, err := rbac.GrantGuardController(ctx, env.Client, guardHome, guard.Name, "pod-safety", "node-fencing",
		"single-node")
	if err != nil {
		return err
	}
	account, err := env.Plane.ServiceAccount(ctx, guardHome, guard.Name)
	if err != nil {
		return err
	}
	kubeconfig, err := env.Plane.Kubeconfig(account)
	if err != nil {
		return err
	}
	env.Program, err = guard.Start(ctx, env.Cluster, env.binary, kubeconfig, "--controllers=pod-safety,-intree")
	return err
}

// restartGuard starts volume-guard again, with one controller more than it began with.
func (env *environment) restartGuard(ctx context.Context, controller string) error {
	if err := env.Program.Terminate(); err != nil {
		return err
	}
	if err := env.Program.Restart("--controllers=" + controller); err != nil {
		return err
	}
	return env.Program.WaitReady(ctx)
}

// makeSafeNamespace makes a namespace that enforces pod safety.
func (env *environment) makeSafeNamespace(ctx context.Context, namespace string) error {
	if err := env.makeNamespace(ctx, namespace, map[string]string{podsafety.NamespaceLabel: "enforce"}); err != nil {
		return err
	}
	return env.waitPolicies(ctx, namespace)
}

// waitPolicies waits until the API server has all policies in force in a namespace: the hold, and the refusal of force
// deletions.
func (env *environment) waitPolicies(ctx context.Context, namespace string) error {
	pods := env.Client.CoreV1().Pods(namespace)
	probe := func() *v1.Pod {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: env.nodes.pod("probe")}
		pod.Spec.NodeName = cluster.Node2
		return pod
	}
	err := cluster.Until(ctx, "pods to be held", func(ctx context.Context) (bool, error) {
		made, err := pods.Create(ctx, probe(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(made.Finalizers) == 1, err
	})
	if err != nil {
		return err
	}
	unheld := probe()
	unheld.Spec.Volumes = nil
	for i := range unheld.Spec.Containers {
		unheld.Spec.Containers[i].VolumeMounts = nil
	}
	if _, err := pods.Create(ctx, unheld, metav1.CreateOptions{}); err != nil {
		return err
	}
	err = cluster.Until(ctx, "force deletions to be refused", func(ctx context.Context) (bool, error) {
		return pods.Delete(ctx, unheld.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0),
			DryRun: []string{metav1.DryRunAll}}) != nil, nil
	})
	if err != nil {
		return err
	}
	return pods.Delete(ctx, unheld.Name, metav1.DeleteOptions{})
}

func (env *environment) makeNamespace(ctx context.Context, name string, labels map[string]string) error {
	_, err := env.Client.CoreV1().Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return cluster.Until(ctx, "the service account of namespace "+name, func(ctx context.Context) (bool, error) {
		_, err := env.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
}

// cordon has the scheduler send pods to the other of the two nodes.
func (env *environment) cordon(ctx context.Context, node string) error {
	for _, each := range []string{cluster.Node1, cluster.Node2} {
		_, err := env.Client.CoreV1().Nodes().Patch(ctx, each, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, each == node), metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

func (env *environment) makeStatefulSet(ctx context.Context, namespace string, spec v1.PodSpec) error {
	labels := map[string]string{"app": "db"}
	_, err := env.Client.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db",
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	return err
}
