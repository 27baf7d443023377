//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// podsEnvironment is the environment of the fourth act.
type podsEnvironment struct {
	*environment
	nodes podNodes
	// binary is volume-guard, plugin kubectl-reclaim.
	binary, plugin string
	fences         *client.Client
}

// setUpPods starts everything for the fourth act except volume-guard. With an error, the environment still holds the
// started parts.
func setUpPods(ctx context.Context, p *printer) (env *podsEnvironment, err error) {
	env = &podsEnvironment{environment: &environment{p: p}}
	p.head("Getting ready for pods")
	t := p.liveTimeline()
	t.demo("compiling missing programs")
	building, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	if env.binary, err = program.Build(building, guardName, p.out); err != nil {
		return env, err
	}
	if env.plugin, err = program.Build(building, pluginName, p.out); err != nil {
		return env, err
	}
	if env.dir, err = os.MkdirTemp("", "csi-reclaimer-demo-"); err != nil {
		return env, err
	}
	options := controlplane.Options{Scheduler: true,
		// A node counts as unreachable sooner than after 50 seconds.
		ControllerManagerArgs: []string{"--node-monitor-grace-period=20s", "--node-monitor-period=1s"}}
	if err := env.startCluster(ctx, t, kubernetesVersion, options); err != nil {
		return env, err
	}
	env.maker = objects.Maker{Client: env.client, Driver: podsDriver}
	real, why := startRealNodes(building, p, env.cluster, filepath.Join(env.dir, "driver"))
	switch {
	case real != nil:
		env.nodes = real
	case ctx.Err() != nil:
		return env, ctx.Err()
	default:
		t.demo(why.Error())
		if env.nodes, err = startPlayedNodes(ctx, env.cluster); err != nil {
			return env, err
		}
		if _, err := env.maker.MakeDriver(ctx, nil); err != nil {
			return env, err
		}
	}
	t.demo(env.nodes.describe())
	t.demo("all up: API server " + env.cluster.URL())
	return env, nil
}

// podsDriver is the CSI driver of the fourth act, on real nodes. Paths of sockets have its name, and are short.
const podsDriver = "pods.csi-reclaimer.io"

// tearDown ends everything, the nodes before the control plane.
func (env *podsEnvironment) tearDown() error {
	var err error
	if env.nodes != nil {
		if err = env.nodes.stop(); err != nil {
			err = fmt.Errorf("%w: %w", errUntidy, err)
		}
	}
	return errors.Join(err, env.environment.tearDown())
}

// guardHome is volume-guard's namespace: the policies exempt the account of the manifests and no other.
const guardHome = "csi-reclaimer"

// startPodSafety installs pod safety as an operator does, and starts volume-guard. It may fence nodes and lock claims,
// and does neither.
func (env *podsEnvironment) startPodSafety(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := env.makeNamespace(ctx, guardHome, nil); err != nil {
		return err
	}
	if err := manifests.Apply(ctx, env.cluster.Admin(), manifests.PodSafety(kubernetesVersion)...); err != nil {
		return err
	}
	_, err := rbac.GrantGuardController(ctx, env.client, guardHome, guardName, "pod-safety", "node-fencing",
		"single-node")
	if err != nil {
		return err
	}
	account, err := env.cluster.ServiceAccount(ctx, guardHome, guardName)
	if err != nil {
		return err
	}
	kubeconfig, err := env.cluster.Kubeconfig(account)
	if err != nil {
		return err
	}
	dir, err := env.folder(guardName)
	if err != nil {
		return err
	}
	if env.program, err = program.Start(ctx, program.Options{Name: guardName, Binary: env.binary, Dir: dir, Args: []string{
		"--kubeconfig=" + kubeconfig, "--leader-election=false", "--controllers=pod-safety,-intree",
	}}); err != nil {
		return err
	}
	return env.program.WaitReady(ctx)
}

// restartGuard starts volume-guard again, with one controller more than it began with.
func (env *podsEnvironment) restartGuard(ctx context.Context, controller string) error {
	if err := env.program.Terminate(); err != nil {
		return err
	}
	if err := env.program.Restart("--controllers=" + controller); err != nil {
		return err
	}
	return env.program.WaitReady(ctx)
}

// makeSafeNamespace makes a namespace that enforces pod safety.
func (env *podsEnvironment) makeSafeNamespace(ctx context.Context, namespace string) error {
	if err := env.makeNamespace(ctx, namespace, map[string]string{podsafety.NamespaceLabel: "enforce"}); err != nil {
		return err
	}
	return env.waitPolicies(ctx, namespace)
}

// waitPolicies waits until the API server has all policies in force in a namespace: the hold, and the refusal of force
// deletions.
func (env *podsEnvironment) waitPolicies(ctx context.Context, namespace string) error {
	pods := env.client.CoreV1().Pods(namespace)
	probe := func() *v1.Pod {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: env.nodes.pod("probe")}
		pod.Spec.NodeName = podNode2
		return pod
	}
	err := env.until(ctx, "pods to be held", func(ctx context.Context) (bool, error) {
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
	err = env.until(ctx, "force deletions to be refused", func(ctx context.Context) (bool, error) {
		return pods.Delete(ctx, unheld.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0),
			DryRun: []string{metav1.DryRunAll}}) != nil, nil
	})
	if err != nil {
		return err
	}
	return pods.Delete(ctx, unheld.Name, metav1.DeleteOptions{})
}

func (env *podsEnvironment) makeNamespace(ctx context.Context, name string, labels map[string]string) error {
	_, err := env.client.CoreV1().Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return env.until(ctx, "the service account of namespace "+name, func(ctx context.Context) (bool, error) {
		_, err := env.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
}

// cordon has the scheduler send pods to the other of the two nodes.
func (env *podsEnvironment) cordon(ctx context.Context, node string) error {
	for _, each := range []string{podNode1, podNode2} {
		_, err := env.client.CoreV1().Nodes().Patch(ctx, each, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, each == node), metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

func (env *podsEnvironment) makeStatefulSet(ctx context.Context, namespace string, spec v1.PodSpec) error {
	labels := map[string]string{"app": "db"}
	_, err := env.client.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db",
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	return err
}

// until waits for a condition.
func (env *podsEnvironment) until(ctx context.Context, what string, so func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*patience, true, so)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
