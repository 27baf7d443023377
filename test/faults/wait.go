//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// wait returns once the step's condition is met.
func (env *environment) wait(ctx context.Context, step scenario.Step) error {
	switch {
	case step.Do == scenario.Pass:
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(step.Time)):
			return nil
		}
	case step.Do == scenario.Rest:
		return env.rest(ctx)
	case step.Volume != "":
		if env.claims[step.Volume] != nil {
			if known, err := env.waitClaim(ctx, env.vols[step.Volume], step); known || err != nil {
				return err
			}
		}
		return env.waitVolume(ctx, env.vols[step.Volume], step)
	}
	switch nth := max(step.Nth, 1); step.For {
	case "crashed":
		return env.supervisor.waitCrashes(ctx, nth)
	case "down":
		return env.supervisor.waitDown(ctx, nth)
	case "ready":
		return env.supervisor.waitReady(ctx)
	default: // applied
		return until(ctx, fmt.Sprintf("%d requests that the rules apply to", nth),
			func() (bool, error) { return env.proxy.Applied() >= nth, nil })
	}
}

func (env *environment) waitVolume(ctx context.Context, vol *objects.Volume, step scenario.Step) error {
	pv := func(want func(*v1.PersistentVolume) bool) error {
		return vol.WaitPV(ctx, step.For, func(pv *v1.PersistentVolume) bool { return pv != nil && want(pv) })
	}
	switch step.For {
	case "protected":
		return pv(protected)
	case "unprotected":
		return pv(func(pv *v1.PersistentVolume) bool { return !protected(pv) })
	case "bound":
		return pv(func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeBound })
	case "released":
		return pv(func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	case "terminating":
		return pv(func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
	case "gone":
		return vol.WaitGone(ctx)
	case "claim-gone":
		return vol.WaitClaimGone(ctx)
	case "off-disk":
		return until(ctx, "the volume of PV "+vol.Name+" to be off the disk", func() (bool, error) {
			there, err := env.onDisk()
			return !has(there, vol), err
		})
	case "called":
		_, err := env.driver.WaitCalls(ctx, func(calls []ledger.Call) bool { return count(calls, vol) >= max(step.Nth, 1) })
		return err
	}
	return fmt.Errorf("for %q: nothing to wait for", step.For)
}

// waitClaim waits for a condition of a provisioned claim; known is false for any other condition.
func (env *environment) waitClaim(ctx context.Context, vol *objects.Volume, step scenario.Step) (known bool,
	err error) {
	isInFlight := func(want bool) error {
		return until(ctx, "volume "+vol.Name+" to be "+step.For, func() (bool, error) {
			entries, err := env.inFlight(ctx)
			_, is := entries[vol.Name]
			return is == want, err
		})
	}
	switch step.For {
	case "in-flight":
		err = isInFlight(true)
	case "settled":
		err = isInFlight(false)
	case "asked":
		_, err = env.driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
			return len(slices.DeleteFunc(bySidecar(calls),
				func(c ledger.Call) bool { return c.Name != vol.Name })) >= max(step.Nth, 1)
		}, scenario.CreateVolume)
	case "on-disk":
		err = until(ctx, "volume "+vol.Name+" to be on the disk", func() (bool, error) {
			there, err := env.onDisk()
			return has(there, vol), err
		})
	default:
		return false, nil
	}
	return true, err
}

// inFlight returns the entries of the in-flight log by volume.
func (env *environment) inFlight(ctx context.Context) (map[string]inflight.Located, error) {
	return objects.InFlight(ctx, env.client, env.token, env.driver.Name())
}

func protected(pv *v1.PersistentVolume) bool {
	return slices.Contains(pv.Finalizers, volume.Finalizer)
}

// count counts the DeleteVolume calls for a volume.
func count(calls []ledger.Call, vol *objects.Volume) (n int) {
	handles := map[string]bool{vol.Handle: vol.Handle != ""}
	for _, c := range calls {
		if c.Method == scenario.CreateVolume && c.Name == vol.Name && c.Volume != "" {
			handles[c.Volume] = true
		}
	}
	for _, c := range calls {
		if c.Method == scenario.DeleteVolume && handles[c.Volume] {
			n++
		}
	}
	return n
}

// onDisk returns the names of the volumes on the driver's disk by their handles.
func (env *environment) onDisk() (map[string]string, error) {
	volumes, err := env.driver.Volumes()
	there := map[string]string{}
	for _, v := range volumes {
		there[v.ID] = v.Name
	}
	return there, err
}

// has reports whether a volume is on the disk.
func has(onDisk map[string]string, vol *objects.Volume) bool {
	for handle, name := range onDisk {
		if handle == vol.Handle || name == vol.Name {
			return true
		}
	}
	return false
}

// rest returns once every PV and claim is at rest.
func (env *environment) rest(ctx context.Context) error {
	var why []oracle.Unresting
	err := until(ctx, "rest", func() (bool, error) {
		now, err := env.objects(ctx)
		if err != nil {
			return false, err
		}
		why = slices.Concat(oracle.Unrest(env.driver.Name(), volume.Finalizer, now),
			oracle.UnrestClaims(env.driver.Name(), now), oracle.UnrestLog(now))
		return len(why) == 0, nil
	})
	if err != nil && len(why) > 0 {
		return fmt.Errorf("%w: %s %s: %s", err, why[0].Kind, why[0].Name, why[0].Why)
	}
	return err
}

// eventCounts counts the Events about each claim, by UID.
func (env *environment) eventCounts(ctx context.Context) (events map[string]int, err error) {
	list, err := env.client.CoreV1().Events(env.token).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	events = map[string]int{}
	for _, e := range list.Items {
		if e.Source.Component != "persistentvolume-controller" {
			events[string(e.InvolvedObject.UID)] += int(max(e.Count, 1))
		}
	}
	return events, nil
}

// objects returns the environment's current PVs, claims, attachments, classes and shards of the in-flight log.
func (env *environment) objects(ctx context.Context) (now []oracle.Object, _ error) {
	all, ofLog := metav1.ListOptions{}, metav1.ListOptions{LabelSelector: inflight.LabelLog + "=true"}
	// The PVs come first: a claim that is listed after them is at least as far.
	pvs, pvErr := env.client.CoreV1().PersistentVolumes().List(ctx, all)
	claims, claimErr := env.client.CoreV1().PersistentVolumeClaims(env.token).List(ctx, all)
	shards, logErr := env.client.CoordinationV1().Leases(env.token).List(ctx, ofLog)
	attachments, attachErr := env.client.StorageV1().VolumeAttachments().List(ctx, all)
	classes, classErr := env.client.StorageV1().StorageClasses().List(ctx, all)
	if err := errors.Join(pvErr, claimErr, logErr, attachErr, classErr); err != nil {
		return nil, err
	}
	for i := range pvs.Items {
		if o := oracle.OfPV(&pvs.Items[i]); o.Driver == env.driver.Name() {
			now = append(now, o)
		}
	}
	for i := range claims.Items {
		now = append(now, oracle.OfClaim(&claims.Items[i]))
	}
	for i := range shards.Items {
		if o, is := oracle.OfLease(&shards.Items[i]); is {
			now = append(now, o)
		}
	}
	for i := range attachments.Items {
		if attachments.Items[i].Spec.Attacher == env.driver.Name() {
			now = append(now, oracle.OfAttachment(&attachments.Items[i]))
		}
	}
	for i := range classes.Items {
		if classes.Items[i].Provisioner == env.driver.Name() {
			now = append(now, oracle.OfClass(&classes.Items[i]))
		}
	}
	return now, nil
}
