//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

func singleNodeFamilies() []family {
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
	const calls = "volume-guard's requests about pods, claims, nodes, PVs, StorageClasses and namespaces from the " +
		"CREATE to the end of the pod and its lock, from the audit log, of both loads"
	var figures []report.Figure
	for _, each := range []struct{ prefix, load string }{{lockedPods, locked}, {unlabelledPods, beside}} {
		figures = append(figures,
			report.Figure{Name: each.prefix + "scheduled_per_second", Unit: "pods/s", Load: each.load + many + rate},
			report.Figure{Name: each.prefix + "scheduled_at_once_ms_p50", Unit: "ms", Load: each.load + many + delay},
			report.Figure{Name: each.prefix + "scheduled_at_once_ms_p99", Unit: "ms", Load: each.load + many + delay},
			report.Figure{Name: each.prefix + "scheduled_ms_p50", Unit: "ms", Load: each.load + alone + delay},
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
	return []family{{name: "single_node", plane: scheduled, uncosted: true, run: measureSingleNode, figures: figures}}
}

// The prefixes of the figures with volume-guard, by kind of pod.
const (
	lockedPods     = "locked_"
	unlabelledPods = "unlabelled_"
)

// lockingControllers returns the controllers of volume-guard that single-node needs.
func lockingControllers() []string { return []string{"pod-safety", "single-node"} }

// locking is where pods with claims are created: with volume-guard and without.
type locking struct {
	*session
	// locked is a namespace whose claims are locked while volume-guard runs, and plain a namespace without labels.
	locked, plain string
	kubeconfig    string
	guard         *program.Program // nil while it is not there
}

func measureSingleNode(ctx context.Context, s *session) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Policies and nodes stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.closeEnvironment()) }()
	var background errgroup.Group
	defer func() { cancel(); err = errors.Join(err, background.Wait()) }()
	if err := s.env.playNodes(ctx, &background); err != nil {
		return err
	}
	l := &locking{session: s}
	if l.kubeconfig, err = s.env.installGuard(ctx, lockingControllers(), l.manifests()); err != nil {
		return err
	}
	defer func() {
		if l.guard != nil {
			err = errors.Join(err, l.guard.Stop())
		}
	}()
	for _, namespace := range []*string{&l.locked, &l.plain} {
		if *namespace, err = s.env.claimedNamespace(ctx, s.size(1000, 100)); err != nil {
			return err
		}
	}
	if err := l.label(ctx); err != nil {
		return err
	}
	return s.alternate(func(int) []func() error {
		return []func() error{
			func() error { return l.run(ctx, true, l.locked, report.Ours, lockedPods) },
			func() error { return l.run(ctx, true, l.plain, report.Ours, unlabelledPods) },
			func() error { return l.run(ctx, false, l.plain, report.Limit, lockedPods, unlabelledPods) },
		}
	})
}

func (l *locking) manifests() []string {
	v := l.env.cluster.Version()
	return slices.Concat(manifests.PodSafety(v), manifests.SingleNode(v))
}

// label asks for locks of all claims in a namespace.
func (l *locking) label(ctx context.Context) error {
	_, err := l.env.users[0].CoreV1().Namespaces().Patch(ctx, l.locked, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"enforce",%q:%q}}}`, podsafety.NamespaceLabel, singlenode.Label,
			singlenode.AllValue), metav1.PatchOptions{})
	return err
}

// claimedNamespace creates a namespace with so many claims, each bound to an NFS volume, and returns once they are.
func (env *environment) claimedNamespace(ctx context.Context, claims int) (string, error) {
	namespace, err := env.cluster.CreateNamespace(ctx, "claimed")
	if err != nil {
		return "", err
	}
	err = env.each(ctx, claims, func(ctx context.Context, client kubernetes.Interface, i int) error {
		pv := nfsVolume(namespace, podName(i))
		if _, err := client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i)},
			Spec: v1.PersistentVolumeClaimSpec{AccessModes: pv.Spec.AccessModes, StorageClassName: new(string),
				VolumeName: pv.Name, Resources: v1.VolumeResourceRequirements{Requests: pv.Spec.Capacity}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return "", err
	}
	return namespace, env.untilClaims(ctx, namespace, "bound", func(claim *v1.PersistentVolumeClaim) bool {
		return claim.Status.Phase == v1.ClaimBound
	})
}

func nfsVolume(namespace, claim string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{
				NFS: &v1.NFSVolumeSource{Server: "nfs.test", Path: "/" + claim}},
			ClaimRef: &v1.ObjectReference{Namespace: namespace, Name: claim},
		},
	}
}

// untilClaims waits until all claims of a namespace are as wanted.
func (env *environment) untilClaims(ctx context.Context, namespace, what string,
	wanted func(*v1.PersistentVolumeClaim) bool) error {
	for {
		list, err := env.users[0].CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		unwanted := slices.IndexFunc(list.Items, func(c v1.PersistentVolumeClaim) bool { return !wanted(&c) })
		if unwanted < 0 {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("wait until claim %s is %s: %w", list.Items[unwanted].Name, what, err)
		}
	}
}

// setGuard starts volume-guard and has the policies in force, or ends both.
func (l *locking) setGuard(ctx context.Context, want bool) (err error) {
	switch {
	case want == (l.guard != nil):
		return l.waitPolicies(ctx, want) // of the installation
	case !want:
		err = errors.Join(l.guard.Stop(), l.unbindPolicies(ctx))
		l.guard = nil
	default:
		if err = manifests.Apply(ctx, l.env.cluster.Admin(), l.manifests()...); err == nil {
			l.guard, err = startGuard(ctx, l.kubeconfig, lockingControllers())
		}
	}
	if err != nil {
		return err
	}
	return l.waitPolicies(ctx, want)
}

// unbindPolicies has no policy apply to anything.
func (l *locking) unbindPolicies(ctx context.Context) error {
	admission := l.env.users[0].AdmissionregistrationV1()
	return errors.Join(
		admission.ValidatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		admission.MutatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// waitPolicies returns once new pods are held and have the gate, or neither. In between, the API server refuses them.
func (l *locking) waitPolicies(ctx context.Context, want bool) error {
	for {
		probe, err := l.env.users[0].CoreV1().Pods(l.locked).Create(ctx, podForScheduler("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && want == (len(probe.Spec.SchedulingGates) > 0) && want == (len(probe.Finalizers) > 0) {
			return nil
		}
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait until the policies are in force: %w", err)
		}
	}
}

// podForScheduler returns a pod that uses the claim of its name.
func podForScheduler(name string) *v1.Pod {
	pod := podWithClaim(name, 0)
	pod.Spec.NodeName = ""
	return pod
}

// run creates and deletes pods in a namespace, and records how that went for the figures with these prefixes.
func (l *locking) run(ctx context.Context, guarded bool, namespace, column string, prefixes ...string) error {
	if err := l.setGuard(ctx, guarded); err != nil { // which may compile it: not in the time of the run
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	record := func(figure string, value float64) {
		for _, prefix := range prefixes {
			l.record(prefix+figure, column, value)
		}
	}
	began, many, single := time.Now(), l.size(1000, 100), l.size(100, 20)
	delays, took, err := l.env.schedulePods(ctx, namespace, many, connections)
	if err != nil {
		return err
	}
	record("scheduled_per_second", float64(many)/took.Seconds())
	record("scheduled_at_once_ms_p50", report.Percentile(delays, 50))
	record("scheduled_at_once_ms_p99", report.Percentile(delays, 99))
	if err := l.env.endPods(ctx, namespace, many); err != nil {
		return err
	}
	if delays, _, err = l.env.schedulePods(ctx, namespace, single, 1); err != nil {
		return err
	}
	record("scheduled_ms_p50", report.Percentile(delays, 50))
	record("scheduled_ms_p99", report.Percentile(delays, 99))
	if err := l.env.endPods(ctx, namespace, single); err != nil {
		return err
	}
	return l.recordCalls(ctx, prefixes[0], column, began, many+single)
}

// recordCalls records volume-guard's requests.
func (l *locking) recordCalls(ctx context.Context, prefix, column string, since time.Time, pods int) error {
	if column != report.Ours {
		return nil
	}
	c, err := l.env.guardCalls(ctx, since, "pods", "persistentvolumeclaims", "nodes", "persistentvolumes",
		"storageclasses", "namespaces")
	if err != nil {
		return err
	}
	each := func(calls int) float64 { return float64(calls) / float64(pods) }
	if prefix == unlabelledPods {
		l.record(prefix+"calls_per_pod", column, each(c.reads+c.writes+c.lists))
		return nil
	}
	l.record(prefix+"writes_per_pod", column, each(c.writes))
	l.record(prefix+"calls_per_pod", column, each(c.reads+c.writes))
	l.record(prefix+"lists_per_pod", column, each(c.lists))
	return nil
}

// schedulePods creates n pods from some connections. A single one waits for each pod before the next. It returns how
// long each pod took from its CREATE until it had a node, in ms, and how long all of them took.
func (env *environment) schedulePods(ctx context.Context, namespace string, n, connections int) (delays []float64,
	took time.Duration, err error) {
	seen, err := env.watchScheduled(ctx, namespace)
	if err != nil {
		return nil, 0, err
	}
	defer seen.stop()
	began, created := time.Now(), make([]time.Time, n)
	err = inParallel(ctx, connections, n, func(ctx context.Context, worker, i int) error {
		created[i] = time.Now()
		_, err := env.users[worker].CoreV1().Pods(namespace).Create(ctx, podForScheduler(podName(i)),
			metav1.CreateOptions{})
		if err != nil || connections > 1 {
			return err
		}
		_, err = seen.wait(ctx, podName(i))
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for i := range n {
		at, err := seen.wait(ctx, podName(i))
		if err != nil {
			return nil, 0, err
		}
		delays = append(delays, at.Sub(created[i]).Seconds()*1000)
		took = max(took, at.Sub(began))
	}
	return delays, took, nil
}

// endPods deletes n pods, and returns once they and the locks of their claims are gone.
func (env *environment) endPods(ctx context.Context, namespace string, n int) error {
	if _, err := env.deletePods(ctx, namespace, n); err != nil {
		return err
	}
	return env.untilClaims(ctx, namespace, "free", func(claim *v1.PersistentVolumeClaim) bool {
		return claim.Annotations[singlenode.LockAnnotation] == ""
	})
}
