//go:build unix

package growth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// countedGuard is a volume-guard whose requests are counted, in a cluster without a controller manager.
type countedGuard struct {
	*session.Session
	proxy *session.Proxy
	guard *program.Program
}

// startCounted installs and starts volume-guard with these controllers.
func startCounted(ctx context.Context, s *session.Session, controllers, files []string) (*countedGuard, error) {
	kubeconfig, err := s.Env.InstallGuard(ctx, controllers, files)
	if err != nil {
		return nil, err
	}
	g := &countedGuard{Session: s}
	if g.proxy, err = s.Env.StartProxy(kubeconfig, nil); err != nil {
		return nil, err
	}
	if g.guard, err = session.StartGuard(ctx, g.proxy.Kubeconfig, controllers); err != nil {
		g.proxy.Close()
		return nil, err
	}
	return g, nil
}

func (g *countedGuard) stop() error {
	err := g.guard.Stop()
	g.proxy.Close()
	return err
}

// rest waits until volume-guard rests, and returns its use of resources and its traffic since the last call.
func (g *countedGuard) rest(ctx context.Context) (subject.Usage, session.Traffic, error) {
	used, err := subject.AtRest(ctx, g.guard.PID())
	t, _ := g.proxy.Take()
	return used, t, err
}

// every returns all controllers of volume-guard for claims and pods, and their manifests.
func every(s *session.Session) (controllers, files []string) {
	v := s.Env.Cluster.Version()
	return []string{"pod-safety", "single-node", "statefulset-claims", "node-fencing", "pvc-protection", "pv-protection"},
		slices.Concat(manifests.PodSafety(v), manifests.SingleNode(v), manifests.NodeFencing())
}

// namespaceWith creates a namespace with labels and the service account of its pods.
func namespaceWith(ctx context.Context, env *session.Environment, prefix string, labels map[string]string) (string,
	error) {
	created, err := env.Users[0].CoreV1().Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-", Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	_, err = env.Users[0].CoreV1().ServiceAccounts(created.Name).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	return created.Name, err
}

// lockedNamespace creates a namespace that asks for locks of all claims, and returns once new pods have the gate.
func lockedNamespace(ctx context.Context, env *session.Environment) (string, error) {
	namespace, err := namespaceWith(ctx, env, "locked",
		map[string]string{podsafety.NamespaceLabel: "enforce", singlenode.Label: singlenode.AllValue})
	if err != nil {
		return "", err
	}
	return namespace, env.WaitPolicies(ctx, namespace, true)
}

// boundClaim creates a claim that is bound to an NFS volume.
func boundClaim(ctx context.Context, env *session.Environment, namespace, name string) error {
	claim, err := session.MakeNfsClaim(ctx, env.Users[0], namespace, name)
	if err != nil {
		return err
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: claim.Spec.AccessModes,
		Capacity: claim.Spec.Resources.Requests}
	_, err = env.Users[0].CoreV1().PersistentVolumeClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// padding makes a pod about as large as many real ones: 5 KB.
var padding = map[string]string{"bench.csi-reclaimer.io/padding": strings.Repeat("x", 3500)}

// podTemplate creates a pod with a claim, and returns its stored form.
func podTemplate(ctx context.Context, env *session.Environment, namespace string, pod *v1.Pod,
	phase v1.PodPhase) (*v1.Pod, error) {
	pods := env.Users[0].CoreV1().Pods(namespace)
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
func fillPods(ctx context.Context, env *session.Environment, template *v1.Pod, namespace string, first, n int,
	ownClaim bool) error {
	return fill.Copies(ctx, env.Fill, n-first, template, func(i int, pod *v1.Pod) string {
		pod.Namespace, pod.Name, pod.UID = namespace, filledPod(first+i), fill.UIDOf(first+i)
		if ownClaim {
			pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = pod.Name
		}
		return "/registry/pods/" + namespace + "/" + pod.Name
	})
}

func filledPod(i int) string { return fmt.Sprintf("filled-%06d", i) }

// untilGateGone returns once a pod has no gate.
func untilGateGone(ctx context.Context, env *session.Environment, namespace, name string) error {
	for {
		pod, err := env.Users[0].CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(pod.Spec.SchedulingGates) == 0 {
			return err
		}
		if err := session.Pause(ctx, 20*time.Millisecond); err != nil {
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

func growLonePod(ctx context.Context, s *session.Session, at measures) (err error) {
	g, err := startCounted(ctx, s, session.LockingControllers(), session.LockingManifests(s.Env))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	plain, err := namespaceWith(ctx, s.Env, "plain", nil)
	if err != nil {
		return err
	}
	template, err := podTemplate(ctx, s.Env, plain, session.PodWithClaim("template", 0), v1.PodRunning)
	if err != nil {
		return err
	}
	namespace, err := lockedNamespace(ctx, s.Env)
	if err != nil {
		return err
	}
	filled, created := 0, 0
	return at(func(n int) ([]float64, error) {
		if err := fillPods(ctx, s.Env, template, namespace, filled, n, true); err != nil {
			return nil, err
		}
		filled = n
		if _, _, err := g.rest(ctx); err != nil {
			return nil, err
		}
		for range lonePods {
			name := fmt.Sprintf("lone-%d", created)
			created++
			if err := boundClaim(ctx, s.Env, namespace, name); err != nil {
				return nil, err
			}
			if _, err := s.Env.Users[0].CoreV1().Pods(namespace).Create(ctx, session.PodForScheduler(name),
				metav1.CreateOptions{}); err != nil {
				return nil, err
			}
			if err := untilGateGone(ctx, s.Env, namespace, name); err != nil {
				return nil, err
			}
		}
		_, t, err := g.rest(ctx)
		return []float64{float64(t.Received["list pods"]) / lonePods / 1024}, err
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

func growHandover(ctx context.Context, s *session.Session, at measures) (err error) {
	g, err := startCounted(ctx, s, session.LockingControllers(), session.LockingManifests(s.Env))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	namespace, err := lockedNamespace(ctx, s.Env)
	if err != nil {
		return err
	}
	const claim = "data"
	if err := boundClaim(ctx, s.Env, namespace, claim); err != nil {
		return err
	}
	waits := session.PodForScheduler(claim)
	waits.Name = "first"
	if _, err := podTemplate(ctx, s.Env, namespace, waits, v1.PodPending); err != nil {
		return err
	}
	if err := untilGateGone(ctx, s.Env, namespace, waits.Name); err != nil {
		return err
	}
	waits = session.PodForScheduler(claim)
	waits.Name = "template"
	template, err := podTemplate(ctx, s.Env, namespace, waits, v1.PodPending)
	if err != nil {
		return err
	}
	filled := 0
	return at(func(n int) ([]float64, error) {
		if err := fillPods(ctx, s.Env, template, namespace, filled, n, false); err != nil {
			return nil, err
		}
		filled = n
		if _, _, err := g.rest(ctx); err != nil {
			return nil, err
		}
		for range handovers {
			if err := handOver(ctx, s.Env, namespace, claim); err != nil {
				return nil, err
			}
		}
		_, t, err := g.rest(ctx)
		return []float64{float64(t.Count()) / handovers, float64(t.Conflicts) / handovers}, err
	})
}

// handOver ends the pod that has the lock of a claim, and returns once another pod has lost its gate.
func handOver(ctx context.Context, env *session.Environment, namespace, claim string) error {
	holder, err := lockHolder(ctx, env, namespace, claim)
	if err != nil {
		return err
	}
	if err := env.Users[0].CoreV1().Pods(namespace).Delete(ctx, holder, metav1.DeleteOptions{}); err != nil {
		return err
	}
	next := ""
	err = session.Until(ctx, 20*time.Millisecond, "the lock of pod "+holder+" is handed over", func() (_ bool, err error) {
		next, err = lockHolder(ctx, env, namespace, claim)
		return next != "" && next != holder, err
	})
	if err != nil {
		return err
	}
	return untilGateGone(ctx, env, namespace, next)
}

// lockHolder returns the pod that has the lock of a claim, empty for none.
func lockHolder(ctx context.Context, env *session.Environment, namespace, claim string) (string, error) {
	o, err := env.Users[0].CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
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

func growWatch(ctx context.Context, s *session.Session, at measures) (err error) {
	controllers, files := every(s)
	g, err := startCounted(ctx, s, controllers, files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	namespace, err := namespaceWith(ctx, s.Env, "plain", nil)
	if err != nil {
		return err
	}
	template, err := podTemplate(ctx, s.Env, namespace, session.PodWithClaim("template", 0), v1.PodRunning)
	if err != nil {
		return err
	}
	if _, _, err := g.rest(ctx); err != nil {
		return err
	}
	filled, sent := 0, 0.0
	return at(func(n int) ([]float64, error) {
		if err := fillPods(ctx, s.Env, template, namespace, filled, n, true); err != nil {
			return nil, err
		}
		filled = n
		used, t, err := g.rest(ctx)
		sent += float64(t.Bytes()) / float64(template.Size())
		return []float64{sent, used.ResidentMiB}, err
	})
}
