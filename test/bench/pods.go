//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	volumeGuard = "volume-guard"
	// guardNamespace is where the shipped policies expect volume-guard.
	guardNamespace = "csi-reclaimer"
	// playedNodes is how many nodes the pods are on: a played node works on one pod at a time.
	playedNodes = 10
)

func podFamilies() []family {
	const load = "Pods with a claim on 10 played nodes, whose containers end at once, in a namespace that enforces pod " +
		"safety; volume-guard and the shipped policies. Limit: the same in a namespace without the label. "
	const many = load + "1,000 pods (--quick: 100) that 16 users' connections create and then delete at once: "
	const alone = load + "100 pods (--quick: 20), deleted one at a time: from the DELETE to the end of the object."
	const calls = load + "volume-guard's requests about pods and nodes, from the audit log, of both loads"
	return []family{{name: "pods", plane: audited, uncosted: true, run: measurePods, figures: []report.Figure{
		{Name: "pods_running_per_second", Unit: "pods/s", Load: many + "from the first CREATE to the last that is Running."},
		{Name: "pods_gone_per_second", Unit: "pods/s", Load: many + "from the first DELETE to the last that is gone."},
		{Name: "pod_gone_ms_p50", Unit: "ms", Load: alone},
		{Name: "pod_gone_ms_p99", Unit: "ms", Load: alone},
		{Name: "writes_per_pod", Unit: "writes", Goals: []report.Goal{report.AtMost(1)}, Load: calls + ": writes."},
		{Name: "calls_per_pod", Unit: "calls", Load: calls + ", reads included; lists and watches are not counted."},
	}}}
}

func measurePods(ctx context.Context, s *session) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Policies and nodes stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.closeEnvironment()) }()
	var background errgroup.Group
	defer func() { cancel(); err = errors.Join(err, background.Wait()) }()
	controllers := []string{"pod-safety"}
	kubeconfig, err := s.env.installGuard(ctx, controllers, manifests.PodSafety(s.env.cluster.Version()))
	if err != nil {
		return err
	}
	guard, err := startGuard(ctx, kubeconfig, controllers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Stop()) }()
	if err := s.env.playNodes(ctx, &background); err != nil {
		return err
	}
	namespaces := map[string]string{}
	for _, column := range []string{report.Ours, report.Limit} {
		if namespaces[column], err = s.env.podNamespace(ctx, column == report.Ours); err != nil {
			return err
		}
	}
	return s.alternate(func(int) (all []func() error) {
		for _, column := range []string{report.Ours, report.Limit} {
			all = append(all, func() error { return s.pods(ctx, column, namespaces[column]) })
		}
		return all
	})
}

// installGuard installs controllers of volume-guard as an operator does, and returns the kubeconfig of its account.
func (env *environment) installGuard(ctx context.Context, controllers, files []string) (kubeconfig string, err error) {
	client := env.users[0]
	_, err = client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guardNamespace}},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if err := manifests.Apply(ctx, env.cluster.Admin(), files...); err != nil {
		return "", err
	}
	if _, err := rbac.GrantGuardController(ctx, client, guardNamespace, volumeGuard, controllers...); err != nil {
		return "", err
	}
	account, err := env.cluster.ServiceAccount(ctx, guardNamespace, volumeGuard)
	if err != nil {
		return "", err
	}
	return env.cluster.Kubeconfig(account)
}

// startGuard starts volume-guard with these controllers.
func startGuard(ctx context.Context, kubeconfig string, controllers []string) (*program.Program, error) {
	guard, err := program.Start(ctx, program.Options{Name: volumeGuard, Args: []string{"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ",") + ",-intree", "--leader-election=false"}})
	if err != nil {
		return nil, err
	}
	if err := guard.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, guard.Stop())
	}
	return guard, nil
}

// playNodes plays all nodes until ctx ends, and returns once they are registered.
func (env *environment) playNodes(ctx context.Context, background *errgroup.Group) error {
	for i := range playedNodes {
		if err := env.playNode(ctx, background, fmt.Sprintf("node-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// playNode plays a node until ctx ends, and returns once it is registered.
func (env *environment) playNode(ctx context.Context, background *errgroup.Group, name string) error {
	user, err := env.cluster.ConfigFor(fakenode.User(name), fakenode.Group)
	if err != nil {
		return err
	}
	node, err := fakenode.New(user, name, fakenode.Config{})
	if err != nil {
		return err
	}
	background.Go(func() error { return node.Run(ctx) })
	select {
	case <-node.Registered():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// podNamespace creates a namespace, and returns once its new pods are held if they are to be.
func (env *environment) podNamespace(ctx context.Context, enforces bool) (string, error) {
	namespace, err := env.cluster.CreateNamespace(ctx, "pods")
	if err != nil || !enforces {
		return namespace, err
	}
	client := env.users[0]
	if _, err := client.CoreV1().Namespaces().Patch(ctx, namespace, "application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"enforce"}}}`, podsafety.NamespaceLabel),
		metav1.PatchOptions{}); err != nil {
		return "", err
	}
	for {
		probe, err := client.CoreV1().Pods(namespace).Create(ctx, podWithClaim("probe", 0),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || slices.Contains(probe.Finalizers, objects.RunningFinalizer) {
			return namespace, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait until new pods are held: %w", err)
		}
	}
}

func podWithClaim(name string, i int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeName:   fmt.Sprintf("node-%d", i%playedNodes),
		Containers: []v1.Container{{Name: "main", Image: "played"}},
		Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
	}}
}

// pods creates and deletes pods in a namespace, at once and one at a time, and records how that went.
func (s *session) pods(ctx context.Context, column, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began, many, single := time.Now(), s.size(1000, 100), s.size(100, 20)
	created, err := s.env.createPods(ctx, namespace, many)
	if err != nil {
		return err
	}
	took, err := s.env.deletePods(ctx, namespace, many)
	if err != nil {
		return err
	}
	s.record("pods_running_per_second", column, float64(many)/created.Seconds())
	s.record("pods_gone_per_second", column, float64(many)/took.Seconds())
	if _, err := s.env.createPods(ctx, namespace, single); err != nil {
		return err
	}
	delays := make([]float64, single)
	for i := range delays {
		took, err := s.env.follow(ctx, namespace, 1, isGone, func(ctx context.Context) error {
			return s.env.users[0].CoreV1().Pods(namespace).Delete(ctx, podName(i), metav1.DeleteOptions{})
		})
		if err != nil {
			return err
		}
		delays[i] = took.Seconds() * 1000
	}
	s.record("pod_gone_ms_p50", column, report.Percentile(delays, 50))
	s.record("pod_gone_ms_p99", column, report.Percentile(delays, 99))
	return s.recordPodCalls(ctx, column, began, many+single)
}

func podName(i int) string { return fmt.Sprintf("pod-%d", i) }

// createPods creates n pods at once, and returns how long it takes until all are Running.
func (env *environment) createPods(ctx context.Context, namespace string, n int) (time.Duration, error) {
	return env.follow(ctx, namespace, n, isRunning, func(ctx context.Context) error {
		return env.each(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
			_, err := client.CoreV1().Pods(namespace).Create(ctx, podWithClaim(podName(i), i), metav1.CreateOptions{})
			return err
		})
	})
}

// deletePods deletes n pods at once, and returns how long it takes until all are gone.
func (env *environment) deletePods(ctx context.Context, namespace string, n int) (time.Duration, error) {
	return env.follow(ctx, namespace, n, isGone, func(ctx context.Context) error {
		return env.each(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
			return client.CoreV1().Pods(namespace).Delete(ctx, podName(i), metav1.DeleteOptions{})
		})
	})
}

func isGone(event watch.Event, _ *v1.Pod) bool { return event.Type == watch.Deleted }

func isRunning(_ watch.Event, pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning }

// follow calls do, and returns how long it takes from then until events about n pods are as wanted.
func (env *environment) follow(ctx context.Context, namespace string, n int, wanted func(watch.Event, *v1.Pod) bool,
	do func(context.Context) error) (time.Duration, error) {
	return follow(ctx, env.users[0], namespace, n, wanted, do)
}

func follow(ctx context.Context, client kubernetes.Interface, namespace string, n int,
	wanted func(watch.Event, *v1.Pod) bool, do func(context.Context) error) (time.Duration, error) {
	events, err := watchPods(ctx, client, namespace)
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	began, doing := time.Now(), make(chan error, 1)
	go func() { doing <- do(ctx) }()
	seen := map[string]bool{}
	for len(seen) < n {
		event, open := <-events.ResultChan()
		if !open {
			return 0, errors.Join(fmt.Errorf("the watch of pods ended after %d of %d", len(seen), n), context.Cause(ctx))
		}
		if pod, ok := event.Object.(*v1.Pod); ok && wanted(event, pod) {
			seen[pod.Name] = true
		}
	}
	return time.Since(began), <-doing
}

// recordPodCalls records volume-guard's requests for pods and their nodes.
func (s *session) recordPodCalls(ctx context.Context, column string, since time.Time, pods int) error {
	c, err := s.env.guardCalls(ctx, since, "pods", "nodes")
	if err != nil {
		return err
	}
	s.record("writes_per_pod", column, float64(c.writes)/float64(pods))
	s.record("calls_per_pod", column, float64(c.reads+c.writes)/float64(pods))
	return nil
}

// guardCalls counts volume-guard's requests for some resources since a time, without watches.
func (env *environment) guardCalls(ctx context.Context, since time.Time, resources ...string) (c guardCalls,
	err error) {
	if err := env.auditComplete(ctx); err != nil {
		return c, err
	}
	user := "system:serviceaccount:" + guardNamespace + ":" + volumeGuard
	calls, err := env.cluster.AuditEventsOf(user, func(e controlplane.AuditEvent) bool {
		return e.Received.After(since) && slices.Contains(resources, e.Resource) && e.Verb != "watch"
	})
	for _, call := range calls {
		switch call.Verb {
		case "get":
			c.reads++
		case "list":
			c.lists++
		default:
			c.writes++
		}
	}
	return c, err
}

// guardCalls are numbers of calls.
type guardCalls struct{ reads, lists, writes int }
