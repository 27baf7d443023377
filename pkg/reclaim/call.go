package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// call is what one step asks of the API server or of the driver, as data. What is to be
// asked is settled before anything is sent, and what an answer means is settled apart from
// how it came: ask alone waits for anybody.
type call struct {
	Decision
	pv volume.PV
	// read is when, and in which order, a step that reads was begun.
	read Read
	// siblings are those that ReadSiblings looks for.
	siblings []volume.PV
	// secrets go with DeleteVolume.
	secrets map[string]string
	// add and drop are the finalizers that a write changes; with bound, only while the PV is
	// as it was read.
	add, drop []string
	bound     bool
}

// answer is what came of a call. Only what the call asks for is set.
type answer struct {
	err error
	// pv is the PV that was read, if it was found.
	pv    volume.PV
	found bool
	claim ClaimFacts
	// siblings are those that were found, by UID, and claims what was found of the claims of those of them that are
	// to be deleted, by the UID of the PV.
	siblings    []volume.PV
	claims      map[types.UID]ClaimFacts
	attachments attachmentList
	family      pvList
	secrets     map[string]string
	// nodes are the names of those in the place of this one.
	nodes []string
	// missing says what would tell or hold the Secret, but does not exist.
	missing string
	// version is the resourceVersion that a write made.
	version string
}

func (c call) writesFinalizers() bool { return len(c.add) > 0 || len(c.drop) > 0 }
func (c call) protects() bool         { return len(c.add) > 0 }

// refused tells that the API server has answered and changed nothing.
func (a answer) refused() bool {
	return errors.Is(a.err, kube.ErrChanged) || errors.Is(a.err, kube.ErrGone) || errors.Is(a.err, ErrPutBack)
}

// ask carries out a call, if this replica still leads at this moment: a decision may be older than a pause of the
// process. It changes nothing that decisions are made from.
func (r *Reclaimer) ask(ctx context.Context, c call) (a answer) {
	if a.err = r.mayAct(); a.err != nil {
		return a
	}
	switch c.Action {
	case CatchUpAttachments:
		a.attachments, a.err = r.cluster.listAttachments(ctx)
	case ReadSecrets:
		return r.askForSecrets(ctx, c.pv)
	case ReadClaim:
		a.claim, a.err = r.cluster.readClaim(ctx, c.pv.Claim)
	case ReadSiblings:
		return r.askForSiblings(ctx, c.siblings)
	case ReadFamily:
		a.family, a.err = r.cluster.listPVs(ctx)
	case ReadPV:
		a.pv, a.found, a.err = r.cluster.readPV(ctx, c.pv.Name)
	case ReadNodes:
		a.nodes, a.err = r.cluster.listNodes(ctx)
	case DeleteVolume:
		start := r.cfg.Clock.Now()
		a.err = r.deleter.DeleteVolume(migration.Mark(ctx, c.pv.InTree), c.pv.Handle, c.secrets)
		if r.cfg.NotFoundIsDeleted && errclass.Of(a.err) == errclass.NotFound {
			a.err = nil
		}
		if a.err == nil || r.mayAct() == nil { // a call that the lease's end cut off is no failure
			r.metrics.deleted(c.pv, a.err, r.cfg.Clock.Since(start))
		}
	case DeletePV:
		a.err = r.cluster.deletePV(ctx, c.pv)
		r.metrics.unfinished(c.pv, a.err)
	case AddFinalizer, AdoptPV, DropFinalizer, ReleasePV:
		a.version, a.err = r.cluster.patchFinalizers(ctx, c.pv, c.add, c.drop, c.bound)
		if c.Action == ReleasePV {
			r.metrics.unfinished(c.pv, a.err)
		}
	case Wait:
	}
	return a
}

func (r *Reclaimer) askForSiblings(ctx context.Context, siblings []volume.PV) (a answer) {
	a.claims = map[types.UID]ClaimFacts{}
	for _, cached := range siblings {
		other, found, err := r.cluster.readPV(ctx, cached.Name)
		if err != nil {
			return answer{err: err}
		}
		if !found || other.UID != cached.UID {
			continue
		}
		a.siblings = append(a.siblings, other)
		if !other.Deletable() {
			continue // it keeps the volume by itself
		}
		if a.claims[other.UID], err = r.cluster.readClaim(ctx, other.Claim); err != nil {
			return answer{err: err}
		}
	}
	return a
}

// askForSecrets reads the Secret that the PV's annotations name, or else its StorageClass.
// What does not exist is left out, as the stock provisioner does; what cannot be read or
// told is an error, for a driver must not be asked with the wrong credentials.
func (r *Reclaimer) askForSecrets(ctx context.Context, pv volume.PV) (a answer) {
	var ref volume.SecretRef
	switch {
	case pv.SecretKnown:
		ref, a.err = secretOf(pv)
	case pv.StorageClass != "":
		class, found, err := r.cluster.readClass(ctx, pv.StorageClass)
		switch {
		case err != nil:
			a.err = err
		case found:
			ref, a.err = secretOfClass(pv, class)
		case pv.Provisioned():
			// Most static PVs name a class that is a mere label, so only for others is it news.
			a.missing = fmt.Sprintf("StorageClass %s, which would name it", pv.StorageClass)
		}
	}
	if a.err != nil || ref == (volume.SecretRef{}) {
		return a
	}
	secrets, found, err := r.cluster.readSecret(ctx, ref)
	switch {
	case err != nil:
		return answer{err: err}
	case !found:
		a.missing = fmt.Sprintf("Secret %s/%s", ref.Namespace, ref.Name)
	}
	a.secrets = secrets
	return a
}

// begin settles what a decision asks, and notes what is under way.
func (w *run) begin(d Decision) (call, error) {
	c := call{Decision: d, pv: w.facts.PV}
	switch d.Action {
	case ReadClaim, ReadPV, ReadFamily, ReadNodes:
		c.read = w.nextRead()
	case ReadSiblings:
		c.read, c.siblings = w.nextRead(), w.facts.Siblings
	case DeleteVolume:
		if !w.deleting.take(c.pv.Handle) {
			return c, because(ReasonVolumeBusy, errBusy)
		}
		w.taken = c.pv.Handle
		c.secrets = w.secrets
	case DropFinalizer:
		c.drop, c.bound = w.facts.Rules.finalizers(c.pv), true
	case ReleasePV:
		// By UID alone: the volume is gone, whatever else changed on the PV.
		c.drop = w.facts.Rules.finalizers(c.pv)
	case Wait, AddFinalizer, AdoptPV, CatchUpAttachments, ReadSecrets, DeletePV:
	}
	w.observer.notes.begin(c)
	return c, nil
}

// nextRead numbers a live read.
func (w *run) nextRead() Read {
	w.reads++
	return Read{Sent: w.cfg.Clock.Now(), Order: w.reads}
}

// end frees what a call that is under way keeps others from.
func (w *run) end() {
	if w.taken != "" {
		w.deleting.giveBack(w.taken)
		w.taken = ""
	}
}

// learn adds what an answer says to what is known.
func (w *run) learn(ctx context.Context, c call, a answer) error {
	w.end()
	w.observer.notes.end(c, a)
	switch c.Action {
	case DeleteVolume:
		return w.volumeDeleted(ctx, c, a)
	case DeletePV:
		return w.pvDeleted(a)
	case DropFinalizer:
		return w.finalizerDropped(ctx, c, a)
	case ReleasePV:
		return w.pvReleased(a)
	case CatchUpAttachments, ReadSecrets, ReadClaim, ReadSiblings, ReadFamily, ReadPV, ReadNodes:
		if a.err != nil {
			return because(unreadable(a.err), a.err)
		}
		return w.read(ctx, c, a)
	case Wait, AddFinalizer, AdoptPV:
	}
	return fmt.Errorf("learn from %v of PV %q: no step of a run", c.Action, c.pv.Name)
}

func unreadable(err error) Reason {
	if errors.Is(err, errSecretUnclear) {
		return ReasonSecretUnclear
	}
	return ReasonUnreadable
}

// read adds what a step that only looks has found.
func (w *run) read(ctx context.Context, c call, a answer) error {
	switch c.Action {
	case CatchUpAttachments:
		if !a.attachments.complete && !w.observer.attachments.Reached(a.attachments.version) {
			return because(ReasonCatchingUp, errBehind)
		}
		w.listed = a.attachments.ofPV
		w.facts.AttachmentsCurrent = true
		// It may have been the PV's own read that showed that the list is needed; the PV is read last.
		w.facts.PVRead = Read{}
	case ReadSecrets:
		if a.missing != "" {
			w.reports.aside(ctx, c.pv, ReasonSecretNotFound, a.missing)
		}
		w.secrets, w.facts.SecretsRead = a.secrets, true
	case ReadClaim:
		w.facts.Claim = a.claim
		w.facts.Claim.Read = c.read
	case ReadSiblings:
		w.siblingsRead(c, a)
	case ReadFamily:
		if !a.family.complete && !w.observer.pvs.Reached(a.family.version) {
			return because(ReasonCatchingUp, errBehind)
		}
		for _, other := range a.family.pvs {
			if other.Handle == c.pv.Handle && other.Driver == c.pv.Driver && other.UID != c.pv.UID {
				w.facts.End.Shared = true
			}
		}
		w.facts.FamilyRead = c.read
	case ReadNodes:
		w.facts.NodesRead, w.facts.Alone = c.read, slices.Equal(a.nodes, []string{w.cfg.Node.Name})
	case ReadPV:
		if !a.found || a.pv.UID != c.pv.UID {
			return errEnded
		}
		w.facts.PV, w.facts.PVRead = a.pv, c.read
	default:
	}
	return nil
}

func (w *run) siblingsRead(c call, a answer) {
	w.facts.Siblings, w.facts.SiblingsRead, w.facts.SiblingNeeded = a.siblings, c.read, ""
	for _, other := range a.siblings {
		if other.Deletable() && Needed(other, a.claims[other.UID]) {
			w.facts.SiblingNeeded = other.Name
		}
	}
	for _, asked := range c.siblings {
		there := false
		for _, found := range a.siblings {
			there = there || found.UID == asked.UID
		}
		if !there {
			w.gone = append(w.gone, asked.UID)
		}
	}
}

func (w *run) volumeDeleted(ctx context.Context, c call, a answer) error {
	pv := c.pv
	if a.err != nil {
		return because(ReasonVolumeFailedDelete, a.err)
	}
	if w.facts.Rules.Role == volume.RoleCompanion && w.facts.History.SeenReleased {
		w.metrics.repeated.Inc()
	}
	w.facts.Done = w.observer.notes.record(pv.UID, func(d *Done) { d.VolumeDeleted, d.Claim = true, pv.Claim })
	klog.FromContext(ctx).Info("Deleted a volume", "volumeHandle", pv.Handle, "claim", klog.KRef(pv.Claim.Namespace, pv.Claim.Name), "pvFirst", pv.Terminating)
	w.cfg.Deleted(pv.StorageClass, pv.Segments())
	if w.facts.End.Gone {
		w.reports.aside(ctx, pv, ReasonUnprotectedReclaim, fmt.Sprintf("Volume %q.", pv.Handle))
	}
	return nil
}

func (w *run) pvDeleted(a answer) error {
	switch {
	case errors.Is(a.err, kube.ErrGone):
		return errEnded
	case a.err != nil:
		return because(ReasonUnwritable, a.err)
	}
	w.facts.Done = w.observer.notes.record(w.facts.PV.UID, func(d *Done) { d.PVDeleted = true })
	return nil
}

func (w *run) finalizerDropped(ctx context.Context, c call, a answer) error {
	if a.err != nil && !errors.Is(a.err, kube.ErrGone) {
		return because(ReasonUnwritable, a.err)
	}
	if a.err == nil {
		klog.FromContext(ctx).Info("Took the finalizer off a PV whose volume is kept", "reason", c.Reason)
	}
	// What the cache shows is older than this write; its own event wakes the PV again.
	return errEnded
}

func (w *run) pvReleased(a answer) error {
	if a.err != nil && !errors.Is(a.err, kube.ErrGone) {
		return because(ReasonUnwritable, a.err)
	}
	w.facts.Done = w.observer.notes.record(w.facts.PV.UID, func(d *Done) { d.Released = true })
	return errEnded
}
