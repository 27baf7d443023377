package pods

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

var (
	now, ago, node = explained.Now, explained.Ago, explained.Node
	errForbidden   = explained.ErrForbidden
)

// held is a StatefulSet's pod that runs on a Ready node. Every object is readable.
func held() Facts {
	pod := explained.Pod("shop", "db-0", "data-0")
	pod.UID, pod.Generation, pod.Finalizers = "u", 2, []string{objects.RunningFinalizer}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}
	pod.Spec.NodeName, pod.Spec.Containers = "n1", []v1.Container{{Name: "main"}}
	pod.Status = v1.PodStatus{Phase: v1.PodRunning,
		Conditions: []v1.PodCondition{{Type: v1.ContainersReady, ObservedGeneration: 2}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "main",
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-0"},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv-0",
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
	}
	f := Facts{
		Now: now(), Pod: pod, OnNode: OnNode{Node: explain.Found(node("n1", v1.ConditionTrue)),
			Lease: explain.Found(lease("n1", 5)), Fence: explain.Found[*v1alpha1.NodeFence](nil)},
		Namespace: explain.Found(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop",
			Labels: map[string]string{podsafety.NamespaceLabel: podsafety.EnforceValue}}}),
		Guards: explain.Found([]coordinationv1.Lease{*lease(explain.VolumeGuard, 1)}),
		Claims: map[string]explain.Read[*v1.PersistentVolumeClaim]{"data-0": explain.Found(claim)},
		Pods:   explain.Found([]explain.Pod{explain.PodOf(pod)}), Events: explain.Found[[]v1.Event](nil),
	}
	f.attach("csi-1", "n1")
	return f
}

func text(f Facts) string { return Explain(f).Wrapped(false, 0) }

// lease is a Lease that was last renewed this many seconds ago.
func lease(name string, seconds int) *coordinationv1.Lease {
	return explained.Lease(name, name+"-a_6f1c", time.Duration(seconds)*time.Second)
}

func (f *Facts) attach(name, to string) {
	f.Attachments = explain.Found(append(f.Attachments.Value, explained.Attachment(name, to, "pv-0", "")))
}

func (f *Facts) lock(value string) {
	f.Claims["data-0"].Value.Annotations = map[string]string{singlenode.LockAnnotation: value}
}

// terminate deletes the pod an hour ago, with a grace period of 30 seconds.
func (f *Facts) terminate() {
	f.Pod.DeletionTimestamp, f.Pod.DeletionGracePeriodSeconds = ptr.To(ago(time.Hour-30*time.Second)), ptr.To[int64](30)
	f.Pod.Generation = 3
}

// down deletes the pod, and makes its node unreachable.
func (f *Facts) down() {
	f.terminate()
	f.Node = explain.Found(node("n1", v1.ConditionUnknown))
}

func (f *Facts) taint(value string) {
	f.Node.Value.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: value, Effect: v1.TaintEffectNoExecute}}
}

// finish lets the kubelet report the end of the pod.
func (f *Facts) finish() {
	f.terminate()
	f.Pod.Status.Phase, f.Pod.Status.Conditions[0].ObservedGeneration = v1.PodSucceeded, 3
	f.Pod.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
}

// other is another pod of the namespace with the claim.
func other(change func(*explain.Pod)) explain.Pod {
	p := explain.Pod{Pod: objects.Pod{Namespace: "shop", Name: "other", UID: "o", Node: "n2", Claims: []string{"data-0"}}}
	change(&p)
	return p
}

func TestExplainPod(t *testing.T) {
	const force = "kubectl reclaim delete-pod db-0 -n shop --force"
	explained.Table(t, held, text, map[string]explained.Row[Facts]{
		"it runs": {func(*Facts) {}, []string{"Pod shop/db-0 is running (NotTerminating): The pod is held",
			"Owner        StatefulSet db", "Containers   main: running", "Pod safety   on", "Node         n1, Ready\n",
			"Heartbeat    5s ago by the node's clock (Lease kube-node-lease/n1)",
			"Claim        data-0 (ReadWriteOnce), PV pv-0, attached to node n1",
			"volume-guard volume-guard-a leads (Lease kube-system/volume-guard)",
			objects.RunningFinalizer + ": volume-guard removes it when there is evidence",
			"Force risks  Node n1 is Ready: the processes most likely run", "StatefulSet db creates a pod of the same name",
			"!No evidence", "!Waits for", "!You can"}},
		"its kubelet ends it": {func(f *Facts) { f.terminate() }, []string{
			"has been terminating for 60m and waits (EndOverdue)", "grace period ended 59m ago",
			"Kubelet      has not reported since the deletion (generation 2 of 3)",
			"Waits for    its kubelet on node n1 to end its processes",
			"No evidence  Finished: The phase of the pod is neither", "NodeGone: The Node exists", "!--force"}},
		"its grace has just begun": {func(f *Facts) {
			f.terminate()
			f.Pod.DeletionTimestamp = ptr.To(ago(-20 * time.Second))
		}, []string{"has been terminating for 10s", "grace period ends in 20s", "(ProcessesMayRun)",
			"Wait until the kubelet has ended", "!--force"}},
		"its node is cut off": {func(f *Facts) { f.down() }, []string{"and waits (NodeUnreachable)",
			"n1, NotReady for 10m (Ready is Unknown: Kubelet stopped posting node status)",
			"Waits for    node n1 to return, or evidence", "nothing shows whether the processes run there",
			"A replacement can write to the volumes while the processes do, which destroys data: data-0",
			"Bring node n1 back",
			"kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
			"may be deleted: kubectl reclaim explain node/n1", "!kubectl delete node", force}},
		"it was not deleted, and its node is cut off": {func(f *Facts) {
			f.Node = explain.Found(node("n1", v1.ConditionUnknown))
		}, []string{"is running, and its node n1 is down (NotTerminating)", "Bring node n1 back", "!Waits for"}},
		"its node is tainted and down": {func(f *Facts) { f.down(); f.taint("nodeshutdown") }, []string{
			"(OutOfService)", "Taints       node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
			"Waits for    volume-guard to release it", "!Force risks", "!--force"}},
		"its node is tainted and Ready": {func(f *Facts) { f.terminate(); f.taint("x") }, []string{
			"(OutOfServiceNodeReady)", "kubectl taint nodes n1 node.kubernetes.io/out-of-service-", "shut it down",
			"!delete-pod db-0 -n shop --force"}},
		"its node was deleted": {func(f *Facts) { f.down(); explained.Remove(&f.Node) }, []string{
			"(NodeRecentlyGone)", "n1, gone: no Node has this name", "Waits for    no sign of the kubelet of node n1",
			"Wait: the pod is released when nothing", "!kubectl delete node"}},
		"its node was deleted while it ended": {func(f *Facts) {
			f.down()
			f.Node, f.Pod.Status.Conditions[0].ObservedGeneration = explain.Found[*v1.Node](nil), 3
		}, []string{"(NodeGoneDuringEnd)", "Waits for    its kubelet on node n1, which was deleted, to report its end",
			"restart its kubelet", "was ending the pod", force, "!kubectl delete node"}},
		"its node was cut off while it ended": {func(f *Facts) {
			f.down()
			f.Pod.Status.Conditions[0].ObservedGeneration = 3
		}, []string{"(NodeUnreachable)", "Bring node n1 back", force, "!kubectl delete node"}},
		"its node may not be read": {func(f *Facts) { f.down(); explained.Forbid(&f.Node) }, []string{
			"(APIReadFailed)", "Node n1: forbidden. So it is not known whether it is Ready", "not readable here",
			"The state of node n1 is not known", "Waits for    not known"}},
		"its node is fenced, and may not be read": {func(f *Facts) {
			f.down()
			f.Fence = explain.Found(fenced(v1alpha1.CoversUntilUnfenced))
			explained.Forbid(&f.Node)
		}, []string{"(APIReadFailed)", "The state of node n1 is not known", "NodeFenced: The Node could not be read"}},
		"it has finished": {func(f *Facts) { f.finish(); f.Pod.DeletionGracePeriodSeconds = ptr.To[int64](0) }, []string{
			"and waits (WaitsForUnmount)", "without a grace period", "Kubelet      has seen the deletion (generation 3 of 3)",
			"none was running", "The processes have ended, but the volumes may still be mounted on node n1"}},
		"its kubelet has reported nothing": {func(f *Facts) { f.down(); f.Pod.Status.ContainerStatuses = nil }, []string{
			"Containers   no kubelet has reported on them"}},
		"its end is not confirmed": {func(f *Facts) { f.terminate(); f.Pod.Status.Phase = v1.PodFailed }, []string{
			"(EndNotReported)", "Waits for    its kubelet on node n1 to confirm the end", "the log of the kubelet on node n1"}},
		"it was never bound": {func(f *Facts) { f.terminate(); f.Pod.Spec.NodeName = "" }, []string{
			"(NeverBound)", "none: the pod was never bound", "!Force risks"}},
		"it is confirmed": {func(f *Facts) {
			f.down()
			f.Pod.Annotations = map[string]string{ConfirmAnnotation: "u"}
		}, []string{"(Confirmed)", "Confirmed    by the annotation", "Force risks  Node n1 is not Ready"}},
		"it is confirmed, and its grace runs": {func(f *Facts) {
			f.down()
			f.Pod.DeletionTimestamp = ptr.To(ago(-20 * time.Second))
			f.Pod.Annotations = map[string]string{ConfirmAnnotation: "u"}
		}, []string{"(GracePeriodRunning)", "Waits for    the end of its grace period, 03:04:25Z",
			"You can      To end it now: kubectl delete pod db-0 -n shop --force",
			"kubectl annotate pod db-0 -n shop " + ConfirmAnnotation + "-"}},
		"another pod is confirmed": {func(f *Facts) {
			f.terminate()
			f.Pod.Annotations = map[string]string{ConfirmAnnotation: "x"}
		}, []string{"(ConfirmationMismatch)", "no: the annotation", "evidence: the confirmation is for another pod"}},
		"another pod writes to its claim": {func(f *Facts) {
			f.down()
			f.Pods.Value = append(f.Pods.Value, other(func(*explain.Pod) {}),
				other(func(p *explain.Pod) { p.Name, p.Phase, p.Final = "ended", v1.PodSucceeded, true }),
				other(func(p *explain.Pod) { p.Name, p.Node = "waiting", "" }),
				other(func(p *explain.Pod) { p.Name, p.Node, p.Gated = "gated", "", true }),
				other(func(p *explain.Pod) { p.Name, p.Claims = "apart", []string{"x"} }))
		}, []string{"Pod other uses claim data-0 too, and is on node n2.",
			"Pod gated uses claim data-0 too, and may be scheduled once this pod is gone.",
			"Pod waiting uses claim data-0 too, and waits for a node.", "!Pod ended", "!Pod apart", "!Pod db-0 uses"}},
		"it has the lock of its claim": {func(f *Facts) { f.lock("u db-0") }, []string{", locked by this pod\n"}},
		"another has the lock":         {func(f *Facts) { f.lock("x other") }, []string{", locked by pod other\n"}},
		"the lock is damaged":          {func(f *Facts) { f.lock("x") }, []string{", with a lock that names no pod\n"}},
		"its volume is attached elsewhere": {func(f *Facts) { f.down(); f.attach("csi-2", "n2") }, []string{
			"attached to node n1, n2", "The volume of claim data-0 is attached to node n2 too (VolumeAttachment csi-2).",
			"!attached to node n1 too"}},
		"its volume is attached nowhere": {func(f *Facts) {
			f.down()
			explained.Clear(&f.Attachments)
		}, []string{"PV pv-0, no VolumeAttachment",
			"No VolumeAttachment keeps another node from the volume of claim data-0"}},
		"its volume is shared": {func(f *Facts) {
			f.down()
			f.Claims["data-0"].Value.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
			explained.Clear(&f.Attachments)
		}, []string{"data-0 (ReadWriteMany)", "!No VolumeAttachment keeps"}},
		"its claim is gone": {func(f *Facts) { f.Claims["data-0"] = explain.Found[*v1.PersistentVolumeClaim](nil) },
			[]string{"Claim        data-0, gone"}},
		"nothing but the pod may be read": {func(f *Facts) {
			f.down()
			*f = Facts{Now: f.Now, Pod: f.Pod, OnNode: OnNode{Node: explain.Failed[*v1.Node](errForbidden),
				Lease: explain.Failed[*coordinationv1.Lease](errForbidden)},
				Namespace: explain.Failed[*v1.Namespace](errForbidden), Pods: explain.Failed[[]explain.Pod](errForbidden),
				Guards:      explain.Failed[[]coordinationv1.Lease](errForbidden),
				Attachments: explain.Failed[[]storagev1.VolumeAttachment](errForbidden),
				Events:      explain.Failed[[]v1.Event](errForbidden),
				Claims: map[string]explain.Read[*v1.PersistentVolumeClaim]{
					"data-0": explain.Failed[*v1.PersistentVolumeClaim](errForbidden)}}
		}, []string{"(APIReadFailed)", "data-0, not readable here", "Namespace shop: forbidden", "Leases: forbidden",
			"VolumeAttachments: forbidden", "Pods: forbidden", "Claim data-0: forbidden", "Events: forbidden",
			"!no replica", "!Pod safety"}},
		"volume-guard is away": {func(f *Facts) {
			f.down()
			f.taint("nodeshutdown")
			f.Guards = explain.Found([]coordinationv1.Lease{*lease(explain.VolumeGuard, 60)})
		}, []string{"This needs volume-guard to run: by this machine's clock, no replica holds its Lease (none does with " +
			"--leader-election=false).", "=false); volume-guard-a renewed it 60s ago: nothing is released",
			"Start volume-guard"}},
		"volume-guard is away for long": {func(f *Facts) {
			f.Guards = explain.Found([]coordinationv1.Lease{*lease(explain.VolumeGuard, 600)})
		}, []string{"no replica holds its Lease (none does with --leader-election=false): nothing is released"}},
		"it is not held": {func(f *Facts) { f.down(); f.Pod.Finalizers = nil }, []string{
			"has been terminating for 60m, and waits for node n1 to return. volume-guard does not hold it.",
			"Force risks  Node n1 is not Ready", "!No evidence"}},
		"another finalizer keeps it": {func(f *Facts) {
			f.finish()
			f.Pod.DeletionGracePeriodSeconds = ptr.To[int64](0)
			f.Pod.Finalizers = []string{"example.com/keep", jobTracking}
		}, []string{"and waits for finalizer example.com/keep, " + jobTracking, "example.com/keep: its owner is unknown",
			"kube-controller-manager (job controller) removes it when it has counted the pod",
			"Find out who removes finalizer example.com/keep", "!Find out who removes finalizer batch"}},
		"the namespace does not ask": {func(f *Facts) { f.Namespace.Value.Labels = nil }, []string{
			"Pod safety   off in this namespace"}},
		"the namespace warns": {func(f *Facts) {
			f.Namespace.Value.Labels[podsafety.NamespaceLabel] = podsafety.WarnValue
		}, []string{"warnings only"}},
	})
}

// The decision has to be the engine's own.
func TestExplainDecidesAsVolumeGuard(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"running": func(*Facts) {}, "terminating": func(f *Facts) { f.terminate() }, "down": func(f *Facts) { f.down() },
		"finished": func(f *Facts) { f.finish() }, "tainted": func(f *Facts) { f.down(); f.taint("x") },
		"own taint": func(f *Facts) { f.down(); f.taint(objects.OwnTaintValue) },
		"no node":   func(f *Facts) { f.down(); explained.Remove(&f.Node) },
		"no lease": func(f *Facts) {
			f.down()
			f.Node, f.Lease = explain.Found[*v1.Node](nil), explain.Found[*coordinationv1.Lease](nil)
		},
	} {
		f := held()
		change(&f)
		want := podsafety.Decide(f.hold(), f.Now)
		if d := Explain(f).Decision; d.Action != want.Action.String() || d.Reason != string(want.Reason) {
			t.Errorf("%s: %s because %s, want %s because %s", name, d.Action, d.Reason, want.Action, want.Reason)
		}
	}
}

func TestForceDeletionRefused(t *testing.T) {
	for sentence, c := range map[string]struct {
		namespace explain.Read[*v1.Namespace]
		want      bool
	}{
		"it asks for that":       {held().Namespace, true},
		"it asks for nothing":    {explain.Found(&v1.Namespace{}), false},
		"it could not be read":   {explain.Failed[*v1.Namespace](errForbidden), true},
		"it was not read at all": {explain.Read[*v1.Namespace]{}, true},
	} {
		if got := (Facts{Namespace: c.namespace}).ForceDeletionRefused(); got != c.want {
			t.Errorf("%s: %v", sentence, got)
		}
	}
}

// listed returns the facts about these pods, on the Ready node n1 and the unreachable node n2.
func listed(pods ...explain.Pod) ListFacts {
	return ListFacts{Now: now(), Pods: explain.Found(pods), Nodes: explain.Found(map[string]*v1.Node{
		"n1": node("n1", v1.ConditionTrue), "n2": node("n2", v1.ConditionUnknown)}),
		Fences: explain.Found(map[string]*v1alpha1.NodeFence{})}
}

func pod(name, node string, change func(*explain.Pod)) explain.Pod {
	p := explain.Pod{Pod: objects.Pod{Namespace: "shop", Name: name, UID: types.UID(name), Node: node,
		Claims: []string{"b", "a"}},
		Phase: v1.PodRunning}
	change(&p)
	return p
}

func TestListOf(t *testing.T) {
	isHeld := func(p *explain.Pod) { p.Held = true }
	terminating := func(p *explain.Pod) { p.Terminating, p.TerminatingSince = true, now().Add(-time.Hour) }
	both := func(p *explain.Pod) { isHeld(p); terminating(p) }
	nothing := func(*explain.Pod) {}
	for sentence, c := range map[string]struct {
		pod     explain.Pod
		running bool
		want    string // status, since, reason, waits for
	}{
		"runs":                    {pod("p", "n1", nothing), false, ""},
		"runs, all are asked for": {pod("p", "n1", nothing), true, ""},
		"held":                    {pod("p", "n1", isHeld), false, ""},
		"held, all are asked for": {pod("p", "n1", isHeld), true, "Running|0001-01-01|NotTerminating|"},
		"terminating":             {pod("p", "n1", terminating), false, ""},
		"terminating and held": {pod("p", "n1", both), false,
			"Terminating|02:04|ProcessesMayRun|its kubelet on node n1 to end its processes"},
		"on a node that is down": {pod("p", "n2", nothing), false, "NodeDown|02:54||"},
		"terminating on a node that is down": {pod("p", "n2", terminating), false,
			"Terminating,NodeDown|02:54||node n2 to return"},
		"terminating and held on a node that is down": {pod("p", "n2", both), false,
			"Terminating,NodeDown|02:54|NodeUnreachable|node n2 to return, or evidence that its processes cannot run"},
		"held on a node that is down": {pod("p", "n2", isHeld), false, "NodeDown|02:54|NotTerminating|"},
		"ended, its node is down": {pod("p", "n2", func(p *explain.Pod) { p.Phase, p.Final = v1.PodSucceeded, true }),
			false, ""},
		"on no node":                 {pod("p", "", nothing), false, ""},
		"on a node that was deleted": {pod("p", "n3", nothing), false, "NodeDown|0001-01-01||"},
		"terminating, never bound": {pod("p", "", both), false,
			"Terminating|02:04|NeverBound|volume-guard to release it"},
	} {
		var got string
		l := ListOf(listed(c.pod), c.running)
		for _, row := range l.Pods {
			since := row.Since().Format("15:04")
			if row.Since().IsZero() {
				since = "0001-01-01"
			}
			got += strings.Join([]string{row.Status, since, row.Reason, row.WaitsFor}, "|")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}

func TestListOrderAndCounts(t *testing.T) {
	f := listed(pod("b", "n2", func(*explain.Pod) {}), pod("a", "n2", func(*explain.Pod) {}),
		pod("c", "n2", func(p *explain.Pod) { p.Namespace = "a-shop" }), pod("d", "n1",
			func(p *explain.Pod) { p.Held = true }))
	l := ListOf(f, false)
	var names []string
	for _, row := range l.Pods {
		names = append(names, row.Namespace+"/"+row.Name)
	}
	if !slices.Equal(names, []string{"a-shop/c", "shop/a", "shop/b"}) || l.HeldRunning != 1 ||
		!slices.Equal(l.Pods[0].Claims, []string{"a", "b"}) {
		t.Errorf("%q, %+v", names, l)
	}
	if l := ListOf(ListFacts{}, false); l.Pods == nil {
		t.Error("no pods are null in JSON")
	}
}

// The status NodeDown needs a node that was read.
func TestListWithUnreadNodes(t *testing.T) {
	f := listed(pod("a", "n2", func(*explain.Pod) {}), pod("b", "n2", func(p *explain.Pod) {
		p.Held,
			p.Terminating = true, true
	}))
	explained.Forbid(&f.Nodes)
	l := ListOf(f, false)
	if len(l.Pods) != 1 || l.Pods[0].Status != "Terminating" || l.Pods[0].Reason != "APIReadFailed" ||
		!strings.HasPrefix(l.Pods[0].WaitsFor, "not known") || len(l.Unread) != 1 ||
		!strings.HasPrefix(l.Unread[0], "Nodes: forbidden") {
		t.Errorf("%+v", l)
	}
}

func TestExplainNamespace(t *testing.T) {
	both := func(p *explain.Pod) { p.Held, p.Terminating, p.TerminatingSince = true, true, now().Add(-time.Hour) }
	terminating := func() NamespaceFacts {
		return NamespaceFacts{
			ListFacts: listed(pod("db-0", "n2", both)), Claims: explain.Found([]string{"a"}),
			Guards: explain.Found[[]coordinationv1.Lease](nil),
			Namespace: &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: ptr.To(ago(time.Hour))},
				Status: v1.NamespaceStatus{Phase: v1.NamespaceTerminating, Conditions: []v1.NamespaceCondition{
					{Type: v1.NamespaceContentRemaining, Status: v1.ConditionFalse, Message: "All content successfully removed"},
					{Type: v1.NamespaceDeletionDiscoveryFailure, Status: v1.ConditionFalse, Message: "ok"}}}},
		}
	}
	text := func(f NamespaceFacts) string { return ExplainNamespace(f).Wrapped(false, 0) }
	explained.Table(t, terminating, text, map[string]explained.Row[NamespaceFacts]{
		"a pod is held, and the conditions deny it": {func(*NamespaceFacts) {}, []string{
			"Namespace shop has been terminating for 60m and waits for 1 pod, which volume-guard holds.",
			`NamespaceContentRemaining is False: "All content successfully removed", but 1 pod is left`,
			"!NamespaceDeletionDiscoveryFailure", "Phase        Terminating for 60m",
			"Pod          db-0, Terminating,NodeDown, node n2, held by volume-guard (NodeUnreachable)",
			"Waits for    pod db-0, which waits for node n2 to return", "Claim        a, in use by pod db-0",
			"kubectl reclaim explain pod/db-0 -n shop"}},
		"a condition names the rest": {func(f *NamespaceFacts) {
			f.Namespace.Status.Conditions = []v1.NamespaceCondition{{Type: v1.NamespaceFinalizersRemaining,
				Status: v1.ConditionTrue, Message: "Some content has finalizers"}}
		}, []string{"NamespaceFinalizersRemaining is True: Some content has finalizers"}},
		"another program keeps the pod": {func(f *NamespaceFacts) {
			f.Pods.Value[0].Held, f.Pods.Value[0].Finalizers = false, []string{"example.com/keep"}
		}, []string{"volume-guard holds none of them", "finalizer example.com/keep"}},
		"no pods are left": {func(f *NamespaceFacts) { f.Pods.Value = nil }, []string{
			"has no pods left. Its conditions name the other objects.", "!but", "kubectl reclaim explain pvc/a -n shop"}},
		"pods may not be read": {func(f *NamespaceFacts) { explained.Forbid(&f.Pods) }, []string{
			"Namespace shop is terminating, and its pods could not be read.", "Pods: forbidden", "!but"}},
		"it is not terminating": {func(f *NamespaceFacts) {
			f.Namespace.DeletionTimestamp, f.Namespace.Status.Phase = nil, v1.NamespaceActive
		}, []string{"Namespace shop is not terminating. 1 pod wants attention.", "Pod          db-0", "!Waits for",
			"!Claim"}},
		"it is not terminating, and all is well": {func(f *NamespaceFacts) {
			f.Namespace.DeletionTimestamp, f.Pods.Value = nil, nil
		}, []string{"is not terminating, and none of its pods waits."}},
		"there are many pods": {func(f *NamespaceFacts) {
			for range 25 {
				f.Pods.Value = append(f.Pods.Value, pod("db-1", "n1", both))
			}
		}, []string{"waits for 26 pods. volume-guard holds 26 of them", "Pod          and 6 more"}},
	})
}

func TestPodOf(t *testing.T) {
	f := held()
	f.terminate()
	f.Pod.Finalizers = append(f.Pod.Finalizers, "x")
	p := explain.PodOf(f.Pod)
	if !p.Held || !slices.Equal(p.Finalizers, []string{"x"}) || !p.TerminatingSince.Equal(now().Add(-time.Hour)) ||
		p.Phase != v1.PodRunning || !slices.Equal(p.Claims, []string{"data-0"}) {
		t.Errorf("%+v", p)
	}
}
