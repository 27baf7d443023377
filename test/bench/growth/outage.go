//go:build unix

package growth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

// Every lostOf-th node is lost. The pods are in outageNamespaces.
const outageNodes, lostOf, outageNamespaces = 5_000, 3, 100

// phase is a part of an outage.
type phase struct {
	name, what string
	// begin causes the events of the phase, which ends when volume-guard rests.
	begin func(*outage, context.Context) error
}

func outagePhases() []phase {
	return []phase{
		{"start", "From the start of volume-guard until it rests.", (*outage).start},
		{"lost", "Every third node becomes unreachable, and its pods are deleted: until VolumeLocks name all their volumes " +
			"and volume-guard rests.", (*outage).lose},
		{"released", "An administrator taints the lost nodes as out of service: until their pods are gone and volume-guard " +
			"rests.", (*outage).release},
	}
}

// outageCosts are the costs of each phase.
var outageCosts = []struct{ name, unit, what string }{
	{"calls", "calls", "volume-guard's calls but those about Events and Leases; watches are not counted."},
	{"events", "calls", "Its writes of Events."},
	{"received_mib", "MiB", "All that the API server sends to volume-guard."},
	{"etcd_mib", "MiB", "All values that the API server writes to etcd, also for the users."},
	{"cpu_s", "s", "Processor time of volume-guard, user and system (Linux)."},
	{"apiserver_cpu_s", "s", "Processor time of the API server, also for the users."},
	{"peak_mib", "MiB", "VmHWM (Linux) of volume-guard so far."},
	{"rest_mib", "MiB", "VmRSS (Linux) of volume-guard at the end."},
}

// Outage simulates large clusters, and is measured only if it is asked for by name: an outage, and volume-guard's start
// beside twice as many pods.
func Outage() []session.Family {
	return []session.Family{outageFamily("outage", 10, outagePhases()), outageFamily("many_pods", 20, outagePhases()[:1])}
}

// outageFamily simulates a cluster with so many pods on each node.
func outageFamily(name string, podsPerNode int, phases []phase) session.Family {
	load := fmt.Sprintf("%d nodes, %d running, held pods of 5 KB with a claim each, %[2]d claims and PVs, written into "+
		"etcd (--quick: a tenth); volume-guard with all its controllers for claims and pods, and the shipped policies; no "+
		"controller manager. ", outageNodes, outageNodes*podsPerNode)
	f := session.Family{Name: name, Plane: session.Bare, ByHand: true, Uncosted: true}
	for _, phase := range phases {
		for _, c := range outageCosts {
			f.Figures = append(f.Figures, report.Figure{Name: name + "_" + phase.name + "_" + c.name, Unit: c.unit,
				Load: load + phase.what + " " + c.what})
		}
	}
	f.Run = func(ctx context.Context, s *session.Session) error {
		o := &outage{name: name, podsPerNode: podsPerNode, nodes: s.Size(outageNodes, outageNodes/10)}
		return o.measure(ctx, s, phases)
	}
	return f
}

// outage is the simulated cluster.
type outage struct {
	*countedGuard
	// name is the family's.
	name        string
	nodes       int
	podsPerNode int
	node        *v1.Node
	namespaces  []string
	before      consumed
}

// consumed are resources that were used up to a moment.
type consumed struct {
	guard, apiServer, etcd float64
}

func (o *outage) measure(ctx context.Context, s *session.Session, phases []phase) (err error) {
	// Policies and objects stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.CloseEnvironment()) }()
	controllers, files := every(s)
	kubeconfig, err := s.Env.InstallGuard(ctx, controllers, files)
	if err != nil {
		return err
	}
	if err := o.build(ctx, s); err != nil {
		return err
	}
	o.countedGuard = &countedGuard{Session: s}
	if o.before, err = o.consumed(ctx); err != nil {
		return err
	}
	if o.proxy, err = s.Env.StartProxy(kubeconfig, nil); err != nil {
		return err
	}
	defer o.proxy.Close()
	if o.guard, err = session.StartGuard(ctx, o.proxy.Kubeconfig, controllers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.guard.Stop()) }()
	for _, phase := range phases {
		if err := errors.Join(phase.begin(o, ctx), o.record(ctx, phase.name)); err != nil {
			return fmt.Errorf("%s: %w\n%s", phase.name, err, o.guard.LogTail(10))
		}
	}
	return nil
}

// start has nothing to do: volume-guard was started.
func (*outage) start(context.Context) error { return nil }

// build writes the cluster.
func (o *outage) build(ctx context.Context, s *session.Session) (err error) {
	env, pods := s.Env, o.nodes*o.podsPerNode
	s.Say("  fill the cluster with %d nodes and %d pods", o.nodes, pods)
	for range outageNamespaces {
		namespace, err := namespaceWith(ctx, env, "team", map[string]string{podsafety.NamespaceLabel: "enforce"})
		if err != nil {
			return err
		}
		o.namespaces = append(o.namespaces, namespace)
	}
	plain, err := namespaceWith(ctx, env, "plain", nil)
	if err != nil {
		return err
	}
	pod, err := podTemplate(ctx, env, plain, session.PodWithClaim("template", 0), v1.PodRunning)
	if err != nil {
		return err
	}
	if err := boundClaim(ctx, env, plain, "template"); err != nil {
		return err
	}
	claim, err := env.Users[0].CoreV1().PersistentVolumeClaims(plain).Get(ctx, "template", metav1.GetOptions{})
	if err != nil {
		return err
	}
	claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	if o.node, err = nodeTemplate(ctx, env); err != nil {
		return err
	}
	pv, err := pvTemplate(ctx, env)
	if err != nil {
		return err
	}
	return errors.Join(
		fill.Copies(ctx, env.Fill, pods, pv, func(i int, pv *v1.PersistentVolume) string {
			pv.Name, pv.Spec.CSI.VolumeHandle = fill.Name(i), fmt.Sprintf("vol-%016x", i)
			pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name = o.namespaceOf(i), filledPod(i)
			pv.Spec.ClaimRef.UID = fill.UIDOf(i)
			return "/registry/persistentvolumes/" + pv.Name
		}),
		o.writeNodes(ctx, env, func(int) bool { return true }, nil),
		fill.Copies(ctx, env.Fill, pods, claim, func(i int, claim *v1.PersistentVolumeClaim) string {
			claim.Namespace, claim.Name, claim.Spec.VolumeName = o.namespaceOf(i), filledPod(i), fill.Name(i)
			return "/registry/persistentvolumeclaims/" + claim.Namespace + "/" + claim.Name
		}),
		fill.Copies(ctx, env.Fill, pods, pod, func(i int, pod *v1.Pod) string {
			pod.Namespace, pod.Name, pod.Spec.NodeName = o.namespaceOf(i), filledPod(i), nodeName(i/o.podsPerNode)
			pod.Finalizers = []string{objects.RunningFinalizer}
			pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = pod.Name
			return "/registry/pods/" + pod.Namespace + "/" + pod.Name
		}))
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

func (o *outage) namespaceOf(pod int) string { return o.namespaces[pod%len(o.namespaces)] }

func isLost(node int) bool { return node%lostOf == 0 }

// lostPods returns the pods of the lost nodes.
func (o *outage) lostPods() (pods []int) {
	for i := range o.nodes * o.podsPerNode {
		if isLost(i / o.podsPerNode) {
			pods = append(pods, i)
		}
	}
	return pods
}

// nodeTemplate returns the stored form of a Ready node of 10 KB.
func nodeTemplate(ctx context.Context, env *session.Environment) (*v1.Node, error) {
	nodes := env.Users[0].CoreV1().Nodes()
	node, err := nodes.Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "template",
		Annotations: map[string]string{"bench.csi-reclaimer.io/padding": strings.Repeat("x", 9000)}}},
		metav1.CreateOptions{FieldManager: "kubelet"})
	if err != nil {
		return nil, err
	}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	node.Status.NodeInfo = v1.NodeSystemInfo{BootID: "boot", MachineID: "machine", SystemUUID: "system"}
	if node, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
		return nil, err
	}
	node.TypeMeta, node.Spec.Taints = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, nil
	return node, nil
}

// pvTemplate returns the stored form of a bound PV. It has the finalizer of Kubernetes, too.
func pvTemplate(ctx context.Context, env *session.Environment) (*v1.PersistentVolume, error) {
	pvs, pv := env.Users[0].CoreV1().PersistentVolumes(), fill.ProvisionedPV("template", "template", session.DriverName)
	pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team",
		Name: "template"}
	pv, err := pvs.Create(ctx, pv, metav1.CreateOptions{FieldManager: "csi-provisioner"})
	if err != nil {
		return nil, err
	}
	pv.Status.Phase = v1.VolumeBound
	if pv, err = pvs.UpdateStatus(ctx, pv, metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return nil, err
	}
	pv.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
	return pv, nil
}

// writeNodes writes the nodes that are wanted, after a change.
func (o *outage) writeNodes(ctx context.Context, env *session.Environment, wanted func(i int) bool,
	change func(*v1.Node)) error {
	var numbers []int
	for i := range o.nodes {
		if wanted(i) {
			numbers = append(numbers, i)
		}
	}
	return fill.Copies(ctx, env.Fill, len(numbers), o.node, func(i int, node *v1.Node) string {
		node.Name, node.UID = nodeName(numbers[i]), fill.UIDOf(numbers[i])
		if change != nil {
			change(node)
		}
		return "/registry/minions/" + node.Name
	})
}

func unreachable(node *v1.Node) {
	node.Status.Conditions[0].Status = v1.ConditionUnknown
	node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute})
}

// lose makes nodes unreachable, and deletes their pods, as Kubernetes does. It returns once VolumeLocks name all their
// volumes.
func (o *outage) lose(ctx context.Context) error {
	if err := o.writeNodes(ctx, o.Env, isLost, unreachable); err != nil {
		return err
	}
	pods := o.lostPods()
	err := o.Env.Each(ctx, len(pods), func(ctx context.Context, client kubernetes.Interface, i int) error {
		return client.CoreV1().Pods(o.namespaceOf(pods[i])).Delete(ctx, filledPod(pods[i]), metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(o.Env.Cluster.Admin())
	if err != nil {
		return err
	}
	locks := client.Resource(volumeLocks)
	return o.until(ctx, "VolumeLocks name the volumes", func() (int, error) {
		list, err := locks.List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		named := 0
		for _, lock := range list.Items {
			volumes, _, _ := unstructured.NestedMap(lock.Object, "spec", "volumes")
			named += len(volumes)
		}
		return len(pods) - named, nil
	})
}

var volumeLocks = schema.GroupVersionResource{Group: "csi-reclaimer.io", Version: "v1alpha1", Resource: "volumelocks"}

// release taints the lost nodes, and returns once their pods are gone.
func (o *outage) release(ctx context.Context) error {
	err := o.writeNodes(ctx, o.Env, isLost, func(node *v1.Node) {
		unreachable(node)
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown",
			Effect: v1.TaintEffectNoExecute})
	})
	if err != nil {
		return err
	}
	return o.until(ctx, "pods of lost nodes are gone", func() (left int, _ error) {
		for _, namespace := range o.namespaces {
			list, err := o.Env.Users[0].CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err
			}
			left += len(slices.DeleteFunc(list.Items, func(p v1.Pod) bool { return p.DeletionTimestamp == nil }))
		}
		return left, nil
	})
}

// until returns once none is left.
func (o *outage) until(ctx context.Context, what string, left func() (int, error)) error {
	for {
		n, err := left()
		if err != nil || n <= 0 {
			return err
		}
		o.Say("  until %s: %d are left", what, n)
		if err := session.Pause(ctx, 5*time.Second); err != nil {
			return fmt.Errorf("wait until %s: %w; %d are left", what, err, n)
		}
	}
}

// record waits until volume-guard rests, and records the costs of a phase.
func (o *outage) record(ctx context.Context, phase string) error {
	used, t, err := o.rest(ctx)
	if err != nil {
		return err
	}
	now, err := o.consumed(ctx)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	events := 0
	for kind, n := range t.Calls {
		if strings.HasSuffix(kind, " events") {
			events += n
		}
		o.Say("    %s: %d %s", phase, n, kind)
	}
	for i, value := range []float64{float64(t.Count()), float64(events),
		float64(t.Bytes()) / mib, (now.etcd - o.before.etcd) / mib, now.guard - o.before.guard,
		now.apiServer - o.before.apiServer, used.PeakMiB, used.ResidentMiB} {
		o.Record(o.name+"_"+phase+"_"+outageCosts[i].name, report.Ours, value)
	}
	o.before = now
	return nil
}

var putBytes = regexp.MustCompile(`(?m)^etcd_debugging_mvcc_total_put_size_in_bytes (\S+)$`)

// consumed reads the use of resources up to now. Values that the simulation writes into etcd itself do not count.
func (o *outage) consumed(ctx context.Context) (c consumed, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Env.Cluster.EtcdAddress()+"/metrics", nil)
	if err != nil {
		return c, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return c, fmt.Errorf("read the metrics of etcd: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		return c, fmt.Errorf("read the metrics of etcd: %w", err)
	}
	found := putBytes.FindSubmatch(metrics)
	if found == nil {
		return c, errors.New("read the metrics of etcd: no bytes of puts")
	}
	if c.etcd, err = strconv.ParseFloat(string(found[1]), 64); err != nil {
		return c, fmt.Errorf("read the metrics of etcd: %w", err)
	}
	c.etcd -= float64(o.Env.Fill.Written())
	server, err := o.Env.Used(nil)
	if err != nil || o.guard == nil {
		c.apiServer = server.ApiServer
		return c, err
	}
	own, err := subject.UsageOf(o.guard.PID())
	c.apiServer, c.guard = server.ApiServer, own.CPU
	return c, err
}
