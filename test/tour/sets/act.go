//go:build unix

package sets

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/guard"
)

// act is the act under way, in the cluster of the demo.
type act struct {
	*cluster.CSI
	t     *stage.Timeline
	nodes *cluster.Nodes
	guard *program.Program
	// binary is volume-guard.
	binary string
	// handles are the volumes with data, by claim.
	handles map[string]string
	// orphan is the UID of the claim that is scaled away without a pod.
	orphan types.UID
	// forecasts and retainedClaims are the plugin's answers: the effect of a scale-down on claims, and the claims left
	// behind.
	forecasts      map[string]forecast
	retainedClaims []string
}

const (
	cacheSet, queueSet, retainedSet = "cache", "queue", "db"
	cacheClaim, queueClaim          = "data-cache-1", "data-queue-1"
	dataFile                        = "data"
)

// setUp starts the additional programs of the act: csi-reclaimer is off since the scenarios of the demo.
func (act *act) setUp(ctx context.Context) (err error) {
	t := act.Printer.LiveTimeline()
	t.Demo("compiling missing programs")
	if act.binary, err = guard.Build(ctx, act.Cluster); err != nil {
		return err
	}
	if err := act.BuildPlugin(ctx); err != nil {
		return err
	}
	t.Demo("starting csi-reclaimer again, which makes the volumes")
	ctx, stop := context.WithTimeout(ctx, cluster.Patience)
	defer stop()
	if err := act.Program.Restart(); err != nil {
		return err
	}
	act.handles = map[string]string{}
	act.nodes, err = act.StartNode(ctx)
	return err
}

// play plays one scenario.
func (act *act) play(ctx context.Context, sc scenario) (stage.Ending, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*cluster.Patience)
	defer cancel()
	act.t = act.Printer.Timeline()
	defer act.t.Print()
	steps := []func(context.Context) error{act.makeSets, act.scaleWithoutPod, act.scaleDownAndUp, act.barrier}
	if sc.guarded {
		steps = []func(context.Context) error{act.startGuard, act.scaleBack, act.preview, act.scaleWithoutPod,
			act.waitDeleted, act.listRetained, act.waitWoken}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return act.look(ctx)
}

// makeSets makes three sets of two pods, waits until they run, and writes into their volumes.
func (act *act) makeSets(ctx context.Context) error {
	act.t.User("makes StatefulSets of two pods: cache and queue with whenScaled: Delete, db with Retain")
	for _, name := range []string{cacheSet, queueSet, retainedSet} {
		if err := act.MakeSet(ctx, name, 2, whenScaled(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{cacheSet, queueSet, retainedSet} {
		if err := act.WaitSet(ctx, name, 2); err != nil {
			return err
		}
		for i := range 2 {
			if err := act.write(ctx, fmt.Sprintf("data-%s-%d", name, i)); err != nil {
				return err
			}
		}
	}
	act.t.Demo("writes a file into each of the 6 volumes")
	act.t.User("scales db to 1")
	return act.ScaleSet(ctx, retainedSet, 1)
}

// whenScaled is the policy of a set for the claims of its replicas.
func whenScaled(set string) appsv1.PersistentVolumeClaimRetentionPolicyType {
	if set == retainedSet {
		return appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	return appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// startGuard starts volume-guard for claims of StatefulSets alone.
func (act *act) startGuard(ctx context.Context) error {
	act.t.User("starts volume-guard --controllers=statefulset-claims,-intree --scale-down-grace=1s")
	namespace, kubeconfig, err := act.Account(ctx, guard.Name)
	if err != nil {
		return err
	}
	if _, err := rbac.GrantGuardController(ctx, act.Client, namespace, guard.Name, "statefulset-claims"); err != nil {
		return err
	}
	act.guard, err = guard.Start(ctx, act.Cluster, act.binary, kubeconfig, "--controllers=statefulset-claims,-intree",
		"--scale-down-grace=1s")
	return err
}

// scaleBack gives cache its second pod again, which takes the claim that was left.
func (act *act) scaleBack(ctx context.Context) error {
	act.t.User("scales cache to 2")
	if err := act.ScaleSet(ctx, cacheSet, 2); err != nil {
		return err
	}
	if err := act.WaitSet(ctx, cacheSet, 2); err != nil {
		return err
	}
	return cluster.Until(ctx, "volume-guard to have seen pod cache-1", func(ctx context.Context) (bool, error) {
		claim, err := act.claims().Get(ctx, cacheClaim, metav1.GetOptions{})
		return err == nil && claim.Annotations[statefulset.MarkAnnotation] != "", err
	})
}

// waitDeleted waits for the claim that is scaled away to go, with its volume.
func (act *act) waitDeleted(ctx context.Context) error {
	began := time.Now()
	err := cluster.Until(ctx, "the claim and the volume of cache-1 to be gone", func(ctx context.Context) (bool, error) {
		there, err := act.has(act.handles[cacheClaim])
		return !there, err
	})
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		act.t.Demo(fmt.Sprintf("after %v the volume of cache-1 is not gone", stage.Rounded(time.Since(began))))
	default:
		act.t.API(fmt.Sprintf("claim %s and its volume are gone after %v", cacheClaim, stage.Rounded(time.Since(began))))
	}
	return nil
}

// waitWoken waits for the pod that queue lacks.
func (act *act) waitWoken(ctx context.Context) error {
	began := time.Now()
	err := act.WaitSet(ctx, queueSet, 2)
	if err == nil {
		err = cluster.Until(ctx, "claim "+queueClaim+" to be bound", func(ctx context.Context) (bool, error) {
			handle, err := act.handle(ctx, queueClaim)
			return handle != "", err
		})
	}
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		act.t.Demo(fmt.Sprintf("after %v queue has no second pod", stage.Rounded(time.Since(began))))
	default:
		act.t.API("queue has its second pod again")
	}
	return nil
}

// look asks the API server and the disk; never volume-guard.
func (act *act) look(ctx context.Context) (seen outcome, err error) {
	seen = outcome{claim: claimDeleted, others: true}
	claim, err := act.claims().Get(ctx, cacheClaim, metav1.GetOptions{})
	switch {
	case err == nil && claim.UID == act.orphan:
		seen.claim = claimKept
	case ignoreNotFound(err) != nil:
		return seen, err
	}
	if seen.onDisk, err = act.has(act.handles[cacheClaim]); err != nil {
		return seen, err
	}
	queue, err := act.Sets().Get(ctx, queueSet, metav1.GetOptions{})
	if err != nil {
		return seen, err
	}
	seen.pods = int(queue.Status.ReadyReplicas)
	if seen.fresh, err = act.newVolume(ctx); err != nil {
		return seen, err
	}
	for claim, handle := range act.handles {
		there, err := act.has(handle, dataFile)
		if err != nil {
			return seen, err
		}
		seen.others = seen.others && (there || claim == cacheClaim || claim == queueClaim)
	}
	seen.plugin, err = act.judgePlugin(ctx)
	return seen, err
}

// newVolume returns the contents of the volume of queue-1.
func (act *act) newVolume(ctx context.Context) (string, error) {
	handle, err := act.handle(ctx, queueClaim)
	if err != nil || handle == "" {
		return noVolume, err
	}
	switch there, err := act.has(handle, dataFile); {
	case err != nil:
		return "", err
	case there:
		return oldData, nil
	}
	return emptyVolume, nil
}
