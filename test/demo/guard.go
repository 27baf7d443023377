//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// guardScenario is one scenario of the third act and its right end. Each has its own volume, of an in-tree plugin and
// with policy Delete.
type guardScenario struct {
	name, title, description, ends string
	// conclusion is printed when the scenario ended as wanted.
	conclusion string

	// guardOff means that volume-guard is not started yet. inUse means that a pod uses the claim, which is deleted first;
	// otherwise the PV is.
	guardOff, inUse bool

	want guardOutcome
}

// The fates of a claim that was deleted while a pod used it.
const (
	noPod   = "no pod"
	keptFor = "kept for its pod"
	lostTo  = "taken from its pod"
)

// guardOutcome is the end of a scenario in the API server and on the disk.
type guardOutcome struct {
	// pv is the PV's phase; claim is the claim's, or terminating; or gone.
	pv, claim string
	// used is one of the constants.
	used string
	// twins is the number of other PVs of the same directory.
	twins int
	// onDisk means that the volume's directory exists.
	onDisk bool
}

func (o guardOutcome) String() string { return strings.Join(o.cells(), ", ") }

func (o guardOutcome) cells() []string {
	directory := "directory gone"
	if o.onDisk {
		directory = "directory on disk"
	}
	return []string{"PV " + o.pv, "claim " + o.claim, o.used, count(o.twins, "twin"), directory}
}

func guardScenarios() []guardScenario {
	return []guardScenario{
		{
			name: "in-tree-leak", title: "In-tree PV first, volume-guard off",
			description: "The volume is a directory of an in-tree plugin: kube-controller-manager deletes it, not a " +
				"CSI\ndriver. Kubernetes 1.30 by itself, and the PV is deleted before its claim.",
			ends:       "the directory leaks",
			conclusion: "Leaked: the policy said Delete, the directory stays, and no object names it.",

			guardOff: true,
			want:     guardOutcome{pv: gone, claim: gone, used: noPod, onDisk: true},
		},
		{
			name: "in-tree", title: "In-tree PV deleted first",
			description: "The same with volume-guard.",
			ends:        "the directory is deleted",
			conclusion: "Kubernetes 1.30 deletes no volume whose PV is being deleted. So volume-guard held the PV and\nmade " +
				"a twin, a second PV of the same directory, for which it does.",
			want: guardOutcome{pv: gone, claim: gone, used: noPod},
		},
		{
			name: "in-use", title: "Claim deleted while a pod uses it",
			description: "kube-controller-manager is to run without its persistentvolumeclaim-protection-controller, " +
				"and\nvolume-guard does its work. The pod is an object alone: no kubelet runs.",
			ends:       "the claim stays until the pod ends",
			conclusion: "The claim was kept for as long as its pod was there; then claim and volume went.",
			inUse:      true,
			want:       guardOutcome{pv: gone, claim: gone, used: keptFor},
		},
	}
}

// guardResult is a scenario of the third act with how it ended.
type guardResult struct {
	scenario guardScenario
	vol      *objects.Volume
	seen     guardOutcome
}

func (r guardResult) verdict() verdict {
	return verdict{title: r.scenario.title, conclusion: r.scenario.conclusion, harm: leakedIf(r.scenario.guardOff),
		want: r.scenario.want,
		seen: r.seen}
}

// playGuard plays one scenario, as play does.
func (env *environment) playGuard(ctx context.Context, sc guardScenario) (r guardResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*patience)
	defer cancel()
	t := env.p.timeline()
	defer t.print()
	if err := env.prepare(ctx, t, sc); err != nil {
		return r, err
	}
	pv, err := env.watchPV(ctx, t, "PV", sc.name)
	if err != nil {
		return r, err
	}
	defer pv.stop()
	twin, err := env.watchPV(ctx, t, "twin", intree.TwinName(sc.name))
	if err != nil {
		return r, err
	}
	defer twin.stop()
	claim, err := env.watchClaim(ctx, t, sc.name)
	if err != nil {
		return r, err
	}
	defer claim.stop()
	r = guardResult{scenario: sc, seen: guardOutcome{used: noPod}}
	if r.vol, err = env.makeFolder(ctx, t, sc.name); err != nil {
		return r, err
	}
	if !sc.guardOff {
		if err := pv.until(ctx, "held by volume-guard's finalizer", isGuarded); err != nil {
			return r, err
		}
	}
	if sc.inUse {
		r.seen.used, err = env.deleteInUse(ctx, t, r.vol)
	} else {
		err = env.deletePVFirst(ctx, t, r.vol, pv)
	}
	if err != nil {
		return r, err
	}
	if err := errors.Join(claim.patient(ctx, t), pv.until(ctx, gone, never), twin.ifThere(ctx)); err != nil {
		return r, err
	}
	for _, w := range []interface{ stop() }{pv, twin, claim} { // before the last look, so that lines come in order
		w.stop()
	}
	err = env.lookGuard(ctx, &r)
	t.folder(r.seen.onDisk)
	return r, err
}

func isGuarded(pv *v1.PersistentVolume) bool { return hasFinalizer(pv, intree.Finalizer) }

// never is wanted of a PV that is to go.
func never(*v1.PersistentVolume) bool { return false }

// prepare starts volume-guard for the first scenario that has it, and switches off Kubernetes' own controller for the
// work that the scenario shows.
func (env *environment) prepare(ctx context.Context, t *timeline, sc guardScenario) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if !sc.guardOff && env.program == nil {
		t.user("starts volume-guard " + guardControllers)
		if env.program, err = program.Start(ctx, env.guard); err != nil {
			return err
		}
		if err := env.program.WaitReady(ctx); err != nil {
			return err
		}
	}
	if !sc.inUse {
		return nil
	}
	t.user("restarts kube-controller-manager without that controller")
	return env.cluster.ControllerManager.Restart(ctx, "--controllers=*,-persistentvolumeclaim-protection-controller")
}

// makeFolder makes a directory with the PV and the claim that the plugin would have made for it. The plugin's
// own directories are not in a folder that goes with the environment.
func (env *environment) makeFolder(ctx context.Context, t *timeline, name string) (*objects.Volume, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, err := env.folder(name)
	if err != nil {
		return nil, err
	}
	t.user(fmt.Sprintf("makes directory, PV and claim %q, policy %s", name, v1.PersistentVolumeReclaimDelete))
	return env.maker.Make(ctx, objects.Spec{Name: name, Handle: path, Policy: v1.PersistentVolumeReclaimDelete,
		Change: func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": hostPath}
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}
		}})
}

func (env *environment) deletePVFirst(ctx context.Context, t *timeline, vol *objects.Volume, pv *watcher) error {
	t.user("deletes the PV")
	if err := vol.DeletePV(ctx); err != nil {
		return err
	}
	if err := pv.until(ctx, "terminating", isTerminating); err != nil {
		return err
	}
	t.user("deletes the claim")
	return vol.DeleteClaim(ctx)
}

// deleteInUse deletes the claim and then the pod that uses it, and returns the claim's fate in between.
func (env *environment) deleteInUse(ctx context.Context, t *timeline, vol *objects.Volume) (used string, err error) {
	t.user("makes a pod that uses the claim")
	pod, err := env.maker.MakePod(ctx, objects.PodSpec{
		Name: "user", Claims: []string{vol.ClaimName}, Node: "node",
		// No kubelet reports the pod's end.
		Change: func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) },
	})
	if err != nil {
		return "", err
	}
	t.user("deletes the claim")
	if err := vol.DeleteClaim(ctx); err != nil {
		return "", err
	}
	if err := env.barrierGuard(ctx, t); err != nil {
		return "", err
	}
	now, err := vol.Claim(ctx)
	if err != nil {
		return "", err
	}
	used = lostTo
	if claimState(now) == terminating {
		used = keptFor
	}
	t.user("deletes the pod")
	return used, pod.Delete(ctx)
}

// barrierGuard has volume-guard release another claim, which no pod uses. volume-guard has then done its pending work
// on the scenario's claim.
func (env *environment) barrierGuard(ctx context.Context, t *timeline) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	claim, err := env.maker.MakeClaim(waiting, objects.ClaimSpec{Name: "unused", Class: "none"})
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
		t.demo(fmt.Sprintf("another claim, which no pod uses, is not gone within %v", patience))
	default:
		t.demo("another claim, which no pod uses, was deleted meanwhile and is gone")
	}
	return nil
}

// terminating is the value of guardOutcome.claim for a claim that is being deleted.
const terminating = "terminating"

func claimState(claim *v1.PersistentVolumeClaim) string {
	switch {
	case claim == nil:
		return gone
	case claim.DeletionTimestamp != nil:
		return terminating
	}
	return string(claim.Status.Phase)
}

// lookGuard asks the API server and the disk; never volume-guard.
func (env *environment) lookGuard(ctx context.Context, r *guardResult) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pv, err := r.vol.PV(ctx)
	if err != nil {
		return err
	}
	claim, err := r.vol.Claim(ctx)
	if err != nil {
		return err
	}
	list, err := env.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	_, err = os.Stat(r.vol.Handle)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.seen = guardOutcome{pv: phase(pv), claim: claimState(claim), used: r.seen.used, twins: twins(list.Items, r.vol),
		onDisk: err == nil}
	return nil
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
