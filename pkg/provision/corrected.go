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

// A claim that failed waits longer from try to try. A change that can make a difference ends the wait: of the claim, of
// its StorageClass, or of the nodes. Objects that are not watched are looked at every unwatchedRetry.

const (
	// unwatchedRetry bounds the delay while a Secret, or another object that is not watched, is missing or not ready.
	unwatchedRetry = 30 * time.Second
	// correctedRetries is the least time between two waits of one claim that a correction ends, in first delays: a program
	// that writes to a claim again and again does not have the driver called as often.
	correctedRetries = 10
)

// correction says whether a change of a claim ends its wait.
type correction uint8

const (
	// noCorrection: the change is bookkeeping, such as by the PV controller or by this process.
	noCorrection correction = iota
	// corrected: an input of the request has changed.
	corrected
	// moved: another node is selected.
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

// differ reports whether annotations differ that are no bookkeeping.
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

// classDiffers reports whether a StorageClass was created anew, or a field of it that requests depend on was changed.
// Its other fields are immutable.
func classDiffers(before, now *storagev1.StorageClass) bool {
	return before.UID != now.UID || !equality.Semantic.DeepEqual(before.AllowedTopologies, now.AllowedTopologies) ||
		!equality.Semantic.DeepEqual(before.MountOptions, now.MountOptions)
}

// claimCorrected ends the wait of a claim that was changed, where the change can make a difference.
func (p *Controller) claimCorrected(before, now *v1.PersistentVolumeClaim) {
	switch correctionOf(before, now) {
	case corrected:
		p.hasten(p.nameOf(now.UID))
	case moved:
		p.tracker.hasten(p.nameOf(now.UID), p.cfg.Clock.Now(), 0)
	case noCorrection:
	}
}

// classCame ends the wait of the claims of a StorageClass, and has every claim looked at. The request of an open entry
// does not change.
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

// nodesChanged ends the wait of the claims whose last try did not come as far as the driver.
func (p *Controller) nodesChanged() {
	if !p.working() {
		return
	}
	for _, name := range p.tracker.notBuilt() {
		p.hasten(name)
		p.queue.Add(name)
	}
}

// hasten ends the wait of a name, unless that was done a moment ago.
func (p *Controller) hasten(name string) {
	p.tracker.hasten(name, p.cfg.Clock.Now(), correctedRetries*p.cfg.RetryStart)
}

// longestDelay bounds the delay after a failure: it is short where the end of the cause is not watched.
func (p *Controller) longestDelay(err error) time.Duration {
	if errors.Is(err, errSecretGone) || request.ReasonOf(err) != "" &&
		request.RemediationOf(err) == request.RemediationWait {
		return min(unwatchedRetry, p.cfg.RetryMax)
	}
	return p.cfg.RetryMax
}
