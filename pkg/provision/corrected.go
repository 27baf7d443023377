package provision

import (
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/util"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// The delay of a failed claim grows from try to try. A relevant change of the claim, its StorageClass or the nodes ends
// the delay. Objects that are not watched are read every unwatchedRetry.

const (
	// unwatchedRetry limits the delay while a Secret, or another object that is not watched, is missing or not ready.
	unwatchedRetry = 30 * time.Second
	// correctedRetries is the minimum interval between two corrections that end a delay of one claim, in first delays. A
	// program that keeps writing to a claim must not make the driver be called as often.
	correctedRetries = 10
)

// correction classifies a change of a claim by its effect on the claim's delay.
type correction uint8

const (
	// noCorrection means that the change is bookkeeping, for example by the PV controller or by this process.
	noCorrection correction = iota
	// corrected means that an input of the request has changed.
	corrected
	// moved means that another node is selected.
	moved
)

// correctionOf compares a claim before and after a change.
func correctionOf(before, now *v1.PersistentVolumeClaim) correction {
	node := now.Annotations[caches.AnnSelectedNode]
	switch {
	case now.DeletionTimestamp != nil || now.Spec.VolumeName != "":
		return noCorrection
	case node != "" && node != before.Annotations[caches.AnnSelectedNode]:
		return moved
	case !equality.Semantic.DeepEqual(before.Spec, now.Spec), differ(before.Annotations, now.Annotations):
		return corrected
	}
	return noCorrection
}

// differ reports whether annotations other than bookkeeping differ.
func differ(before, now map[string]string) bool {
	for _, pair := range [][2]map[string]string{{before, now}, {now, before}} {
		for name, value := range pair[0] {
			if other, found := pair[1][name]; (!found || other != value) && !bookkeeping(name) {
				return true
			}
		}
	}
	return false
}

// bookkeeping reports whether controllers, or this project's programs, write an annotation for themselves.
func bookkeeping(annotation string) bool {
	if annotation == v1.BetaStorageClassAnnotation {
		return false
	}
	domain, _, _ := strings.Cut(annotation, "/")
	return domain == "csi-reclaimer.io" || domain == "pv.kubernetes.io" || domain == "volume.kubernetes.io" ||
		domain == "volume.beta.kubernetes.io"
}

// classDiffers reports whether a StorageClass was recreated or changed in a field that requests depend on, since all
// other fields are immutable.
func classDiffers(before, now *storagev1.StorageClass) bool {
	return before.UID != now.UID || !equality.Semantic.DeepEqual(before.AllowedTopologies, now.AllowedTopologies) ||
		!equality.Semantic.DeepEqual(before.MountOptions, now.MountOptions)
}

// claimCorrected ends the delay of a claim after a relevant change.
func (p *Controller) claimCorrected(before, now *v1.PersistentVolumeClaim) {
	switch correctionOf(before, now) {
	case corrected:
		p.hasten(p.nameOf(now.UID))
	case moved:
		p.tracker.hasten(p.nameOf(now.UID), p.cfg.Clock.Now(), 0)
	case noCorrection:
	}
}

// classCame ends the delays of a StorageClass' claims, and wakes all claims. The request of an open entry does not
// change.
func (p *Controller) classCame(class *storagev1.StorageClass) {
	if p.working() {
		p.claims.Each(func(claim *v1.PersistentVolumeClaim) {
			if name := p.nameOf(claim.UID); util.GetPersistentVolumeClaimClass(claim) == class.Name &&
				p.log.State(name) != inflight.Open {
				p.hasten(name)
			}
		})
	}
	p.wakeAll()
}

// nodesChanged ends the delay of the claims whose last try failed before the driver was called.
func (p *Controller) nodesChanged() {
	if !p.working() {
		return
	}
	for _, name := range p.tracker.notBuilt() {
		p.hasten(name)
		p.queue.Add(name)
	}
}

// hasten ends the delay of a name, limited by the interval correctedRetries.
func (p *Controller) hasten(name string) {
	p.tracker.hasten(name, p.cfg.Clock.Now(), correctedRetries*p.cfg.RetryStart)
}

// longestDelay returns the maximum delay after a failure. It is short if the end of its cause is not watched.
func (p *Controller) longestDelay(err error) time.Duration {
	if errors.Is(err, errSecretGone) || request.ReasonOf(err) != "" &&
		request.RemediationOf(err) == request.RemediationWait {
		return min(unwatchedRetry, p.cfg.RetryMax)
	}
	return p.cfg.RetryMax
}
