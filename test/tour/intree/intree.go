//go:build unix

// Package intree is the act of volume-guard beside an older Kubernetes: volumes of an in-tree plugin, and a claim that
// is deleted while a pod uses it.
package intree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/guard"
)

// Act returns the scenarios, as they are listed.
func Act() stage.Act {
	return stage.NewAct("Then volume-guard beside an older Kubernetes, whose in-tree plugins have no such\nsidecar.",
		list())
}

// Show plays the scenarios in a cluster that ends with them.
func Show(ctx context.Context, p *stage.Printer) (err error) {
	env, err := setUp(ctx, p)
	defer func() { err = env.End(ctx, err) }()
	if err == nil {
		err = env.playAll(ctx)
	}
	env.Explain(ctx, err)
	return err
}

func (env *environment) playAll(ctx context.Context) error {
	var all []stage.Scenario
	for _, sc := range list() {
		play := &play{environment: env, scenario: sc, used: noPod}
		sc.Play, sc.Again = play.run, play.look
		all = append(all, sc.Scenario)
	}
	return env.Printer.Play(ctx, "What the API server and the disk say", all)
}

// scenario is one scenario; its Want is an outcome. Each has its own volume, of an in-tree plugin and with policy
// Delete.
type scenario struct {
	stage.Scenario
	name string
	// guardOff means that volume-guard is not started yet. inUse means that a pod uses the claim, which is deleted first;
	// otherwise the PV is.
	guardOff, inUse bool
}

// The fates of a claim that was deleted while a pod used it.
const (
	noPod   = "no pod"
	keptFor = "kept for its pod"
	lostTo  = "taken from its pod"
)

// outcome is the end of a scenario in the API server and on the disk.
type outcome struct {
	// pv is the PV's phase; claim is the claim's, or terminating; or gone.
	pv, claim string
	// used is one of the constants.
	used string
	// twins is the number of other PVs of the same directory.
	twins int
	// onDisk means that the volume's directory exists.
	onDisk bool
}

// Cells are the parts of the outcome in words.
func (o outcome) Cells() []string {
	directory := "directory gone"
	if o.onDisk {
		directory = "directory on disk"
	}
	return []string{"PV " + o.pv, "claim " + o.claim, o.used, stage.Count(o.twins, "twin"), directory}
}

func list() []scenario {
	return []scenario{
		{
			name: "in-tree-leak", guardOff: true,
			Scenario: stage.Scenario{
				Title: "In-tree PV first, volume-guard off",
				Description: "The volume is a directory of an in-tree plugin: kube-controller-manager deletes it, not a " +
					"CSI\ndriver. Kubernetes 1.30 by itself, and the PV is deleted before its claim.",
				Ends: "the directory leaks", Harm: stage.Leaked,
				Conclusion: "Leaked: the policy said Delete, the directory stays, and no object names it.",
				Want:       outcome{pv: cluster.Gone, claim: cluster.Gone, used: noPod, onDisk: true},
			},
		},
		{
			name: "in-tree",
			Scenario: stage.Scenario{
				Title:       "In-tree PV deleted first",
				Description: "The same with volume-guard.",
				Ends:        "the directory is deleted",
				Conclusion: "Kubernetes 1.30 deletes no volume whose PV is being deleted. So volume-guard held the PV and\nmade " +
					"a twin, a second PV of the same directory, for which it does.",
				Want: outcome{pv: cluster.Gone, claim: cluster.Gone, used: noPod},
			},
		},
		{
			name: "in-use", inUse: true,
			Scenario: stage.Scenario{
				Title: "Claim deleted while a pod uses it",
				Description: "kube-controller-manager is to run without its persistentvolumeclaim-protection-controller, " +
					"and\nvolume-guard does its work. The pod is an object alone: no kubelet runs.",
				Ends:       "the claim stays until the pod ends",
				Conclusion: "The claim was kept for as long as its pod was there; then claim and volume went.",
				Want:       outcome{pv: cluster.Gone, claim: cluster.Gone, used: keptFor},
			},
		},
	}
}

// play is one scenario under way.
type play struct {
	*environment
	scenario scenario
	t        *stage.Timeline
	vol      *objects.Volume
	pv       *cluster.Watcher
	// used is one of the constants.
	used string
}

// run plays the scenario.
func (p *play) run(ctx context.Context) (_ stage.Ending, err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*cluster.Patience)
	defer cancel()
	p.t = p.Printer.Timeline()
	defer p.t.Print()
	name := p.scenario.name
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	if p.pv, err = p.WatchPV(ctx, p.t, "PV", name); err != nil {
		return nil, err
	}
	defer p.pv.Stop()
	twin, err := p.WatchPV(ctx, p.t, "twin", volume.TwinName(name))
	if err != nil {
		return nil, err
	}
	defer twin.Stop()
	claim, err := p.WatchClaim(ctx, p.t, name)
	if err != nil {
		return nil, err
	}
	defer claim.Stop()
	if err := p.makeFolder(ctx); err != nil {
		return nil, err
	}
	if err := p.delete(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(claim.UntilGone(ctx), p.pv.UntilGone(ctx), twin.UntilGoneAgain(ctx)); err != nil {
		return nil, err
	}
	for _, w := range []interface{ Stop() }{p.pv, twin, claim} { // before the last look, so that lines come in order
		w.Stop()
	}
	seen, err := p.see(ctx)
	p.t.Disk("the directory is " + map[bool]string{true: "there", false: "gone"}[seen.onDisk])
	return seen, err
}

// prepare starts volume-guard for the first scenario that has it, and switches off Kubernetes' own controller for the
// work that the scenario shows.
func (p *play) prepare(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	if !p.scenario.guardOff && p.Program == nil {
		p.t.User("starts volume-guard " + controllers)
		// The patience is for clusters in which Kubernetes' own controllers are slow.
		p.Program, err = guard.Start(ctx, p.Cluster, p.binary, p.kubeconfig, controllers, "--protection-patience=2s")
		if err != nil {
			return err
		}
	}
	if !p.scenario.inUse {
		return nil
	}
	p.t.User("restarts kube-controller-manager without that controller")
	return p.Plane.ControllerManager.Restart(ctx, "--controllers=*,-persistentvolumeclaim-protection-controller")
}

// makeFolder makes a directory with the PV and the claim that the plugin would have made for it. The plugin's
// own directories are not in a folder that goes with the environment.
func (p *play) makeFolder(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	name := p.scenario.name
	path, err := p.Folder(name)
	if err != nil {
		return err
	}
	p.t.User(fmt.Sprintf("makes directory, PV and claim %q, policy %s", name, v1.PersistentVolumeReclaimDelete))
	p.vol, err = p.Maker.Make(ctx, objects.Spec{Name: name, Handle: path, Policy: v1.PersistentVolumeReclaimDelete,
		Change: func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": hostPath}
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}
		}})
	return err
}

// delete deletes PV and claim in the scenario's order, once volume-guard holds the PV.
func (p *play) delete(ctx context.Context) error {
	if !p.scenario.guardOff {
		if err := p.pv.Until(ctx, "held by volume-guard's finalizer", isGuarded); err != nil {
			return err
		}
	}
	if p.scenario.inUse {
		return p.deleteInUse(ctx)
	}
	p.t.User("deletes the PV")
	if err := p.vol.DeletePV(ctx); err != nil {
		return err
	}
	if err := p.pv.Until(ctx, "terminating", cluster.IsTerminating); err != nil {
		return err
	}
	p.t.User("deletes the claim")
	return p.vol.DeleteClaim(ctx)
}

func isGuarded(pv *v1.PersistentVolume) bool {
	return pv != nil && slices.Contains(pv.Finalizers, intree.Finalizer)
}

// deleteInUse deletes the claim and then the pod that uses it, and records the claim's fate in between.
func (p *play) deleteInUse(ctx context.Context) error {
	p.t.User("makes a pod that uses the claim")
	pod, err := p.Maker.MakePod(ctx, objects.PodSpec{
		Name: "user", Claims: []string{p.vol.ClaimName}, Node: "node",
		// No kubelet reports the pod's end.
		Change: func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) },
	})
	if err != nil {
		return err
	}
	p.t.User("deletes the claim")
	if err := p.vol.DeleteClaim(ctx); err != nil {
		return err
	}
	if err := p.barrier(ctx); err != nil {
		return err
	}
	now, err := p.vol.Claim(ctx)
	if err != nil {
		return err
	}
	p.used = lostTo
	if claimState(now) == terminating {
		p.used = keptFor
	}
	p.t.User("deletes the pod")
	return pod.Delete(ctx)
}

// barrier has volume-guard release another claim, which no pod uses. volume-guard has then done its pending work on the
// scenario's claim.
func (p *play) barrier(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	claim, err := p.Maker.MakeClaim(waiting, objects.ClaimSpec{Name: "unused", Class: "none"})
	if err != nil {
		return err
	}
	if err := claim.Delete(waiting); err != nil {
		return err
	}
	switch err := claim.WaitGone(waiting); {
	case ctx.Err() != nil:
		return err
	case err != nil:
		p.t.Demo(fmt.Sprintf("another claim, which no pod uses, is not gone within %v", cluster.Patience))
	default:
		p.t.Demo("another claim, which no pod uses, was deleted meanwhile and is gone")
	}
	return nil
}

// terminating is the value of outcome.claim for a claim that is being deleted.
const terminating = "terminating"

func claimState(claim *v1.PersistentVolumeClaim) string {
	switch {
	case claim == nil:
		return cluster.Gone
	case claim.DeletionTimestamp != nil:
		return terminating
	}
	return string(claim.Status.Phase)
}

func (p *play) look(ctx context.Context) (stage.Ending, error) { return p.see(ctx) }

// see asks the API server and the disk; never volume-guard.
func (p *play) see(ctx context.Context) (none outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	pv, err := p.vol.PV(ctx)
	if err != nil {
		return none, err
	}
	claim, err := p.vol.Claim(ctx)
	if err != nil {
		return none, err
	}
	list, err := p.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return none, err
	}
	_, err = os.Stat(p.vol.Handle)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, err
	}
	return outcome{pv: cluster.Phase(pv), claim: claimState(claim), used: p.used, twins: twins(list.Items, p.vol),
		onDisk: err == nil}, nil
}

// twins counts the PVs of the volume's directory, but for its own.
func twins(pvs []v1.PersistentVolume, vol *objects.Volume) (n int) {
	for _, pv := range pvs {
		if pv.Name != vol.Name && pv.Spec.HostPath != nil && pv.Spec.HostPath.Path == vol.Handle {
			n++
		}
	}
	return n
}
