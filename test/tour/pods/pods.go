//go:build unix

package pods

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// podScenario is one in which the node of a StatefulSet's pod is cut off, and a user force-deletes the pod.
type podScenario struct {
	stage.Scenario
	name string
	// guarded means that volume-guard runs and the namespace enforces pod safety. fenced means that it also fences nodes,
	// and no user force-deletes the pod.
	guarded, fenced bool
}

// How the pod was deleted, and its fate.
const (
	admitted      = "force admitted"
	refused       = "force refused"
	evictedPod    = "evicted"
	replacedEarly = "replaced while cut off"
	replacedLate  = "replaced after return"

	replacedFenced = "replaced after proof"
)

// podOutcome is the end of a scenario in the API server and in the volume.
type podOutcome struct {
	// deleted and replaced are each one of the constants.
	deleted, replaced string
	// data is podNodes' judgement of the stamps in the volume.
	data string
}

// Cells are the parts of the outcome.
func (o podOutcome) Cells() []string { return []string{o.deleted, o.replaced, o.data} }

// podNodes are the two nodes of the fourth act.
type podNodes interface {
	// describe describes the nodes in one line.
	describe() string
	// volume makes a volume and a claim of that name that is bound to it.
	volume(ctx context.Context, maker objects.Maker, name string) (*objects.Volume, error)
	// pod is the spec of a pod that writes to a claim.
	pod(claim string) v1.PodSpec
	// real reports whether the nodes run processes that write.
	real() bool
	// cutOff stops the kubelet of a node, and heal ends that.
	cutOff(node string) error
	heal(node string) error
	// agent is the spec of a pod that powers a node off, and boot starts such a node again.
	agent() v1.PodSpec
	boot(ctx context.Context, node string) error
	// waitWritten waits until a pod writes to the volume.
	waitWritten(ctx context.Context, vol *objects.Volume, pod types.UID) error
	// writers reports how many pods wrote to the volume at once: data is alone or together.
	writers(vol *objects.Volume) (data, detail string, err error)
	alone() string
	together() string
}

// podScenarios returns the scenarios as they should end on these nodes.
func podScenarios(nodes podNodes) []podScenario {
	forced := podScenario{
		name: "forced",
		Scenario: stage.Scenario{
			Title: "Forced pod, volume-guard off",
			Description: "A StatefulSet's pod writes to its volume on a node that is cut off. Somebody deletes the pod\n" +
				"with kubectl delete pod --force, as many do when it does not end.",
			Ends: "two pods write to one volume", Harm: "two at once",
			Conclusion: "The API object was gone, the process was not: a replacement started beside it, on the same\n" +
				"volume.",
			Want: podOutcome{admitted, replacedEarly, nodes.together()},
		},
	}
	if !nodes.real() {
		forced.Harm = "too early"
		forced.Conclusion = "The API object was gone, and nobody had reported the end of its processes: a replacement " +
			"started.\nOn real nodes both write to the volume."
	}
	return []podScenario{forced, {
		name: "held", guarded: true,
		Scenario: stage.Scenario{
			Title:       "Forced pod, held by volume-guard",
			Description: "The same in a namespace with the label csi-reclaimer.io/pod-safety=enforce.",
			Ends:        "one after the other",
			Conclusion: "The force deletion was refused with the reason. The deleted pod stayed until its kubelet had\n" +
				"reported the end of its processes; only then it was replaced.",
			Want: podOutcome{refused, replacedLate, nodes.alone()},
		},
	}, {
		name: "fenced", guarded: true, fenced: true,
		Scenario: stage.Scenario{
			Title:       "Node fenced by a policy",
			Description: "The node is cut off again, nobody is there, and volume-guard may fence nodes.",
			Ends:        "one after the other, at once",
			Conclusion: "The pod went to the other node as soon as it was proven that the first one was off, and the node\n" +
				"was taken back once it had booted.",
			Want: podOutcome{evictedPod, replacedFenced, nodes.alone()},
		},
	}}
}

// podPlay is one scenario under way.
type podPlay struct {
	*environment
	scenario podScenario
	t        *stage.Timeline
	maker    objects.Maker
	vol      *objects.Volume
	first    *v1.Pod
	seen     podOutcome
}

const podName = "db-0"

// run plays the scenario.
func (play *podPlay) run(ctx context.Context) (stage.Ending, error) {
	play.t = play.Printer.Timeline()
	steps := []func(context.Context) error{play.begin, play.force, play.cutOff, play.heal, play.look, play.end}
	if play.scenario.fenced {
		play.t = play.Printer.LiveTimeline() // it takes a minute
		steps = []func(context.Context) error{play.begin, play.evicted, play.fenced, play.look, play.returned, play.end}
	}
	err := runSteps(ctx, play.t, steps)
	return play.seen, err
}

// runSteps runs the steps of a scenario until one fails, and prints its timeline.
func runSteps(ctx context.Context, t *stage.Timeline, steps []func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 8*cluster.Patience)
	defer cancel()
	defer t.Print()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin has a StatefulSet's pod write to a volume on the first node, and cuts it off.
func (play *podPlay) begin(ctx context.Context) (err error) {
	if err := play.prepare(ctx); err != nil {
		return err
	}
	play.maker = play.Maker
	play.maker.Namespace = play.scenario.name
	if play.vol, err = play.nodes.volume(ctx, play.maker, play.scenario.name); err != nil {
		return err
	}
	play.t.User("makes a StatefulSet of one pod that writes to a volume")
	spec := play.nodes.pod(play.vol.ClaimName)
	if play.scenario.fenced {
		spec = tolerating(spec)
	}
	if err := play.cordon(ctx, cluster.Node2); err != nil {
		return err
	}
	if err := play.makeStatefulSet(ctx, play.scenario.name, spec); err != nil {
		return err
	}
	if play.first, err = play.waitRunning(ctx, ""); err != nil {
		return err
	}
	play.t.API("pod " + podName + " runs on " + play.first.Spec.NodeName)
	if err := play.cordon(ctx, cluster.Node1); err != nil {
		return err
	}
	what := "the program that plays it is stopped"
	if play.nodes.real() {
		what = "its kubelet is stopped, its processes run on"
	}
	play.t.Demo("cuts " + cluster.Node1 + " off: " + what)
	return play.nodes.cutOff(cluster.Node1)
}

// prepare creates the namespace, and starts the scenario's controllers of volume-guard.
func (play *podPlay) prepare(ctx context.Context) error {
	name := play.scenario.name
	if !play.scenario.guarded {
		return play.makeNamespace(ctx, name, nil)
	}
	if !play.scenario.fenced {
		play.t.User("starts volume-guard --controllers=pod-safety, and labels the namespace")
		if err := play.startPodSafety(ctx); err != nil {
			return err
		}
		return play.makeSafeNamespace(ctx, name)
	}
	play.t.User("starts volume-guard --controllers=pod-safety,node-fencing")
	if err := play.startFencing(ctx); err != nil {
		return err
	}
	if err := play.makeSafeNamespace(ctx, name); err != nil {
		return err
	}
	return play.createPolicy(ctx)
}

// waitRunning waits until the pod runs and writes that is not the one with this UID.
func (play *podPlay) waitRunning(ctx context.Context, not types.UID) (pod *v1.Pod, err error) {
	err = cluster.Until(ctx, "pod "+podName+" to run", func(ctx context.Context) (bool, error) {
		pod, err = play.Client.CoreV1().Pods(play.scenario.name).Get(ctx, podName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && pod.UID != not && pod.Status.Phase == v1.PodRunning, err
	})
	if err == nil {
		err = play.nodes.waitWritten(ctx, play.vol, pod.UID)
	}
	return pod, err
}

// force deletes the pod by force and, where that is refused, with its grace period.
func (play *podPlay) force(ctx context.Context) error {
	pods := play.Client.CoreV1().Pods(play.scenario.name)
	play.t.User("kubectl delete pod " + podName + " --force")
	err := pods.Delete(ctx, podName, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	switch {
	case err == nil:
		play.seen.deleted = admitted
		return nil
	case !apierrors.IsForbidden(err):
		return err
	}
	play.seen.deleted = refused
	play.t.API("refuses it: a force deletion does not wait for its processes on node " + cluster.Node1 + ", which may")
	play.t.API("still write")
	play.t.User("kubectl delete pod " + podName)
	return pods.Delete(ctx, podName, metav1.DeleteOptions{})
}

// cutOff finds out whether the pod is replaced while its node is cut off.
func (play *podPlay) cutOff(ctx context.Context) error {
	if !play.scenario.guarded {
		second, err := play.waitRunning(ctx, play.first.UID)
		if err != nil {
			return err
		}
		play.seen.replaced = replacedEarly
		play.t.API("pod " + podName + " is replaced: another one runs on " + second.Spec.NodeName)
		return play.nodes.waitWritten(ctx, play.vol, play.first.UID)
	}
	if err := play.barrier(ctx); err != nil {
		return err
	}
	if err := play.nodes.waitWritten(ctx, play.vol, play.first.UID); err != nil {
		return err
	}
	now, err := play.Client.CoreV1().Pods(play.scenario.name).Get(ctx, podName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	play.seen.replaced = replacedLate
	if err != nil || now.UID != play.first.UID {
		play.seen.replaced = replacedEarly
	}
	play.t.API("pod " + podName + " is terminating, held, and not replaced")
	return nil
}

// barrier ends another pod, on the other node, so that volume-guard has had the time to do something wrong.
func (play *podPlay) barrier(ctx context.Context) error {
	vol, err := play.nodes.volume(ctx, play.maker, "other")
	if err != nil {
		return err
	}
	pod, err := play.maker.MakePod(ctx, objects.PodSpec{Name: "other", Change: func(pod *v1.Pod) {
		pod.Spec = play.nodes.pod(vol.ClaimName)
		pod.Spec.NodeName = cluster.Node2
	}})
	if err != nil {
		return err
	}
	if _, err := pod.WaitRunning(ctx); err != nil {
		return err
	}
	if err := pod.Wait(ctx, "held", func(pod *v1.Pod) bool {
		return pod != nil && len(pod.Finalizers) == 1 && pod.Finalizers[0] == records.RunningFinalizer
	}); err != nil {
		return err
	}
	if err := pod.Delete(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := pod.WaitGone(ctx); err != nil {
		return err
	}
	play.t.Demo(fmt.Sprintf("another held pod, on %s, was deleted meanwhile, and is gone after %v", cluster.Node2,
		stage.Rounded(time.Since(began))))
	return nil
}

// heal ends the partition, and waits for the replacement.
func (play *podPlay) heal(ctx context.Context) error {
	play.t.Demo(cluster.Node1 + " is back")
	if err := play.nodes.heal(cluster.Node1); err != nil || !play.scenario.guarded {
		return err
	}
	second, err := play.waitRunning(ctx, play.first.UID)
	if err == nil {
		play.t.API("pod " + podName + " is gone, and its replacement runs on " + second.Spec.NodeName)
	}
	return err
}

// look reads the volume.
func (play *podPlay) look(context.Context) (err error) {
	play.seen.data, err = written(play.t, play.nodes, play.vol)
	return err
}

// written writes down how many pods wrote to the volume at once, and returns it.
func written(t *stage.Timeline, nodes podNodes, vol *objects.Volume) (data string, err error) {
	data, detail, err := nodes.writers(vol)
	if detail != "" {
		t.Disk(detail)
	}
	return data, err
}

// end removes the StatefulSet with its pod.
func (play *podPlay) end(ctx context.Context) error {
	if err := play.Client.AppsV1().StatefulSets(play.scenario.name).Delete(ctx, "db", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return play.waitNoPods(ctx, play.scenario.name)
}

// waitNoPods waits until all pods of a namespace have ended.
func (env *environment) waitNoPods(ctx context.Context, namespace string) error {
	return cluster.Until(ctx, "the pods to end", func(ctx context.Context) (bool, error) {
		list, err := env.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, err
	})
}

// explainNode shows the plugin's output for the first node: the objects that wait for it, and the policy's action.
func (play *podPlay) explainNode(ctx context.Context) error {
	play.t.User("kubectl reclaim explain node/" + cluster.Node1)
	var said explain.Explanation
	if err := play.AskPlugin(ctx, &said, "explain", "node/"+cluster.Node1); err != nil {
		return err
	}
	play.t.Plugin(said.Headline)
	for _, fact := range said.Facts {
		if fact.Name == "Policy" {
			play.t.Plugin(fact.Name + " " + fact.Text)
		}
	}
	return nil
}
