//go:build unix

// Package pods has the families about volume-guard: pods that are held, and pods whose claims are locked.
package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
)

func Held() []session.Family {
	const load = "Pods with a claim on 10 played nodes, whose containers end at once, in a namespace that enforces pod " +
		"safety; volume-guard and the shipped policies. Limit: the same in a namespace without the label. "
	const many = load + "1,000 pods (--quick: 100) that 16 users' connections create and then delete at once: "
	const alone = load + "100 pods (--quick: 20), deleted one at a time: from the DELETE to the end of the object."
	const calls = load + "volume-guard's requests about pods and nodes, from the audit log, of both loads"
	figures := []report.Figure{
		{Name: "pods_running_per_second", Unit: "pods/s", Load: many + "from the first CREATE to the last that is Running."},
		{Name: "pods_gone_per_second", Unit: "pods/s", Goals: []report.Goal{report.AtLeastOf(0.95, report.Limit)},
			Load: many + "from the first DELETE to the last that is gone."},
		{Name: "pods_gone_apiserver_ms", Unit: "ms",
			Load: many + "processor time of the API server for one, from the first DELETE to the last that is gone."},
		{Name: "pod_gone_ms_p50", Unit: "ms", Goals: []report.Goal{report.AtMostOf(1.1, report.Limit)}, Load: alone},
		{Name: "pod_gone_ms_p99", Unit: "ms", Load: alone},
		{Name: "writes_per_pod", Unit: "writes", Goals: []report.Goal{report.AtMost(1)}, Load: calls + ": writes."},
		{Name: "calls_per_pod", Unit: "calls", Load: calls + ", reads included; lists and watches are not counted."},
	}
	return []session.Family{{Name: "pods", Plane: session.Audited, Uncosted: true, Run: measurePods, Figures: figures}}
}

func measurePods(ctx context.Context, s *session.Session) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Policies and nodes stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.CloseEnvironment()) }()
	var background errgroup.Group
	defer func() { cancel(); err = errors.Join(err, background.Wait()) }()
	controllers := []string{"pod-safety"}
	kubeconfig, err := s.Env.InstallGuard(ctx, controllers, manifests.PodSafety(s.Env.Cluster.Version()))
	if err != nil {
		return err
	}
	guard, err := session.StartGuard(ctx, kubeconfig, controllers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Stop()) }()
	if err := s.Env.PlayNodes(ctx, &background); err != nil {
		return err
	}
	namespaces := map[string]string{}
	for _, column := range []string{report.Ours, report.Limit} {
		if namespaces[column], err = podNamespace(ctx, s.Env, column == report.Ours); err != nil {
			return err
		}
	}
	return s.Alternate(func(int) (all []func() error) {
		for _, column := range []string{report.Ours, report.Limit} {
			all = append(all, func() error { return podsIn(ctx, s, column, namespaces[column]) })
		}
		return all
	})
}

// podNamespace creates a namespace, and returns once its new pods are held if they are to be.
func podNamespace(ctx context.Context, env *session.Environment, enforces bool) (string, error) {
	namespace, err := env.Cluster.CreateNamespace(ctx, "pods")
	if err != nil || !enforces {
		return namespace, err
	}
	client := env.Users[0]
	if _, err := client.CoreV1().Namespaces().Patch(ctx, namespace, "application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"enforce"}}}`, podsafety.NamespaceLabel),
		metav1.PatchOptions{}); err != nil {
		return "", err
	}
	return namespace, session.Until(ctx, 50*time.Millisecond, "new pods are held", func() (bool, error) {
		probe, err := client.CoreV1().Pods(namespace).Create(ctx, session.PodWithClaim("probe", 0),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && slices.Contains(probe.Finalizers, objects.RunningFinalizer), err
	})
}

// podsIn creates and deletes pods in a namespace, at once and one at a time, and records how that went.
func podsIn(ctx context.Context, s *session.Session, column, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	began, many, single := time.Now(), s.Size(1000, 100), s.Size(100, 20)
	created, err := createPods(ctx, s.Env, namespace, many)
	if err != nil {
		return err
	}
	var took time.Duration
	ms, err := s.Env.ApiServerMs(many, func() (err error) {
		took, err = deletePods(ctx, s.Env, namespace, many)
		return err
	})
	if err != nil {
		return err
	}
	s.Record("pods_gone_apiserver_ms", column, ms)
	s.Record("pods_running_per_second", column, float64(many)/created.Seconds())
	s.Record("pods_gone_per_second", column, float64(many)/took.Seconds())
	if _, err := createPods(ctx, s.Env, namespace, single); err != nil {
		return err
	}
	delays := make([]float64, single)
	for i := range delays {
		took, err := follow(ctx, s.Env.Users[0], namespace, 1, isGone, func(ctx context.Context) error {
			return s.Env.Users[0].CoreV1().Pods(namespace).Delete(ctx, session.PodName(i), metav1.DeleteOptions{})
		})
		if err != nil {
			return err
		}
		delays[i] = took.Seconds() * 1000
	}
	s.Record("pod_gone_ms_p50", column, report.Percentile(delays, 50))
	s.Record("pod_gone_ms_p99", column, report.Percentile(delays, 99))
	return recordPodCalls(ctx, s, column, began, many+single)
}

// createPods creates n pods at once, and returns how long it takes until all are Running.
func createPods(ctx context.Context, env *session.Environment, namespace string, n int) (time.Duration, error) {
	return follow(ctx, env.Users[0], namespace, n, isRunning, func(ctx context.Context) error {
		return env.Each(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
			_, err := client.CoreV1().Pods(namespace).Create(ctx, session.PodWithClaim(session.PodName(i), i),
				metav1.CreateOptions{})
			return err
		})
	})
}

// deletePods deletes n pods at once, and returns how long it takes until all are gone.
func deletePods(ctx context.Context, env *session.Environment, namespace string, n int) (time.Duration, error) {
	return follow(ctx, env.Users[0], namespace, n, isGone, func(ctx context.Context) error {
		return env.Each(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
			return client.CoreV1().Pods(namespace).Delete(ctx, session.PodName(i), metav1.DeleteOptions{})
		})
	})
}

func isGone(event watch.Event, _ *v1.Pod) bool { return event.Type == watch.Deleted }

func isRunning(_ watch.Event, pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning }

// follow calls do, and returns how long it takes from then until events about n pods are as wanted.
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
func recordPodCalls(ctx context.Context, s *session.Session, column string, since time.Time, pods int) error {
	c, err := s.Env.GuardCalls(ctx, since, "pods", "nodes")
	if err != nil {
		return err
	}
	s.Record("writes_per_pod", column, float64(c.Writes)/float64(pods))
	s.Record("calls_per_pod", column, float64(c.Reads+c.Writes)/float64(pods))
	return nil
}
