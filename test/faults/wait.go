//go:build unix

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// wait returns once what the step waits for is there.
func (s *stage) wait(ctx context.Context, step scenario.Step) error {
	switch {
	case step.Do == scenario.Pass:
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(step.Time)):
			return nil
		}
	case step.Do == scenario.Rest:
		return s.rest(ctx)
	case step.Volume != "":
		return s.waitVolume(ctx, s.vols[step.Volume], step)
	}
	switch nth := max(step.Nth, 1); step.For {
	case "crashed":
		return s.keeper.waitCrashes(ctx, nth)
	case "ready":
		return s.keeper.waitReady(ctx)
	default: // applied
		return until(ctx, fmt.Sprintf("%d requests that the rules apply to", nth), func() (bool, error) { return s.line.Applied() >= nth, nil })
	}
}

func (s *stage) waitVolume(ctx context.Context, vol *storage.Volume, step scenario.Step) error {
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
		return until(ctx, "volume "+vol.Handle+" to be off the disk", func() (bool, error) {
			there, err := s.onDisk()
			return !there[vol.Handle], err
		})
	case "called":
		_, err := s.driver.WaitCalls(ctx, func(calls []ledger.Call) bool { return count(calls, vol.Handle) >= max(step.Nth, 1) }, "DeleteVolume")
		return err
	}
	return fmt.Errorf("for %q: nothing to wait for", step.For)
}

func protected(pv *v1.PersistentVolume) bool {
	return slices.Contains(pv.Finalizers, reclaim.Finalizer)
}

func count(calls []ledger.Call, handle string) (n int) {
	for _, c := range calls {
		if c.Volume == handle && c.Method == "DeleteVolume" {
			n++
		}
	}
	return n
}

func (s *stage) onDisk() (map[string]bool, error) {
	volumes, err := s.driver.Volumes()
	there := map[string]bool{}
	for _, v := range volumes {
		there[v.ID] = true
	}
	return there, err
}

// rest returns once every PV is at rest.
func (s *stage) rest(ctx context.Context) error {
	var why []oracle.Unresting
	err := until(ctx, "rest", func() (bool, error) {
		now, err := s.objects(ctx)
		if err != nil {
			return false, err
		}
		why = oracle.Unrest(s.driver.Name(), reclaim.Finalizer, now)
		return len(why) == 0, nil
	})
	if err != nil && len(why) > 0 {
		return fmt.Errorf("%w: PV %s: %s", err, why[0].PV.Name, why[0].Why)
	}
	return err
}

// objects returns the stage's PVs, claims and attachments as they are now.
func (s *stage) objects(ctx context.Context) ([]oracle.Object, error) {
	var now []oracle.Object
	// The PVs come first: a claim that is listed after them is at least as far.
	pvs, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range pvs.Items {
		if strings.HasPrefix(pvs.Items[i].Name, s.token) {
			now = append(now, oracle.OfPV(&pvs.Items[i]))
		}
	}
	claims, err := s.client.CoreV1().PersistentVolumeClaims(s.token).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range claims.Items {
		now = append(now, oracle.OfClaim(&claims.Items[i]))
	}
	attachments, err := s.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range attachments.Items {
		if strings.HasPrefix(attachments.Items[i].Name, s.token) {
			now = append(now, oracle.OfAttachment(&attachments.Items[i]))
		}
	}
	return now, nil
}
