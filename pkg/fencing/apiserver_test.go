//go:build controlplane && unix

package fencing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
)

func TestMain(m *testing.M) {
	os.Exit(apiserver.Main(m, func(ctx context.Context) error {
		return manifests.Apply(ctx, apiserver.Admin(), manifests.NodeFencingCRD)
	}, "TaintNodesByCondition"))
}

// bench is a node of a real API server.
type bench struct {
	*apiserver.Bench
	apiServer
	node string
	// clock, unless nil, advances by a second with each look of Until.
	clock *testclock.FakeClock
}

func newBench(t *testing.T, name string) *bench {
	t.Helper()
	clients, err := newClients(apiserver.Admin(), Config{})
	b := &bench{Bench: apiserver.New(t, "fencing-", nil), node: name,
		apiServer: apiServer{clients, &attachments{clock: clock.RealClock{}}}}
	b.Must(err)
	_, err = b.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	b.Must(err)
	b.report(v1.ConditionUnknown, "boot-1")
	if _, err := clients.Core.Namespaces().Create(t.Context(), &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: v1.NamespaceNodeLease}}, metav1.CreateOptions{}); err != nil {
		t.Log(err) // it may exist
	}
	_, err = clients.Coordination.Leases(v1.NamespaceNodeLease).Create(t.Context(),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	b.Must(err)
	return b
}

// report sets the condition Ready and the boot ID of the node.
func (b *bench) report(ready v1.ConditionStatus, bootID string) {
	b.Helper()
	b.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the controller writes to the node, too
		o, err := b.clients.Core.Nodes().Get(b.Context(), b.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}}
		o.Status.NodeInfo.BootID = bootID
		_, err = b.clients.Core.Nodes().UpdateStatus(b.Context(), o, metav1.UpdateOptions{})
		return err
	}))
}

func (b *bench) renew() {
	b.Helper()
	body := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := b.clients.Coordination.Leases(v1.NamespaceNodeLease).Patch(b.Context(), b.node, types.MergePatchType,
		[]byte(body), metav1.PatchOptions{})
	b.Must(err)
}

// Until waits for a condition.
func (b *bench) Until(what string, is func() bool) {
	b.Helper()
	b.Bench.Until(what, func() bool {
		if b.clock != nil {
			b.clock.Step(time.Second)
		}
		return is()
	})
}

func (b *bench) fence() *v1alpha1.NodeFence {
	b.Helper()
	o, err := kube.Read(b.Context(), nodefence.Kind, "", b.node, b.clients.own.Fences.Get)
	b.Must(err)
	if o == nil {
		return &v1alpha1.NodeFence{}
	}
	return o
}

func (b *bench) is(condition string) bool {
	return meta.IsStatusConditionTrue(b.fence().Status.Conditions, condition)
}

func (b *bench) taints() []v1.Taint {
	b.Helper()
	o, err := b.clients.Core.Nodes().Get(b.Context(), b.node, metav1.GetOptions{})
	b.Must(err)
	return o.Spec.Taints
}

func (b *bench) tainted() bool { return slices.ContainsFunc(b.taints(), objects.IsOwnTaint) }

// setting returns the write of a taint.
func (b *bench) setting(taint fencing.Taint) func(context.Context, fencing.Ask) error {
	return func(ctx context.Context, ask fencing.Ask) error {
		ask.Taint = taint
		return b.setTaint(ctx, ask)
	}
}

// ask creates a NodeFence for the node.
func (b *bench) ask(agents ...v1alpha1.Agent) {
	b.Helper()
	_, err := b.clients.own.Fences.Create(b.Context(), &v1alpha1.NodeFence{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: fenceKind},
		ObjectMeta: metav1.ObjectMeta{Name: b.node},
		Spec:       v1alpha1.NodeFenceSpec{Reason: "a test", Agents: agents},
	}, metav1.CreateOptions{})
	b.Must(err)
}

func (b *bench) patch(body string) {
	b.Helper()
	_, err := b.clients.own.Fences.Patch(b.Context(), b.node, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	b.Must(err)
}

// start runs a controller until the test ends, or until stop is called.
func (b *bench) start(cfg Config) (stop func()) {
	b.Helper()
	c, err := New(apiserver.Admin(), cfg)
	b.Must(err)
	return b.Run(c)
}

func manual() v1alpha1.Agent {
	return v1alpha1.Agent{Name: "by-hand", Covers: v1alpha1.CoversUntilUnfenced, Manual: &v1alpha1.ManualAgent{},
		Timeout: metav1.Duration{Duration: time.Hour}}
}

// TestManualFence plays the life of a fence that a person confirms.
func TestManualFence(t *testing.T) {
	b := newBench(t, "by-hand")
	others := []v1.Taint{{Key: "theirs", Effect: v1.TaintEffectNoSchedule}}
	_, err := b.clients.Core.Nodes().Patch(t.Context(), b.node, types.MergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	b.Must(err)
	recorder := record.NewFakeRecorder(100)
	b.start(Config{Settings: controllers.Settings{Events: recorder}, KeepReturned: time.Second})
	b.ask(manual())
	b.Until("it waits for a person", func() bool { return b.fence().Status.Phase == v1alpha1.PhaseFencing })
	if b.tainted() {
		t.Fatal("the node is tainted before the proof")
	}
	b.patch(fmt.Sprintf(`{"spec":{"confirmation":"I pulled the plug","confirmationUID":%q}}`, b.fence().UID))
	b.Until("it is released", func() bool { return b.is(v1alpha1.ConditionReleased) })
	if got := b.taints(); len(got) != 2 || !slices.Contains(got, others[0]) || !b.tainted() {
		t.Errorf("the node has the taints %+v", got)
	}
	b.report(v1.ConditionTrue, "boot-2")
	b.renew()
	b.Until("it has returned and is deleted", func() bool { return b.fence().UID == "" })
	if got := b.taints(); !slices.Equal(got, others) {
		t.Errorf("the node has the taints %+v", got)
	}
	for _, word := range []string{"WaitsForConfirmation", "Fenced", "Released", "NodeRebooted"} {
		b.wantEvent(recorder, word)
	}
}

// TestNodeHealthCheckFence plays the reads and writes of medik8s' NodeHealthCheck.
func TestNodeHealthCheckFence(t *testing.T) {
	b := newBench(t, "health-check")
	recorder := record.NewFakeRecorder(100)
	b.start(Config{Settings: controllers.Settings{Events: recorder}})
	succeeded := func(status metav1.ConditionStatus) func() bool {
		return func() bool {
			f := b.fence()
			c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionSucceeded)
			return c != nil && c.Status == status && c.ObservedGeneration == f.Generation
		}
	}
	b.ask(manual())
	b.Until("it is under way", succeeded(metav1.ConditionUnknown))
	b.patch(`{"metadata":{"annotations":{"remediation.medik8s.io/nhc-timed-out":"2026-01-02T03:04:05Z"}}}`)
	b.Until("it is given up", succeeded(metav1.ConditionFalse))
	b.wantEvent(recorder, "HealthCheckGaveUp")
	if b.tainted() {
		t.Error("the node is tainted without a proof")
	}
	b.patch(fmt.Sprintf(`{"spec":{"confirmation":"I pulled the plug","confirmationUID":%q}}`, b.fence().UID))
	b.Until("it has succeeded", succeeded(metav1.ConditionTrue))
	b.Until("it is released", func() bool { return b.is(v1alpha1.ConditionReleased) && b.tainted() })
}

// wantEvent waits for an Event with this reason.
func (b *bench) wantEvent(from *record.FakeRecorder, reason string) {
	b.Helper()
	b.Until("Event "+reason, func() bool {
		select {
		case e := <-from.Events:
			var kind, word string
			_, _ = fmt.Sscan(e, &kind, &word)
			return word == reason
		default:
			return false
		}
	})
}

func TestJobFence(t *testing.T) {
	b := newBench(t, "by-jobs")
	b.clock = testclock.NewFakeClock(time.Now()) // agents are asked each 5 seconds
	_, err := b.clients.Core.PodTemplates("default").Create(t.Context(), &v1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "off"},
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{Name: "c", Image: "none"}}}}}, metav1.CreateOptions{})
	b.Must(err)
	stop := b.start(Config{Settings: controllers.Settings{Clock: b.clock}})
	job := func(name string) v1alpha1.Agent {
		return v1alpha1.Agent{Name: name, Covers: v1alpha1.CoversUntilUnfenced, Timeout: metav1.Duration{Duration: time.Hour},
			Job: &v1alpha1.JobAgent{Namespace: "default", PodTemplateName: "off", Undo: true}}
	}
	b.ask(job("first"), job("second"))
	jobs := b.clients.all.BatchV1().Jobs("default")
	seen := map[string]bool{}
	next := func() (o *batchv1.Job) {
		b.Until("there is another Job", func() bool {
			list, err := jobs.List(b.Context(), metav1.ListOptions{})
			b.Must(err)
			i := slices.IndexFunc(list.Items, func(j batchv1.Job) bool { return !seen[j.Name] })
			if i >= 0 {
				o = &list.Items[i]
				seen[o.Name] = true
			}
			return i >= 0
		})
		return o
	}
	end := func(o *batchv1.Job, types ...batchv1.JobConditionType) {
		o.Status.StartTime = ptr.To(metav1.Now())
		if types[0] == batchv1.JobSuccessCriteriaMet {
			o.Status.CompletionTime, o.Status.Succeeded = ptr.To(metav1.Now()), 1
		}
		for _, kind := range types {
			o.Status.Conditions = append(o.Status.Conditions, batchv1.JobCondition{Type: kind, Status: v1.ConditionTrue,
				LastTransitionTime: metav1.Now()})
		}
		_, err := jobs.UpdateStatus(b.Context(), o, metav1.UpdateOptions{})
		b.Must(err)
	}
	end(next(), batchv1.JobFailureTarget, batchv1.JobFailed)
	second := next()
	stop() // the next leader continues
	b.start(Config{Settings: controllers.Settings{Clock: b.clock}})
	end(second, batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	b.Until("it is released", func() bool { return b.is(v1alpha1.ConditionReleased) && b.tainted() })
	if got := b.fence().Status; len(got.Attempts) != 2 || got.Attempts[0].Result != v1alpha1.ResultFailed ||
		got.Proof == nil || got.Proof.Agent != "second" || got.Phase != v1alpha1.PhaseReleased {
		t.Errorf("%+v", got)
	}
	b.patch(`{"spec":{"unfence":"Now"}}`)
	end(next(), batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	end(next(), batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	b.Until("it has ended", func() bool { return b.is(v1alpha1.ConditionReturned) })
	if b.tainted() {
		t.Error("the node is tainted")
	}
}

// TestWritesHavePreconditions makes each write to an object that has changed, to one with another UID, and to one
// that is gone.
func TestWritesHavePreconditions(t *testing.T) {
	b := newBench(t, "bound")
	ctx := t.Context()
	b.ask(manual())
	current := func() fencing.Ask {
		f, _, err := b.readFence(ctx, b.node)
		b.Must(err)
		n, err := b.readNode(ctx, b.node)
		b.Must(err)
		return fencing.Ask{Node: b.node, UID: f.UID, ResourceVersion: f.ResourceVersion, NodeVersion: n.ResourceVersion,
			Status: &v1alpha1.NodeFenceStatus{Phase: v1alpha1.PhaseFencing}}
	}
	add := func(ctx context.Context, ask fencing.Ask) error { return b.setFinalizer(ctx, ask, true) }
	remove := func(ctx context.Context, ask fencing.Ask) error { return b.setFinalizer(ctx, ask, false) }
	for _, c := range []struct {
		what  string
		write func(context.Context, fencing.Ask) error
		// byUID, byVersion and byNode are the preconditions of the write.
		byUID, byVersion, byNode bool
	}{
		{"the taint", b.setting(fencing.OutOfService), false, false, true},
		{"the other taint", b.setting(fencing.VolumesFenced), false, false, true},
		{"no taint", b.setting(fencing.NoTaint), false, false, true},
		{"the status", b.writeStatus, true, true, false},
		{"a finalizer", add, true, false, false},
		{"a finalizer that goes", remove, true, false, false},
		{"the deletion", b.deleteFence, true, true, false},
	} {
		refused := func(how string, alter func(*fencing.Ask)) {
			t.Helper()
			ask := current()
			alter(&ask)
			if err := c.write(ctx, ask); !errors.Is(err, kube.ErrGone) && !errors.Is(err, kube.ErrChanged) {
				t.Errorf("%s %s: %v", c.what, how, err)
			}
		}
		if c.byUID {
			refused("of another UID", func(a *fencing.Ask) { a.UID = "00000000-0000-0000-0000-000000000000" })
		}
		if c.byVersion {
			refused("that has changed", func(a *fencing.Ask) { a.ResourceVersion = "1" })
		}
		if c.byNode {
			refused("of a Node that has changed", func(a *fencing.Ask) { a.NodeVersion = "1" })
		}
		refused("that is gone", func(a *fencing.Ask) { a.Node = "nobody" })
		if err := c.write(ctx, current()); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestForeignFinalizersStay adds the finalizer of another program to a NodeFence.
func TestForeignFinalizersStay(t *testing.T) {
	b := newBench(t, "finalized")
	b.ask(manual())
	b.patch(`{"metadata":{"finalizers":["example.com/theirs"]}}`)
	ask := fencing.Ask{Node: b.node, UID: b.fence().UID}
	b.Must(b.setFinalizer(t.Context(), ask, true))
	if got := b.fence().Finalizers; !slices.Equal(got, []string{"example.com/theirs", fencing.Finalizer}) {
		t.Errorf("finalizers %q", got)
	}
	b.Must(b.setFinalizer(t.Context(), ask, false))
	b.Must(b.deleteFence(t.Context(), fencing.Ask{Node: b.node, UID: ask.UID, ResourceVersion: b.fence().ResourceVersion}))
	if got := b.fence().Finalizers; !slices.Equal(got, []string{"example.com/theirs"}) {
		t.Errorf("finalizers %q", got)
	}
	if err := b.setFinalizer(t.Context(), ask, true); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("a NodeFence that is terminating: %v", err)
	}
	b.patch(`{"metadata":{"finalizers":null}}`)
}

func TestPolicyOnAPIServer(t *testing.T) {
	b := newBench(t, "by-policy")
	ctx := t.Context()
	_, err := b.clients.own.Policies.Create(ctx, &v1alpha1.FencePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind},
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1alpha1.FencePolicySpec{UnreachableAfter: metav1.Duration{Duration: time.Hour},
			Agents: []v1alpha1.Agent{manual()}},
	}, metav1.CreateOptions{})
	b.Must(err)
	p, err := b.readPolicy(ctx, "p")
	if err != nil || p == nil || p.Spec.HaltAbove != 40 || p.Spec.MaxFences.IntVal != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	status := v1alpha1.FencePolicyStatus{Fences: 1}
	b.Must(b.writePolicyStatus(ctx, p, status))
	if err := b.writePolicyStatus(ctx, p, status); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("the status of a policy that has changed: %v", err)
	}
	o := fenceFor(p, b.node, time.Now())
	b.Must(b.createFence(ctx, o))
	if err := b.createFence(ctx, o); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("a NodeFence that exists: %v", err)
	}
	fences, err := b.listFences(ctx)
	i := slices.IndexFunc(fences, func(f fencing.Fence) bool { return f.Name == b.node })
	if err != nil || i < 0 || fences[i].Spec.PolicyName != "p" || fences[i].Spec.Unfence != v1alpha1.UnfenceWhenReturned {
		t.Fatalf("%+v, %v", fences, err)
	}
	f := fences[i]
	b.Must(b.deleteFence(ctx, fencing.Ask{Node: f.Name, UID: f.UID, ResourceVersion: f.ResourceVersion}))
	if p, err := b.readPolicy(ctx, "none"); p != nil || err != nil {
		t.Errorf("a policy that is gone: %v, %v", p, err)
	}
	b.wantWaiting()
	leases, err := b.listLeases(ctx)
	lease, _ := b.readLease(ctx, b.node)
	if err != nil || leases[b.node] == "" || leases[b.node] != lease.ResourceVersion {
		t.Errorf("the Leases %v, %v", leases, err)
	}
	b.Must(installed(ctx, b.clients.all.Discovery()))
	b.Must(b.clients.own.Policies.Delete(ctx, "p", metav1.DeleteOptions{}))
}

// wantWaiting creates pods on the node and budgets, and checks their records.
func (b *bench) wantWaiting() {
	b.Helper()
	ctx := b.Context()
	bound := func(o *v1.Pod) { o.Labels, o.Spec.NodeName = map[string]string{"app": "db"}, b.node }
	b.CreatePod("with", "data", bound)
	b.CreatePod("without", "", bound, func(o *v1.Pod) { o.Spec.Volumes = nil })
	b.Until("a pod waits", func() bool { // the watch cache of the API server may lag
		pods, err := b.listWaiting(ctx, b.node)
		b.Must(err)
		return len(pods) == 1 && pods[0].namespace == b.Namespace && pods[0].labels["app"] == "db" && !pods[0].terminating
	})
	remains, err := b.listRemaining(ctx, fencing.Ask{Node: b.node})
	if want := (fencing.Remains{Pods: 1}); err != nil || remains.All != want || len(remains.Held) > 0 {
		b.Errorf("what remains: %+v, %v", remains, err)
	}
	_, err = b.clients.all.PolicyV1().PodDisruptionBudgets(b.Namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}, metav1.CreateOptions{})
	b.Must(err)
	b.Until("a budget", func() bool {
		budgets, err := b.listBudgets(ctx, b.Namespace)
		b.Must(err)
		return len(budgets) == 1 && !budgets[0].healthy
	})
	if labels, err := b.readNamespace(ctx, b.Namespace); err != nil || labels[v1.LabelMetadataName] != b.Namespace {
		b.Errorf("labels %v, %v", labels, err)
	}
}
