package fencing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

var errNoAnswer = errors.New("no answer")

// world is a cluster in memory. Live reads and writes use it directly, and the watches show it after sync.
type world struct {
	*testing.T
	*Controller
	clock  *testclock.FakeClock
	events *record.FakeRecorder

	fences   map[string]*v1alpha1.NodeFence
	nodes    map[string]*v1.Node
	policies map[string]*v1alpha1.FencePolicy
	leases   map[string]int
	pods     map[string][]Waiting
	budgets  map[string][]budget
	spaces   map[string]map[string]string
	remain   fencing.RemainingFacts
	// runs are the states of agents, by "NAME" or "undo NAME".
	runs  map[string]fencing.RunState
	calls []string
	// fail maps calls to their errors.
	fail map[string]error
	// writes counts the writes. broken, if not zero, is the number of the write that fails: before it takes effect, or
	// after it if lost is set.
	writes, broken int
	lost           bool
	// hook, if set, is called with each call, before it takes effect.
	hook func(call string)
	last int

	fenceCache  *kubetest.Cache[fencing.Fence]
	nodeCache   *kubetest.Cache[*objects.LabeledNode]
	policyCache *kubetest.Cache[*v1alpha1.FencePolicy]
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{T: t, clock: testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), events: record.NewFakeRecorder(1000),
		fences: map[string]*v1alpha1.NodeFence{}, nodes: map[string]*v1.Node{},
		policies: map[string]*v1alpha1.FencePolicy{}, leases: map[string]int{}, pods: map[string][]Waiting{},
		budgets: map[string][]budget{}, spaces: map[string]map[string]string{}, runs: map[string]fencing.RunState{},
		fail: map[string]error{}}
	w.restart(cfg)
	return w
}

// restart replaces the process by another one.
func (w *world) restart(cfg Config) {
	w.Helper()
	cfg.Clock, cfg.Events = w.clock, w.events
	var err error
	if w.Controller, err = newController(cfg, w, w); err != nil {
		w.Fatal(err)
	}
	w.fenceCache, w.nodeCache = kubetest.NewCache[fencing.Fence](), kubetest.NewCache[*objects.LabeledNode]()
	w.policyCache = kubetest.NewCache[*v1alpha1.FencePolicy]()
	o := w.observer
	o.fences, o.nodes, o.policies = w.fenceCache, w.nodeCache, w.policyCache
	w.sync()
}

// sync makes the watches show the whole state.
func (w *world) sync() {
	w.Helper()
	kubetest.Deliver(w.T, w.nodeCache, w.nodes, kube.RecordAll(objects.LabeledNodeOf),
		kube.OnChange[*objects.LabeledNode](w.observer.nodeChanged))
	kubetest.Deliver(w.T, w.fenceCache, w.fences, kube.RecordAll(fencing.FenceOf),
		kube.OnChange[fencing.Fence](w.observer.fenceChanged))
	kubetest.Deliver(w.T, w.policyCache, w.policies, kube.RecordAll(policyOf),
		kube.OnChange[*v1alpha1.FencePolicy](w.observer.policyChanged))
}

func (w *world) version() string {
	w.last++
	return strconv.Itoa(w.last)
}

// call records a call, and returns the error that is set for it.
func (w *world) call(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if w.hook != nil {
		w.hook(what)
	}
	w.calls = append(w.calls, what)
	return w.fail[what]
}

func (w *world) write(do func() error, format string, args ...any) error {
	if err := w.call(format, args...); err != nil {
		return err
	}
	w.writes++
	if w.writes == w.broken && !w.lost {
		return errNoAnswer
	}
	if err := do(); err != nil {
		return err
	}
	if w.writes == w.broken {
		return errNoAnswer
	}
	return nil
}

// took returns the calls since it was last called.
func (w *world) took() []string {
	calls := w.calls
	w.calls = nil
	return calls
}

// node creates or changes a node, whose condition Ready has this status.
func (w *world) node(name string, ready v1.ConditionStatus, alter ...func(*v1.Node)) {
	o := w.nodes[name]
	if o == nil {
		o = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: map[string]string{}}}
		o.Status.NodeInfo = v1.NodeSystemInfo{BootID: "boot-1", MachineID: "id", SystemUUID: "uuid"}
		w.leases[name] = 1
	}
	o = o.DeepCopy()
	o.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready,
		LastTransitionTime: metav1.NewTime(w.clock.Now())}}
	for _, change := range alter {
		change(o)
	}
	o.ResourceVersion = w.version()
	w.nodes[name] = o
}

func inZone(o *v1.Node) { o.Labels[v1.LabelTopologyZone] = "z" }

func (w *world) policy(name string, alter ...func(*v1alpha1.FencePolicySpec)) {
	o := &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("policy-" + name), Generation: 1}}
	o.Spec = v1alpha1.FencePolicySpec{UnreachableAfter: metav1.Duration{Duration: time.Minute}, HaltAbove: 60,
		MaxFencesPerZone: 1, Agents: []v1alpha1.Agent{agent("off")}}
	o.Spec.MaxFences.IntVal = 1
	for _, change := range alter {
		change(&o.Spec)
	}
	o.ResourceVersion = w.version()
	w.policies[name] = o
}

func agent(name string) v1alpha1.Agent {
	return v1alpha1.Agent{Name: name, Covers: v1alpha1.CoversUntilUnfenced,
		Timeout: metav1.Duration{Duration: time.Minute}, Job: &v1alpha1.JobAgent{Namespace: "fencing", PodTemplateName: name}}
}

// ask creates a NodeFence.
func (w *world) ask(name string, agents ...v1alpha1.Agent) {
	w.fences[name] = &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("fence-" + w.version()),
		ResourceVersion: w.version(), CreationTimestamp: metav1.NewTime(w.clock.Now())},
		Spec: v1alpha1.NodeFenceSpec{Reason: "a test", Agents: agents}}
}

// waits makes pods with a claim wait for a node.
func (w *world) waits(node string, pods ...Waiting) { w.pods[node] = pods }

var gone = Waiting{namespace: "ns", labels: map[string]string{"app": "db"}, terminating: true}

// pass advances the time in steps of leasePoll. Nodes renew their Leases unless they are unreachable, and the
// controller works on all objects.
func (w *world) pass(d time.Duration) {
	w.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.sync()
		w.clock.Step(leasePoll)
		for name, o := range w.nodes {
			if o.Status.Conditions[0].Status == v1.ConditionTrue {
				w.leases[name]++
			}
		}
		if w.observer.looksForSilence() {
			w.pollOnce(w.Context())
		} else {
			w.view.rest()
		}
		w.work()
	}
}

// work works on all policies and fences repeatedly, until none of them causes a write.
func (w *world) work() {
	w.Helper()
	for range 50 {
		before := w.last
		w.sync()
		for _, name := range slices.Sorted(maps.Keys(w.policies)) {
			w.reconcilePolicy(w.Context(), name)
			w.sync()
		}
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			w.reconcile(w.Context(), name)
			w.sync()
		}
		if w.last == before {
			return
		}
	}
	w.Error("there is no end of writes")
}

func (w *world) phase(name string) v1alpha1.Phase {
	if o := w.fences[name]; o != nil {
		return phaseOf(fencing.FenceOf(o))
	}
	return "none"
}

func (w *world) wantPhase(name string, want v1alpha1.Phase) {
	w.Helper()
	if got := w.phase(name); got != want {
		w.Errorf("the fence of node %s is %s, want %s", name, got, want)
	}
}

// tainted reports whether node a has the taint that releases its pods, and shunned whether new pods stay away.
func (w *world) tainted() bool { return hasTaint(w.nodes["a"], fencing.OutOfService) }
func (w *world) shunned() bool { return hasTaint(w.nodes["a"], fencing.VolumesFenced) }

// judgement returns the reason that the status of policy p gives for a node.
func (w *world) judgement(node string) string {
	for _, j := range w.policies["p"].Status.Nodes {
		if j.Name == node {
			return j.Reason
		}
	}
	return ""
}

func (w *world) wantJudgement(node string, want fencing.Reason) {
	w.Helper()
	if got := w.judgement(node); got != string(want) {
		w.Errorf("the policy says %q about node %s, want %q", got, node, want)
	}
}

func (w *world) readFence(_ context.Context, name string) (fencing.Fence, bool, error) {
	if err := w.call("get fence"); err != nil || w.fences[name] == nil {
		return fencing.Fence{}, false, err
	}
	return fencing.FenceOf(w.fences[name].DeepCopy()), true, nil
}

func (w *world) readNode(_ context.Context, name string) (objects.Node, error) {
	if err := w.call("get node"); err != nil || w.nodes[name] == nil {
		return objects.Node{}, err
	}
	return objects.NodeOf(w.nodes[name]), nil
}

func (w *world) readLease(_ context.Context, name string) (objects.Lease, error) {
	if err := w.call("get lease"); err != nil || w.leases[name] == 0 {
		return objects.Lease{}, err
	}
	return objects.Lease{ResourceVersion: strconv.Itoa(w.leases[name])}, nil
}

func (w *world) listRemaining(_ context.Context, ask fencing.Ask) (fencing.RemainingFacts, error) {
	f := w.remain
	f.AttachmentsListed = !ask.PodsOnly
	return f, w.call("list remaining")
}

// bound returns the NodeFence of an Ask, if its preconditions hold.
func (w *world) bound(ask fencing.Ask, version bool) (*v1alpha1.NodeFence, error) {
	o := w.fences[ask.Node]
	switch {
	case o == nil || o.UID != ask.UID:
		return nil, kube.ErrGone
	case version && o.ResourceVersion != ask.ResourceVersion:
		return nil, kube.ErrChanged
	}
	return o.DeepCopy(), nil
}

func (w *world) put(o *v1alpha1.NodeFence) {
	o.ResourceVersion = w.version()
	w.fences[o.Name] = o
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		delete(w.fences, o.Name)
	}
}

func (w *world) setFinalizer(_ context.Context, ask fencing.Ask, has bool) error {
	return w.write(func() error {
		o, err := w.bound(ask, false)
		if err != nil {
			return err
		}
		o.Finalizers = nil
		if has {
			o.Finalizers = []string{fencing.Finalizer}
		}
		w.put(o)
		return nil
	}, "finalizer %t", has)
}

func (w *world) deleteFence(_ context.Context, ask fencing.Ask) error {
	return w.write(func() error {
		o, err := w.bound(ask, true)
		if err != nil {
			return err
		}
		o.DeletionTimestamp = ptr.To(metav1.NewTime(w.clock.Now()))
		w.put(o)
		return nil
	}, "delete fence")
}

func (w *world) writeStatus(_ context.Context, ask fencing.Ask) error {
	return w.write(func() error {
		o, err := w.bound(ask, true)
		if err != nil {
			return err
		}
		o.Status = *ask.Status.DeepCopy()
		w.put(o)
		return nil
	}, "status %s", ask.Status.Phase)
}

func (w *world) setTaint(_ context.Context, ask fencing.Ask) error {
	return w.write(func() error {
		o := w.nodes[ask.Node]
		switch {
		case o == nil:
			return kube.ErrGone
		case o.ResourceVersion != ask.NodeVersion:
			return kube.ErrChanged
		}
		taints, err := withTaint(o.Spec.Taints, ask.Taint)
		if err != nil {
			return err
		}
		w.node(ask.Node, o.Status.Conditions[0].Status, func(n *v1.Node) { n.Spec.Taints = taints })
		return nil
	}, "taint %t", ask.Taint != fencing.NoTaint)
}

func (w *world) eachTainted(_ context.Context, visit func(string, objects.Node)) error {
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if !hasTaint(w.nodes[name], fencing.NoTaint) {
			visit(name, objects.NodeOf(w.nodes[name]))
		}
	}
	return w.call("list nodes")
}

// Read, Start and Stop implement runner.
func (w *world) Read(_ context.Context, ask fencing.Ask) fencing.RunFacts {
	_ = w.call("read %s", runName(ask))
	state := w.runs[runName(ask)]
	if state == fencing.RunUnknown {
		state = fencing.RunAbsent
	}
	return fencing.RunFacts{State: state}
}

func (w *world) Start(_ context.Context, ask fencing.Ask) error {
	return w.write(func() error {
		w.runs[runName(ask)] = fencing.Running
		return nil
	}, "start %s", runName(ask))
}

func (w *world) Stop(_ context.Context, ask fencing.Ask) error {
	return w.write(func() error {
		delete(w.runs, runName(ask))
		return nil
	}, "stop %s", runName(ask))
}

func runName(ask fencing.Ask) string {
	if ask.Run.Undo {
		return "undo " + ask.Run.Agent
	}
	return ask.Run.Agent
}

func (w *world) listLeases(context.Context) (map[string]string, error) {
	if err := w.call("list leases"); err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for name, version := range w.leases {
		versions[name] = strconv.Itoa(version)
	}
	return versions, nil
}

func (w *world) listWaiting(_ context.Context, node string) ([]Waiting, error) {
	return w.pods[node], w.call("list pods of %s", node)
}

func (w *world) listBudgets(_ context.Context, namespace string) ([]budget, error) {
	return w.budgets[namespace], w.call("list budgets of %s", namespace)
}

func (w *world) readNamespace(_ context.Context, name string) (map[string]string, error) {
	return w.spaces[name], w.call("get namespace %s", name)
}

func (w *world) readPolicy(_ context.Context, name string) (*v1alpha1.FencePolicy, error) {
	if err := w.call("get policy"); err != nil || w.policies[name] == nil {
		return nil, err
	}
	return w.policies[name].DeepCopy(), nil
}

func (w *world) listFences(context.Context) (all []fencing.Fence, err error) {
	if err := w.call("list fences"); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(w.fences)) {
		all = append(all, fencing.FenceOf(w.fences[name].DeepCopy()))
	}
	return all, nil
}

func (w *world) readLabeledNode(_ context.Context, name string) (*objects.LabeledNode, error) {
	if err := w.call("get whole node"); err != nil || w.nodes[name] == nil {
		return nil, err
	}
	return objects.LabeledNodeOf(w.nodes[name]), nil
}

func (w *world) createFence(_ context.Context, o *v1alpha1.NodeFence) error {
	return w.write(func() error {
		if w.fences[o.Name] != nil {
			return kube.ErrChanged
		}
		o = o.DeepCopy()
		o.UID, o.CreationTimestamp = types.UID("fence-"+w.version()), metav1.NewTime(w.clock.Now())
		w.put(o)
		return nil
	}, "create fence of %s", o.Name)
}

func (w *world) writePolicyStatus(_ context.Context, p *v1alpha1.FencePolicy,
	status v1alpha1.FencePolicyStatus) error {
	return w.write(func() error {
		o := w.policies[p.Name]
		switch {
		case o == nil || o.UID != p.UID:
			return kube.ErrGone
		case o.ResourceVersion != p.ResourceVersion:
			return kube.ErrChanged
		}
		o = o.DeepCopy()
		o.Status = *status.DeepCopy()
		o.ResourceVersion = w.version()
		w.policies[p.Name] = o
		return nil
	}, "status of policy")
}
