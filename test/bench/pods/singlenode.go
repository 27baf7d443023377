//go:build unix

package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

func SingleNode() []session.Family {
	const load = "Pods with a claim of their own that is bound to an NFS volume, for 10 played nodes and a scheduler " +
		"whose client has no limit, "
	const locked = load + "in a namespace whose claims are all locked; volume-guard and the shipped policies. Limit: " +
		"the same without volume-guard and policies. "
	const beside = load + "in a namespace without labels, beside volume-guard, the shipped policies and a namespace " +
		"whose claims are all locked. Limit: the same without volume-guard and policies. "
	const many = "1,000 pods (--quick: 100) that 16 users' connections create at once"
	const alone = "100 pods (--quick: 20), created one at a time"
	const delay = ": from the CREATE to the event that shows the pod's node."
	const rate = ": from the first CREATE to the last that has a node."
	const cost = ": processor time of the API server for one, from the first CREATE to the last that has a node."
	const calls = "volume-guard's requests about pods, claims, nodes, PVs, StorageClasses and namespaces from the " +
		"CREATE to the end of the pod and its lock, from the audit log, of both loads"
	var figures []report.Figure
	for _, each := range []struct {
		prefix, load string
		rate, alone  []report.Goal
	}{
		{lockedPods, locked, []report.Goal{report.AtLeastOf(0.55, report.Limit)}, []report.Goal{report.AtMost(12)}},
		{unlabelledPods, beside, nil, nil},
	} {
		figures = append(figures,
			report.Figure{Name: each.prefix + "scheduled_per_second", Unit: "pods/s", Goals: each.rate,
				Load: each.load + many + rate},
			report.Figure{Name: each.prefix + "scheduled_apiserver_ms", Unit: "ms", Load: each.load + many + cost},
			report.Figure{Name: each.prefix + "scheduled_at_once_ms_p50", Unit: "ms", Load: each.load + many + delay},
			report.Figure{Name: each.prefix + "scheduled_at_once_ms_p99", Unit: "ms", Load: each.load + many + delay},
			report.Figure{Name: each.prefix + "scheduled_ms_p50", Unit: "ms", Goals: each.alone,
				Load: each.load + alone + delay},
			report.Figure{Name: each.prefix + "scheduled_ms_p99", Unit: "ms", Load: each.load + alone + delay})
	}
	figures = append(figures,
		report.Figure{Name: lockedPods + "writes_per_pod", Unit: "writes", Goals: []report.Goal{report.AtMost(4)},
			Load: locked + calls + ": writes, with that of the hold."},
		report.Figure{Name: lockedPods + "calls_per_pod", Unit: "calls",
			Load: locked + calls + ", reads included; watches and lists are not counted."},
		report.Figure{Name: lockedPods + "lists_per_pod", Unit: "lists", Load: locked + calls + ": lists."},
		report.Figure{Name: unlabelledPods + "calls_per_pod", Unit: "calls", Goals: []report.Goal{report.Exactly(0)},
			Load: beside + calls + ", lists included."})
	return []session.Family{{Name: "single_node", Plane: session.Scheduled, Uncosted: true, Run: measureSingleNode,
		Figures: figures}}
}

// The prefixes of the figures with volume-guard, by kind of pod.
const (
	lockedPods     = "locked_"
	unlabelledPods = "unlabelled_"
)

// locking is where pods with claims are created: with volume-guard and without.
type locking struct {
	*session.Session
	// locked is a namespace whose claims are locked while volume-guard runs, and plain a namespace without labels.
	locked, plain string
	kubeconfig    string
	guard         *program.Program // nil while it is not there
}

func measureSingleNode(ctx context.Context, s *session.Session) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Policies and nodes stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.CloseEnvironment()) }()
	var background errgroup.Group
	defer func() { cancel(); err = errors.Join(err, background.Wait()) }()
	if err := s.Env.PlayNodes(ctx, &background); err != nil {
		return err
	}
	l := &locking{Session: s}
	l.kubeconfig, err = s.Env.InstallGuard(ctx, session.LockingControllers(), session.LockingManifests(l.Env))
	if err != nil {
		return err
	}
	defer func() {
		if l.guard != nil {
			err = errors.Join(err, l.guard.Stop())
		}
	}()
	for _, namespace := range []*string{&l.locked, &l.plain} {
		if *namespace, err = claimedNamespace(ctx, s.Env, s.Size(1000, 100)); err != nil {
			return err
		}
	}
	if err := l.label(ctx); err != nil {
		return err
	}
	return s.Alternate(func(int) []func() error {
		return []func() error{
			func() error { return l.run(ctx, true, l.locked, report.Ours, lockedPods) },
			func() error { return l.run(ctx, true, l.plain, report.Ours, unlabelledPods) },
			func() error { return l.run(ctx, false, l.plain, report.Limit, lockedPods, unlabelledPods) },
		}
	})
}

// label asks for locks of all claims in a namespace.
func (l *locking) label(ctx context.Context) error {
	_, err := l.Env.Users[0].CoreV1().Namespaces().Patch(ctx, l.locked, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"enforce",%q:%q}}}`, podsafety.NamespaceLabel, singlenode.Label,
			singlenode.AllValue), metav1.PatchOptions{})
	return err
}

// claimedNamespace creates a namespace with so many claims, each bound to an NFS volume, and returns once they are.
func claimedNamespace(ctx context.Context, env *session.Environment, claims int) (string, error) {
	namespace, err := env.Cluster.CreateNamespace(ctx, "claimed")
	if err != nil {
		return "", err
	}
	err = env.Each(ctx, claims, func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := session.MakeNfsClaim(ctx, client, namespace, session.PodName(i))
		return err
	})
	if err != nil {
		return "", err
	}
	return namespace, untilClaims(ctx, env, namespace, "bound", func(claim *v1.PersistentVolumeClaim) bool {
		return claim.Status.Phase == v1.ClaimBound
	})
}

// untilClaims waits until all claims of a namespace are as wanted.
func untilClaims(ctx context.Context, env *session.Environment, namespace, what string,
	wanted func(*v1.PersistentVolumeClaim) bool) error {
	return session.Until(ctx, 100*time.Millisecond, "all claims are "+what, func() (bool, error) {
		list, err := env.Users[0].CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(list.Items,
			func(c v1.PersistentVolumeClaim) bool { return !wanted(&c) }), err
	})
}

// setGuard starts volume-guard and has the policies in force, or ends both.
func (l *locking) setGuard(ctx context.Context, want bool) (err error) {
	switch {
	case want == (l.guard != nil):
		return l.Env.WaitPolicies(ctx, l.locked, want) // of the installation
	case !want:
		err = errors.Join(l.guard.Stop(), l.unbindPolicies(ctx))
		l.guard = nil
	default:
		if err = manifests.Apply(ctx, l.Env.Cluster.Admin(), session.LockingManifests(l.Env)...); err == nil {
			l.guard, err = session.StartGuard(ctx, l.kubeconfig, session.LockingControllers())
		}
	}
	if err != nil {
		return err
	}
	return l.Env.WaitPolicies(ctx, l.locked, want)
}

// unbindPolicies has no policy apply to anything.
func (l *locking) unbindPolicies(ctx context.Context) error {
	admission := l.Env.Users[0].AdmissionregistrationV1()
	return errors.Join(
		admission.ValidatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		admission.MutatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// run creates and deletes pods in a namespace, and records how that went for the figures with these prefixes.
func (l *locking) run(ctx context.Context, guarded bool, namespace, column string, prefixes ...string) error {
	if err := l.setGuard(ctx, guarded); err != nil { // which may compile it: not in the time of the run
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	record := func(figure string, value float64) {
		for _, prefix := range prefixes {
			l.Record(prefix+figure, column, value)
		}
	}
	began, many, single := time.Now(), l.Size(1000, 100), l.Size(100, 20)
	var delays []float64
	var took time.Duration
	ms, err := l.Env.ApiServerMs(many, func() (err error) {
		delays, took, err = schedulePods(ctx, l.Env, namespace, many, session.Connections)
		return err
	})
	if err != nil {
		return err
	}
	record("scheduled_apiserver_ms", ms)
	record("scheduled_per_second", float64(many)/took.Seconds())
	record("scheduled_at_once_ms_p50", report.Percentile(delays, 50))
	record("scheduled_at_once_ms_p99", report.Percentile(delays, 99))
	if err := endPods(ctx, l.Env, namespace, many); err != nil {
		return err
	}
	if delays, _, err = schedulePods(ctx, l.Env, namespace, single, 1); err != nil {
		return err
	}
	record("scheduled_ms_p50", report.Percentile(delays, 50))
	record("scheduled_ms_p99", report.Percentile(delays, 99))
	if err := endPods(ctx, l.Env, namespace, single); err != nil {
		return err
	}
	return l.recordCalls(ctx, prefixes[0], column, began, many+single)
}

// recordCalls records volume-guard's requests.
func (l *locking) recordCalls(ctx context.Context, prefix, column string, since time.Time, pods int) error {
	if column != report.Ours {
		return nil
	}
	c, err := l.Env.GuardCalls(ctx, since, "pods", "persistentvolumeclaims", "nodes", "persistentvolumes",
		"storageclasses", "namespaces")
	if err != nil {
		return err
	}
	each := func(calls int) float64 { return float64(calls) / float64(pods) }
	if prefix == unlabelledPods {
		l.Record(prefix+"calls_per_pod", column, each(c.Reads+c.Writes+c.Lists))
		return nil
	}
	l.Record(prefix+"writes_per_pod", column, each(c.Writes))
	l.Record(prefix+"calls_per_pod", column, each(c.Reads+c.Writes))
	l.Record(prefix+"lists_per_pod", column, each(c.Lists))
	return nil
}

// schedulePods creates n pods from some connections. A single one waits for each pod before the next. It returns how
// long each pod took from its CREATE until it had a node, in ms, and how long all of them took.
func schedulePods(ctx context.Context, env *session.Environment, namespace string,
	n, connections int) (delays []float64, took time.Duration, err error) {
	seen, err := watchScheduled(ctx, env, namespace)
	if err != nil {
		return nil, 0, err
	}
	defer seen.stop()
	began, created := time.Now(), make([]time.Time, n)
	err = session.InParallel(ctx, connections, n, func(ctx context.Context, worker, i int) error {
		created[i] = time.Now()
		_, err := env.Users[worker].CoreV1().Pods(namespace).Create(ctx, session.PodForScheduler(session.PodName(i)),
			metav1.CreateOptions{})
		if err != nil || connections > 1 {
			return err
		}
		_, err = seen.wait(ctx, session.PodName(i))
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for i := range n {
		at, err := seen.wait(ctx, session.PodName(i))
		if err != nil {
			return nil, 0, err
		}
		delays = append(delays, at.Sub(created[i]).Seconds()*1000)
		took = max(took, at.Sub(began))
	}
	return delays, took, nil
}

// endPods deletes n pods, and returns once they and the locks of their claims are gone.
func endPods(ctx context.Context, env *session.Environment, namespace string, n int) error {
	if _, err := deletePods(ctx, env, namespace, n); err != nil {
		return err
	}
	return untilClaims(ctx, env, namespace, "free", func(claim *v1.PersistentVolumeClaim) bool {
		return claim.Annotations[singlenode.LockAnnotation] == ""
	})
}

// scheduledPods are the times at which a watch has shown that pods have a node.
type scheduledPods struct {
	events watch.Interface

	mu      sync.Mutex
	at      map[string]time.Time
	changed chan struct{} // closed and made anew with each pod
	ended   bool
}

// watchPods watches the pods of a namespace from now on.
func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (watch.Interface, error) {
	pods := client.CoreV1().Pods(namespace)
	events, err := objects.WatchFromNow(ctx, metav1.ListOptions{}, pods.List, pods.Watch)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return events, nil
}

// watchScheduled begins to watch the pods of a namespace from now on. stop ends that.
func watchScheduled(ctx context.Context, env *session.Environment, namespace string) (*scheduledPods, error) {
	events, err := watchPods(ctx, env.Users[0], namespace)
	if err != nil {
		return nil, err
	}
	s := &scheduledPods{events: events, at: map[string]time.Time{}, changed: make(chan struct{})}
	go s.follow()
	return s, nil
}

// follow sees all events until the watch ends.
func (s *scheduledPods) follow() {
	for event := range s.events.ResultChan() {
		pod, ok := event.Object.(*v1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			continue
		}
		s.mu.Lock()
		if _, seen := s.at[pod.Name]; !seen {
			s.at[pod.Name] = time.Now()
			s.notify()
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.notify()
}

func (s *scheduledPods) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait returns when a pod has got its node.
func (s *scheduledPods) wait(ctx context.Context, pod string) (time.Time, error) {
	for {
		s.mu.Lock()
		at, seen := s.at[pod]
		changed, ended := s.changed, s.ended
		s.mu.Unlock()
		switch {
		case seen:
			return at, nil
		case ended:
			return at, fmt.Errorf("the watch of pods ended before pod %s had a node", pod)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return at, fmt.Errorf("wait until pod %s has a node: %w", pod, context.Cause(ctx))
		}
	}
}

func (s *scheduledPods) stop() { s.events.Stop() }
