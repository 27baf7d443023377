//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// countedGuard is a volume-guard whose requests are counted, in a cluster without a controller manager.
type countedGuard struct {
	*session
	proxy *proxy
	guard *program.Program
}

// startCounted installs and starts volume-guard with these controllers.
func (s *session) startCounted(ctx context.Context, controllers, files []string) (*countedGuard, error) {
	kubeconfig, err := s.env.installGuard(ctx, controllers, files)
	if err != nil {
		return nil, err
	}
	g := &countedGuard{session: s}
	if g.proxy, err = s.env.startProxy(kubeconfig, nil); err != nil {
		return nil, err
	}
	if g.guard, err = startGuard(ctx, g.proxy.kubeconfig, controllers); err != nil {
		g.proxy.close()
		return nil, err
	}
	return g, nil
}

func (g *countedGuard) stop() error {
	err := g.guard.Stop()
	g.proxy.close()
	return err
}

// rest waits until volume-guard rests, and returns its use of resources and its traffic since the last call.
func (g *countedGuard) rest(ctx context.Context) (subject.Usage, traffic, error) {
	used, err := subject.AtRest(ctx, g.guard.PID())
	t, _ := g.proxy.take()
	return used, t, err
}

// every returns all controllers of volume-guard for claims and pods, and their manifests.
func (s *session) every() (controllers, files []string) {
	v := s.env.cluster.Version()
	return []string{"pod-safety", "single-node", "statefulset-claims", "node-fencing", "pvc-protection", "pv-protection"},
		slices.Concat(manifests.PodSafety(v), manifests.SingleNode(v), manifests.NodeFencing())
}

// namespaceWith creates a namespace with labels and the service account of its pods.
func (env *environment) namespaceWith(ctx context.Context, prefix string, labels map[string]string) (string, error) {
	created, err := env.users[0].CoreV1().Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-", Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	_, err = env.users[0].CoreV1().ServiceAccounts(created.Name).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	return created.Name, err
}

// lockedNamespace creates a namespace that asks for locks of all claims, and returns once new pods have the gate.
func (env *environment) lockedNamespace(ctx context.Context) (string, error) {
	namespace, err := env.namespaceWith(ctx, "locked",
		map[string]string{podsafety.NamespaceLabel: "enforce", singlenode.Label: singlenode.AllValue})
	if err != nil {
		return "", err
	}
	for {
		probe, err := env.users[0].CoreV1().Pods(namespace).Create(ctx, podForScheduler("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(probe.Spec.SchedulingGates) > 0 && len(probe.Finalizers) > 0 {
			return namespace, nil
		}
		if err != nil && !apierrors.IsForbidden(err) {
			return "", err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait until new pods have the gate: %w", err)
		}
	}
}

// boundClaim creates a claim that is bound to an NFS volume.
func (env *environment) boundClaim(ctx context.Context, namespace, name string) error {
	core, pv := env.users[0].CoreV1(), nfsVolume(namespace, name)
	if _, err := core.PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
		return err
	}
	claim, err := core.PersistentVolumeClaims(namespace).Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{AccessModes: pv.Spec.AccessModes, StorageClassName: new(string),
			VolumeName: pv.Name, Resources: v1.VolumeResourceRequirements{Requests: pv.Spec.Capacity}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: pv.Spec.AccessModes,
		Capacity: pv.Spec.Capacity}
	_, err = core.PersistentVolumeClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// padding makes a pod about as large as many real ones: 5 KB.
var padding = map[string]string{"bench.csi-reclaimer.io/padding": strings.Repeat("x", 3500)}

// podTemplate creates a pod with a claim, and returns its stored form.
func (env *environment) podTemplate(ctx context.Context, namespace string, pod *v1.Pod, phase v1.PodPhase) (*v1.Pod,
	error) {
	pods := env.users[0].CoreV1().Pods(namespace)
	pod.Annotations = padding
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return nil, err
	}
	if made.Status.Phase != phase {
		made.Status.Phase = phase
		made.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Image: "played", ImageID: "played",
			Ready: true, Started: ptr.To(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{
				StartedAt: metav1.Now()}}}}
		if made, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
			return nil, err
		}
	}
	made.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return made, nil
}

// fillPods writes copies of a pod into a namespace, from number first up to n, each with a claim of its own if it has
// one.
func (env *environment) fillPods(ctx context.Context, template *v1.Pod, namespace string, first, n int,
	ownClaim bool) error {
	return fill.Copies(ctx, env.fill, n-first, template, func(i int, pod *v1.Pod) string {
		pod.Namespace, pod.Name, pod.UID = namespace, filledPod(first+i), fill.UIDOf(first+i)
		if ownClaim {
			pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = pod.Name
		}
		return "/registry/pods/" + namespace + "/" + pod.Name
	})
}

func filledPod(i int) string { return fmt.Sprintf("filled-%06d", i) }

// untilGateGone returns once a pod has no gate.
func (env *environment) untilGateGone(ctx context.Context, namespace, name string) error {
	for {
		pod, err := env.users[0].CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(pod.Spec.SchedulingGates) == 0 {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait until pod %s has no gate: %w", name, err)
		}
	}
}

// lonePods is how many pods are created alone at each size, and handovers how often a lock is handed over.
const lonePods, handovers = 5, 10

func lonePodGrowth() growth {
	return growth{name: "lone_pod", sizes: []int{100, 1_000, 10_000}, run: growLonePod,
		load: "5 pods, created one at a time, beside %d running pods of 5 KB in their namespace, all of whose claims are " +
			"locked; volume-guard and the shipped policies.",
		costs: []cost{{"list_kib", "KiB", "Answers to volume-guard's lists of pods for one pod, until its gate is gone.",
			50}}}
}

func growLonePod(ctx context.Context, s *session, at measures) (err error) {
	g, err := s.startCounted(ctx, lockingControllers(), (&locking{session: s}).manifests())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	plain, err := s.env.namespaceWith(ctx, "plain", nil)
	if err != nil {
		return err
	}
	template, err := s.env.podTemplate(ctx, plain, podWithClaim("template", 0), v1.PodRunning)
	if err != nil {
		return err
	}
	namespace, err := s.env.lockedNamespace(ctx)
	if err != nil {
		return err
	}
	filled, created := 0, 0
	return at(func(n int) ([]float64, error) {
		if err := s.env.fillPods(ctx, template, namespace, filled, n, true); err != nil {
			return nil, err
		}
		filled = n
		if _, _, err := g.rest(ctx); err != nil {
			return nil, err
		}
		for range lonePods {
			name := fmt.Sprintf("lone-%d", created)
			created++
			if err := s.env.boundClaim(ctx, namespace, name); err != nil {
				return nil, err
			}
			if _, err := s.env.users[0].CoreV1().Pods(namespace).Create(ctx, podForScheduler(name),
				metav1.CreateOptions{}); err != nil {
				return nil, err
			}
			if err := s.env.untilGateGone(ctx, namespace, name); err != nil {
				return nil, err
			}
		}
		_, t, err := g.rest(ctx)
		return []float64{float64(t.received["list pods"]) / lonePods / 1024}, err
	})
}

func handoverGrowth() growth {
	return growth{name: "handover", sizes: []int{100, 1_000, 10_000}, run: growHandover,
		load: "10 times, the pod that has the lock of a claim ends, and one of %d pods that wait for it gets the lock and " +
			"loses its gate; volume-guard and the shipped policies.",
		costs: []cost{
			{"calls", "calls", "volume-guard's calls for one handover but those about Events and Leases; watches are not " +
				"counted. A page of a list is a call.", 3},
			{"conflicts", "conflicts", "Its calls that were answered 409, for one handover.", 0.1},
		}}
}

func growHandover(ctx context.Context, s *session, at measures) (err error) {
	g, err := s.startCounted(ctx, lockingControllers(), (&locking{session: s}).manifests())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	namespace, err := s.env.lockedNamespace(ctx)
	if err != nil {
		return err
	}
	const claim = "data"
	if err := s.env.boundClaim(ctx, namespace, claim); err != nil {
		return err
	}
	waits := podForScheduler(claim)
	waits.Name = "first"
	if _, err := s.env.podTemplate(ctx, namespace, waits, v1.PodPending); err != nil {
		return err
	}
	if err := s.env.untilGateGone(ctx, namespace, waits.Name); err != nil {
		return err
	}
	waits = podForScheduler(claim)
	waits.Name = "template"
	template, err := s.env.podTemplate(ctx, namespace, waits, v1.PodPending)
	if err != nil {
		return err
	}
	filled := 0
	return at(func(n int) ([]float64, error) {
		if err := s.env.fillPods(ctx, template, namespace, filled, n, false); err != nil {
			return nil, err
		}
		filled = n
		if _, _, err := g.rest(ctx); err != nil {
			return nil, err
		}
		for range handovers {
			if err := s.env.handOver(ctx, namespace, claim); err != nil {
				return nil, err
			}
		}
		_, t, err := g.rest(ctx)
		return []float64{float64(t.count()) / handovers, float64(t.conflicts) / handovers}, err
	})
}

// handOver ends the pod that has the lock of a claim, and returns once another pod has lost its gate.
func (env *environment) handOver(ctx context.Context, namespace, claim string) error {
	holder, err := env.lockHolder(ctx, namespace, claim)
	if err != nil {
		return err
	}
	if err := env.users[0].CoreV1().Pods(namespace).Delete(ctx, holder, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for {
		next, err := env.lockHolder(ctx, namespace, claim)
		switch {
		case err != nil:
			return err
		case next != "" && next != holder:
			return env.untilGateGone(ctx, namespace, next)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait until the lock of pod %s is handed over: %w", holder, err)
		}
	}
}

// lockHolder returns the pod that has the lock of a claim, empty for none.
func (env *environment) lockHolder(ctx context.Context, namespace, claim string) (string, error) {
	o, err := env.users[0].CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	_, pod, _ := strings.Cut(o.Annotations[singlenode.LockAnnotation], " ")
	return pod, nil
}

func watchGrowth() growth {
	return growth{name: "watch", sizes: []int{100, 1_000, 10_000}, run: growWatch,
		load: "%d running pods of 5 KB with a claim, in a namespace without labels; volume-guard with all its controllers " +
			"for claims and pods, and the shipped policies.",
		costs: []cost{
			{"pods", "pods", "All that the API server sends to volume-guard while they appear, in multiples of a pod.", 1100},
			{"mib", "MiB", "VmRSS (Linux) of volume-guard once it rests.", 1.5},
		}}
}

func growWatch(ctx context.Context, s *session, at measures) (err error) {
	controllers, files := s.every()
	g, err := s.startCounted(ctx, controllers, files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	namespace, err := s.env.namespaceWith(ctx, "plain", nil)
	if err != nil {
		return err
	}
	template, err := s.env.podTemplate(ctx, namespace, podWithClaim("template", 0), v1.PodRunning)
	if err != nil {
		return err
	}
	if _, _, err := g.rest(ctx); err != nil {
		return err
	}
	filled, sent := 0, 0.0
	return at(func(n int) ([]float64, error) {
		if err := s.env.fillPods(ctx, template, namespace, filled, n, true); err != nil {
			return nil, err
		}
		filled = n
		used, t, err := g.rest(ctx)
		sent += float64(t.bytes()) / float64(template.Size())
		return []float64{sent, used.ResidentMiB}, err
	})
}
