//go:build unix

package pods

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// lockScenario is one in which two Deployments share a claim whose volume is not attached.
type lockScenario struct {
	stage.Scenario
	// name is the name of the namespace and of the claim.
	name string
	// locked means that the namespace asks for locks.
	locked bool
}

// Whether the second pod ran beside the first one, and the plugin's words about it.
const (
	bothRun   = "both run"
	oneByOne  = "one by one"
	notAsked  = "not asked"
	holder    = "holder named"
	notHolder = "HOLDER NOT NAMED"
)

// lockOutcome is the end of a scenario in the API server, in the volume and in the plugin.
type lockOutcome struct {
	// pods and plugin are each one of the constants.
	pods, plugin string
	// data is podNodes' judgement of the stamps in the volume.
	data string
}

// Cells are the parts of the outcome.
func (o lockOutcome) Cells() []string { return []string{o.pods, o.data, o.plugin} }

// lockScenarios returns the scenarios as they should end on these nodes.
func lockScenarios(nodes podNodes) []lockScenario {
	shared := lockScenario{
		name: "shared",
		Scenario: stage.Scenario{
			Title: "One claim of two Deployments, no lock",
			Description: "A ReadWriteOnce claim has a volume that nobody attaches, as with NFS. A pod writes to it, and\n" +
				"somebody starts another one on another node. The namespace has no label.",
			Ends: "two pods write to one volume", Harm: "two at once",
			Conclusion: "Each kubelet mounted the volume for its own pod. ReadWriteOnce had nobody who enforces it:\n" +
				"Kubernetes does so where it attaches a volume.",
			Want: lockOutcome{pods: bothRun, plugin: notAsked, data: nodes.together()},
		},
	}
	if !nodes.real() {
		shared.Harm = "two pods"
		shared.Conclusion = "Both pods run. On real nodes, each kubelet mounts the volume for its own pod, and both " +
			"write:\nKubernetes enforces ReadWriteOnce where it attaches a volume."
	}
	return []lockScenario{shared, {
		name: "locked", locked: true,
		Scenario: stage.Scenario{
			Title: "One claim of two Deployments, locked",
			Description: "The same in a namespace with the labels csi-reclaimer.io/pod-safety=enforce and\n" +
				"csi-reclaimer.io/single-node=all.",
			Ends: "one after the other",
			Conclusion: "The second pod was not scheduled before the first one had ended, and the plugin had said for\n" +
				"which pod it waits.",
			Want: lockOutcome{pods: oneByOne, plugin: holder, data: nodes.alone()},
		},
	}}
}

// lockPlay is one scenario under way.
type lockPlay struct {
	*environment
	scenario      lockScenario
	t             *stage.Timeline
	vol           *objects.Volume
	first, second *v1.Pod
	seen          lockOutcome
}

// The two Deployments.
const (
	firstApp  = "web"
	secondApp = "report"
)

// run plays the scenario.
func (play *lockPlay) run(ctx context.Context) (stage.Ending, error) {
	steps := []func(context.Context) error{play.begin, play.share, play.look, play.end}
	if play.scenario.locked {
		steps = []func(context.Context) error{play.lock, play.begin, play.wait, play.showLock, play.pass, play.look, play.end}
	}
	play.seen.plugin = notAsked
	play.t = play.Printer.Timeline()
	err := runSteps(ctx, play.t, steps)
	return play.seen, err
}

// lock installs single-node as an operator does, and starts volume-guard again with the controller for that.
func (play *lockPlay) lock(ctx context.Context) error {
	play.t.User("starts volume-guard --controllers=pod-safety,single-node")
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	if err := manifests.Apply(ctx, play.Plane.Admin(), manifests.SingleNode(controlplane.Newest)...); err != nil {
		return err
	}
	return play.restartGuard(ctx, "single-node")
}

// begin makes the namespace, and has a Deployment write to a volume from the first node.
func (play *lockPlay) begin(ctx context.Context) (err error) {
	name := play.scenario.name
	var labels map[string]string
	if play.scenario.locked {
		labels = map[string]string{podsafety.NamespaceLabel: "enforce", singlenode.Label: singlenode.AllValue}
	}
	if err := play.makeNamespace(ctx, name, labels); err != nil {
		return err
	}
	if play.scenario.locked {
		play.t.User("labels the namespace")
		if err := play.waitGated(ctx); err != nil {
			return err
		}
	}
	maker := play.Maker
	maker.Namespace = name
	if play.vol, err = play.nodes.volume(ctx, maker, name); err != nil {
		return err
	}
	play.first, err = play.deploy(ctx, firstApp, cluster.Node2, isRunning)
	if err != nil {
		return err
	}
	play.t.API("pod " + play.first.Name + " runs on " + play.first.Spec.NodeName)
	return play.nodes.waitWritten(ctx, play.vol, play.first.UID)
}

// waitGated waits until the API server has the policies in force that hold pods and add the gate.
func (play *lockPlay) waitGated(ctx context.Context) error {
	probe := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: play.nodes.pod("probe")}
	return cluster.Until(ctx, "pods to be held and gated", func(ctx context.Context) (bool, error) {
		made, err := play.Client.CoreV1().Pods(play.scenario.name).Create(ctx, probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) { // by one policy, until the other one adds the gate
			return false, nil
		}
		return err == nil && len(made.Finalizers) == 1 && isGated(made), err
	})
}

func isGated(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates,
		func(g v1.PodSchedulingGate) bool { return g.Name == records.VolumeGate })
}

func isRunning(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning }

// deploy makes a Deployment of one pod that uses the claim, and not this node, and waits until the pod is as wanted.
func (play *lockPlay) deploy(ctx context.Context, app, cordoned string, wanted func(*v1.Pod) bool) (*v1.Pod, error) {
	if err := play.cordon(ctx, cordoned); err != nil {
		return nil, err
	}
	play.t.User("makes Deployment " + app + ", whose pod writes to claim " + play.vol.ClaimName)
	labels := map[string]string{"app": app}
	_, err := play.Client.AppsV1().Deployments(play.scenario.name).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: play.nodes.pod(play.vol.ClaimName)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return play.waitPod(ctx, app, wanted)
}

// waitPod waits until the pod of a Deployment is as wanted.
func (play *lockPlay) waitPod(ctx context.Context, app string, wanted func(*v1.Pod) bool) (pod *v1.Pod, err error) {
	err = cluster.Until(ctx, "the pod of Deployment "+app, func(ctx context.Context) (bool, error) {
		list, err := play.Client.CoreV1().Pods(play.scenario.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		pod = &list.Items[0]
		return wanted(pod), nil
	})
	return pod, err
}

// share has the second Deployment write to the same volume from the other node.
func (play *lockPlay) share(ctx context.Context) (err error) {
	if play.second, err = play.deploy(ctx, secondApp, cluster.Node1, isRunning); err != nil {
		return err
	}
	play.t.API("pod " + play.second.Name + " runs on " + play.second.Spec.NodeName)
	if err := play.nodes.waitWritten(ctx, play.vol, play.second.UID); err != nil {
		return err
	}
	if err := play.judgePods(ctx); err != nil {
		return err
	}
	return play.nodes.waitWritten(ctx, play.vol, play.first.UID)
}

// judgePods finds out whether the first pod is there while the second one runs, unless it was seen that they run both.
func (play *lockPlay) judgePods(ctx context.Context) error {
	now, err := play.Client.CoreV1().Pods(play.scenario.name).Get(ctx, play.first.Name, metav1.GetOptions{})
	switch {
	case err == nil && now.UID == play.first.UID:
		play.seen.pods = bothRun
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case play.seen.pods == "":
		play.seen.pods = oneByOne
	}
	return nil
}

// wait makes the second Deployment, and waits until volume-guard says that its pod waits, or the pod is scheduled.
func (play *lockPlay) wait(ctx context.Context) (err error) {
	if play.second, err = play.deploy(ctx, secondApp, cluster.Node1, func(*v1.Pod) bool { return true }); err != nil {
		return err
	}
	var scheduled bool
	err = cluster.Until(ctx, "the second pod to wait", func(ctx context.Context) (bool, error) {
		scheduled, err = play.isScheduled(ctx)
		if err != nil || scheduled {
			return scheduled, err
		}
		events, err := play.Client.CoreV1().Events(play.scenario.name).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=ClaimInUse,involvedObject.uid=" + string(play.second.UID)})
		return err == nil && len(events.Items) > 0, err
	})
	if err != nil {
		return err
	}
	if err := play.nodes.waitWritten(ctx, play.vol, play.first.UID); err != nil {
		return err
	}
	if scheduled, err = play.isScheduled(ctx); err != nil {
		return err
	}
	if scheduled {
		play.seen.pods = bothRun
		return nil
	}
	play.t.API("pod " + play.second.Name + " is not scheduled: it has the gate " + records.VolumeGate)
	return nil
}

// isScheduled reports whether the second pod is scheduled, or will be.
func (play *lockPlay) isScheduled(ctx context.Context) (bool, error) {
	now, err := play.Client.CoreV1().Pods(play.scenario.name).Get(ctx, play.second.Name, metav1.GetOptions{})
	return err == nil && (!isGated(now) || now.Spec.NodeName != ""), err
}

// showLock shows the plugin's output: the pod that has the lock of the claim, and the pod that waits for it.
func (play *lockPlay) showLock(ctx context.Context) error {
	namespace := "-n=" + play.scenario.name
	play.t.User("kubectl reclaim locks")
	var list locks.List
	if err := play.AskPlugin(ctx, &list, "locks", namespace); err != nil {
		return err
	}
	play.seen.plugin = judgeLocks(list, play.first, play.second)
	for _, lock := range list.Locks {
		text := fmt.Sprintf("claim %s: pod %s on %s has the lock (%s)", lock.Claim, lock.Holder, lock.Node, lock.Reason)
		for _, pod := range lock.Waiting {
			text += "; pod " + pod.Pod + " waits"
		}
		play.t.Plugin(text)
	}
	play.t.User("kubectl reclaim explain pod/" + play.second.Name)
	var said explain.Explanation
	err := play.AskPlugin(ctx, &said, "explain", "pod/"+play.second.Name, namespace)
	if err == nil {
		play.t.Plugin(said.Headline)
	}
	return err
}

// judgeLocks compares the plugin's list with the pods: the first has the only lock, and only the second waits.
func judgeLocks(list locks.List, first, second *v1.Pod) string {
	if len(list.Locks) == 1 && list.Locks[0].HolderUID == string(first.UID) &&
		list.Locks[0].Node == first.Spec.NodeName && len(list.Locks[0].Waiting) == 1 &&
		list.Locks[0].Waiting[0].UID == string(second.UID) {
		return holder
	}
	return notHolder
}

// pass ends the first pod, and waits until the second one runs.
func (play *lockPlay) pass(ctx context.Context) (err error) {
	play.t.User("kubectl scale deployment " + firstApp + " --replicas=0")
	if err := play.scale(ctx, firstApp); err != nil {
		return err
	}
	if play.second, err = play.waitPod(ctx, secondApp, isRunning); err != nil {
		return err
	}
	if err := play.judgePods(ctx); err != nil {
		return err
	}
	if play.seen.pods == oneByOne {
		play.t.API("pod " + play.first.Name + " is gone")
	}
	play.t.API("pod " + play.second.Name + " runs on " + play.second.Spec.NodeName)
	return play.nodes.waitWritten(ctx, play.vol, play.second.UID)
}

// scale has a Deployment end its pod.
func (play *lockPlay) scale(ctx context.Context, app string) error {
	_, err := play.Client.AppsV1().Deployments(play.scenario.name).Patch(ctx, app, types.MergePatchType,
		[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	return err
}

// look reads the volume.
func (play *lockPlay) look(context.Context) (err error) {
	play.seen.data, err = written(play.t, play.nodes, play.vol)
	return err
}

// end ends the pods.
func (play *lockPlay) end(ctx context.Context) error {
	for _, app := range []string{firstApp, secondApp} {
		if err := play.scale(ctx, app); err != nil {
			return err
		}
	}
	return play.waitNoPods(ctx, play.scenario.name)
}
