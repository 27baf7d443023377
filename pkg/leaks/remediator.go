package leaks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

var (
	// ErrRefused is wrapped if a remediation is refused; the text names the reason.
	ErrRefused = errors.New("nothing is done about the volume")
	// ErrNotReleased: the PV controller did not mark the PV Released in time.
	ErrNotReleased = errors.New("kube-controller-manager does not mark the PV Released")
)

// Timeout and poll interval for the PV controller, which takes some seconds at most.
const (
	releasedWithin = time.Minute
	lookEvery      = 200 * time.Millisecond
)

// Remediator carries out remediations step by step, each decided by [decideRemediation] from live reads, and is safe
// for concurrent use.
type Remediator struct {
	pvs         corev1.PersistentVolumeInterface
	attachments storageclient.VolumeAttachmentInterface
	clock       clock.Clock
}

// NewRemediator returns a Remediator for the cluster of config, which it copies. It needs the permissions to list,
// get and create PVs, to list VolumeAttachments, and to patch the PV of Reclaim.
func NewRemediator(config *rest.Config) (*Remediator, error) {
	if config == nil {
		return nil, errors.New("create a remediator: nil rest.Config")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	return &Remediator{pvs: clients.Core.PersistentVolumes(), attachments: clients.Storage.VolumeAttachments(),
		clock: clock.RealClock{}}, nil
}

// Check decides about a remediation without any write. pv is the PV of [AdoptPV] or [ReclaimPV] for the volume. Check
// returns the next step, and the remediation's PV if an earlier run created it, or else nil. The error of a refusal
// wraps ErrRefused and gives the reason.
func (m *Remediator) Check(ctx context.Context, r Report, to Remediation, pv *v1.PersistentVolume) (step,
	*v1.PersistentVolume, error) {
	return m.next(ctx, r, to, pv, true)
}

// Carry carries out a remediation and returns the resulting PV. After an interruption or error the same call
// continues, because the PV keeps the volume up to the last step, the change of its policy.
func (m *Remediator) Carry(ctx context.Context, r Report, to Remediation,
	pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	until := m.clock.Now().Add(releasedWithin)
	for fresh := true; ; fresh = false {
		step, own, err := m.next(ctx, r, to, pv, fresh)
		switch {
		case err != nil:
			return own, err
		case step == Finished:
			return own, nil
		case step == createPV:
			if _, err := m.pvs.Create(ctx, pv, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return nil, fmt.Errorf("create PV %q: %w", pv.Name, err)
			}
		case step == waitReleased && m.clock.Now().After(until):
			return own, fmt.Errorf("reclaim through PV %q: %w; it keeps its volume, and the same command continues", pv.Name,
				ErrNotReleased)
		case step == waitReleased:
			if !controller.Pause(ctx, m.clock, lookEvery) {
				return own, fmt.Errorf("wait for PV %q to be Released: %w; it keeps its volume, and the same command continues",
					pv.Name, ctx.Err())
			}
		case step == turnPolicy:
			patch := kube.PolicyPatch{Name: own.Name, UID: own.UID, ResourceVersion: own.ResourceVersion,
				Policy: v1.PersistentVolumeReclaimDelete}
			turned, err := kube.PatchPolicy(ctx, m.pvs, patch)
			if err == nil {
				return turned, nil // a later read could find volume and PV deleted
			}
			if !errors.Is(err, kube.ErrChanged) {
				return own, err
			}
		}
	}
}

// next reads the cluster and decides. The remediation's own PV is read last, so that a write bound to its
// resourceVersion rests on all other reads.
func (m *Remediator) next(ctx context.Context, r Report, to Remediation, pv *v1.PersistentVolume, fresh bool) (step,
	*v1.PersistentVolume, error) {
	handle := pv.Spec.CSI.VolumeHandle
	found, reported := r.Find(handle)
	c := situation{Remediation: to, Fresh: fresh, Reported: reported, Suspected: found.Suspected, Completed: r.Completed}
	by, err := m.usersOf(ctx, r.Driver, handle, pv.Name)
	if err != nil {
		return refuse, nil, err
	}
	c.Others, c.Attached = presence(by.named != ""), presence(by.attached != "")
	own, err := m.pvs.Get(ctx, pv.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		own = nil
	case err != nil:
		return refuse, nil, fmt.Errorf("read PV %q: %w", pv.Name, err)
	default:
		c.Own = ownPV{Found: true, Made: isRemediation(own, pv), Reserved: isReserved(own, pv),
			PV: volume.Of(own)}
	}
	c.Own.Read = true
	step, why := decideRemediation(c, m.clock.Now())
	if step == refuse {
		return step, own, fmt.Errorf("%s volume %q: %w: %s", to, shown(handle), ErrRefused, c.say(why, found, by))
	}
	return step, own, nil
}

// users are the objects that show a use of a volume, empty for none.
type users struct {
	// named is a PV other than the remediation's own, or a VolumeAttachment of a pod's inline volume, that names it.
	named string
	// attached is a VolumeAttachment of the driver whose PV does not exist, so that its volume may be this one.
	attached string
}

// usersOf reads the VolumeAttachments before the PVs: a PV that goes in between counts as one that does not exist.
func (m *Remediator) usersOf(ctx context.Context, driver, handle, own string) (u users, err error) {
	attached := map[string]string{} // by the PV
	var all metav1.ListOptions
	err = kube.Each(ctx, "VolumeAttachments", all, m.attachments.List, func(o *storagev1.VolumeAttachment) {
		if key, inline := inlineKey(o, driver); inline && key == keyOf(handle) {
			u.named = "volumeattachment/" + o.Name
		}
		if pv := o.Spec.Source.PersistentVolumeName; pv != nil && o.Spec.Attacher == driver {
			attached[*pv] = "volumeattachment/" + o.Name
		}
	})
	if err != nil {
		return users{}, err
	}
	err = kube.Each(ctx, "PVs", all, m.pvs.List, func(o *v1.PersistentVolume) {
		delete(attached, o.Name)
		is, about := names(volume.Of(o), driver)
		if about && keyOf(is) == keyOf(handle) && o.Name != own {
			u.named = "pv/" + o.Name
		}
	})
	if err != nil {
		return users{}, err
	}
	for _, object := range attached {
		u.attached = max(u.attached, object)
	}
	return u, nil
}

// say returns the reason of a refusal, and names the object concerned.
func (c situation) say(why refusal, found Found, by users) string {
	switch why {
	case whyNamed:
		return string(why) + ": " + by.named
	case whyAttached:
		return string(why) + ": " + by.attached
	case whyNotSuspected:
		return string(why) + ": " + string(found.Reason) + ". " + found.Reason.Sentence()
	case whyChanged:
		text := string(why) + " pv/" + c.Own.PV.Name
		if claim := c.Own.PV.Claim; claim.Name != "" {
			text += ", whose claim is " + claim.Namespace + "/" + claim.Name
		}
		return text
	case whyNameTaken, whyUnreserved:
		return string(why) + " (pv/" + c.Own.PV.Name + ")"
	default:
		return string(why)
	}
}
