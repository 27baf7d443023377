//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// setsAct is the fifth act, in the environment of the first.
type setsAct struct {
	*environment
	t     *timeline
	node  *playedNodes
	guard *program.Program
	// binary is volume-guard, plugin kubectl-reclaim.
	binary, plugin string
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
	pluginName                      = "kubectl-reclaim"
)

// setUp starts the additional programs of the act: csi-reclaimer is off since the first act.
func (act *setsAct) setUp(ctx context.Context) (err error) {
	t := act.p.liveTimeline()
	t.demo("compiling missing programs")
	building, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	if act.binary, err = program.Build(building, guardName, act.p.out); err != nil {
		return err
	}
	if act.plugin, err = program.Build(building, pluginName, act.p.out); err != nil {
		return err
	}
	t.demo("starting csi-reclaimer again, which makes the volumes")
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := act.program.Restart(); err != nil {
		return err
	}
	act.handles = map[string]string{}
	return act.startNode(ctx)
}

// startNode plays a node with pods that use volumes of the driver, and waits for csi-reclaimer.
func (act *setsAct) startNode(ctx context.Context) error {
	if _, err := act.maker.MakeDriver(ctx, nil); err != nil {
		return err
	}
	act.node = &playedNodes{cluster: act.cluster, silence: map[string]func() error{}}
	if err := act.node.start(ctx, podNode1); err != nil {
		return err
	}
	return act.program.WaitReady(ctx)
}

// stop ends the programs of setUp and of the scenarios.
func (act *setsAct) stop() error {
	var errs []error
	if act.guard != nil {
		errs = append(errs, act.guard.Stop())
	}
	if act.node != nil {
		errs = append(errs, act.node.stop())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", errUntidy, err)
	}
	return nil
}

// play plays one scenario.
func (act *setsAct) play(ctx context.Context, sc setScenario) (seen setOutcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*patience)
	defer cancel()
	act.t = act.p.timeline()
	defer act.t.print()
	steps := []func(context.Context) error{act.makeSets, act.scaleWithoutPod, act.scaleDownAndUp, act.barrier}
	if sc.guarded {
		steps = []func(context.Context) error{act.startGuard, act.scaleBack, act.preview, act.scaleWithoutPod,
			act.waitDeleted, act.listRetained, act.waitWoken}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return seen, err
		}
	}
	return act.look(ctx)
}

// makeSets makes three sets of two pods, waits until they run, and writes into their volumes.
func (act *setsAct) makeSets(ctx context.Context) error {
	act.t.user("makes StatefulSets of two pods: cache and queue with whenScaled: Delete, db with Retain")
	for _, name := range []string{cacheSet, queueSet, retainedSet} {
		if err := act.makeSet(ctx, name, 2); err != nil {
			return err
		}
	}
	for _, name := range []string{cacheSet, queueSet, retainedSet} {
		if err := act.waitReady(ctx, name, 2); err != nil {
			return err
		}
		for i := range 2 {
			if err := act.write(ctx, fmt.Sprintf("data-%s-%d", name, i)); err != nil {
				return err
			}
		}
	}
	act.t.demo("writes a file into each of the 6 volumes")
	act.t.user("scales db to 1")
	return act.scale(ctx, retainedSet, 1)
}

func (act *setsAct) makeSet(ctx context.Context, name string, replicas int32) error {
	const del = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	const retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	when := del
	if name == retainedSet {
		when = retain
	}
	labels := map[string]string{"app": name}
	claim := v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	claim.Spec = v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To(className(
			v1.PersistentVolumeReclaimDelete)),
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	_, err := act.sets().Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: retain, WhenScaled: when},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{claim},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
				NodeName: podNode1, TerminationGracePeriodSeconds: ptr.To[int64](5),
				AutomountServiceAccountToken: ptr.To(false),
				Containers: []v1.Container{{Name: "main", Image: "none",
					VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			}},
		},
	}, metav1.CreateOptions{})
	return err
}

// startGuard starts volume-guard for claims of StatefulSets alone.
func (act *setsAct) startGuard(ctx context.Context) error {
	act.t.user("starts volume-guard --controllers=statefulset-claims,-intree --scale-down-grace=1s")
	namespace, kubeconfig, err := act.account(ctx, guardName)
	if err != nil {
		return err
	}
	if _, err := rbac.GrantGuardController(ctx, act.client, namespace, guardName, "statefulset-claims"); err != nil {
		return err
	}
	dir, err := act.folder(guardName)
	if err != nil {
		return err
	}
	if act.guard, err = program.Start(ctx, program.Options{Name: guardName, Binary: act.binary, Dir: dir, Args: []string{
		"--kubeconfig=" + kubeconfig, "--leader-election=false", "--controllers=statefulset-claims,-intree",
		"--scale-down-grace=1s",
	}}); err != nil {
		return err
	}
	return act.guard.WaitReady(ctx)
}

// scaleBack gives cache its second pod again, which takes the claim that was left.
func (act *setsAct) scaleBack(ctx context.Context) error {
	act.t.user("scales cache to 2")
	if err := act.scale(ctx, cacheSet, 2); err != nil {
		return err
	}
	if err := act.waitReady(ctx, cacheSet, 2); err != nil {
		return err
	}
	return act.until(ctx, "volume-guard to have seen pod cache-1", func(ctx context.Context) (bool, error) {
		claim, err := act.claims().Get(ctx, cacheClaim, metav1.GetOptions{})
		return err == nil && claim.Annotations[statefulset.MarkAnnotation] != "", err
	})
}

// waitDeleted waits for the claim that is scaled away to go, with its volume.
func (act *setsAct) waitDeleted(ctx context.Context) error {
	began := time.Now()
	err := act.until(ctx, "the claim and the volume of cache-1 to be gone", func(ctx context.Context) (bool, error) {
		there, err := act.has(act.handles[cacheClaim])
		return !there, err
	})
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		act.t.demo(fmt.Sprintf("after %v the volume of cache-1 is not gone", patience))
	default:
		act.t.api(fmt.Sprintf("claim %s and its volume are gone after %v", cacheClaim, rounded(time.Since(began))))
	}
	return nil
}

// waitWoken waits for the pod that queue lacks.
func (act *setsAct) waitWoken(ctx context.Context) error {
	err := act.waitReady(ctx, queueSet, 2)
	if err == nil {
		err = act.until(ctx, "claim "+queueClaim+" to be bound", func(ctx context.Context) (bool, error) {
			handle, err := act.handle(ctx, queueClaim)
			return handle != "", err
		})
	}
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		act.t.demo(fmt.Sprintf("after %v queue has no second pod", patience))
	default:
		act.t.api("queue has its second pod again")
	}
	return nil
}

// look asks the API server and the disk; never volume-guard.
func (act *setsAct) look(ctx context.Context) (seen setOutcome, err error) {
	seen = setOutcome{claim: claimDeleted, others: true}
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
	queue, err := act.sets().Get(ctx, queueSet, metav1.GetOptions{})
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
func (act *setsAct) newVolume(ctx context.Context) (string, error) {
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

// explainGuard prints logs that may show the reason of a failure.
func (act *setsAct) explainGuard(ctx context.Context) {
	if act.guard != nil && ctx.Err() == nil {
		act.p.head("The last lines of volume-guard.log")
		act.p.raw(act.guard.LogTail(30))
	}
}
