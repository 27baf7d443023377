package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/internal/secretref"
	"github.com/csi-reclaimer/csi-reclaimer/internal/translation"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

var (
	// errStale reports that the watch lags behind the API server and that the list is too long for one page.
	errStale = errors.New("the watch is behind the API server")
	// errSecretUnclear reports that the Secret for a deletion cannot be determined.
	errSecretUnclear = errors.New("which Secret the deletion needs cannot be determined")
)

// answer is the result of an Ask: the Reply for the session, and the error and secrets that do not enter the engine.
type answer struct {
	reclaim.Reply
	err     error
	secrets map[string]string
}

// carryOut makes the call that a session asks for, and updates traces, logs and Config.Deleted. The session learns the
// answer after that, so a panic of Config.Deleted must not hide it: the volume would be deleted again and again.
func (r *Controller) carryOut(ctx context.Context, s *reclaim.Session, secrets map[string]string) answer {
	a := r.traces.call(ctx, s.Ask, func(ctx context.Context) answer { return r.ask(ctx, s.Ask, secrets) })
	if s.Ask.Action == reclaim.DeleteVolume && a.err == nil {
		pv := s.Ask.PV
		if s.Repeated() {
			r.metrics.repeated.Inc()
		}
		klog.FromContext(ctx).Info("Deleted a volume", "volumeHandle", pv.Handle, "claim",
			klog.KRef(pv.Claim.Namespace, pv.Claim.Name), "pvFirst", pv.Terminating)
		_ = panics.Contain(ctx, func() { r.cfg.Deleted(pv.StorageClass, pv.Segments()) }, "callback", "Config.Deleted")
	}
	if s.Ask.Action == reclaim.RemoveFinalizer && a.err == nil {
		klog.FromContext(ctx).Info("Removed the finalizer from a PV whose volume is kept", "reason", s.Ask.Reason)
	}
	return a
}

// ask makes the call without a change to the engine, but only if this replica leads at this moment: the process may
// have been paused since the decision.
func (r *Controller) ask(ctx context.Context, ask reclaim.Ask, secrets map[string]string) (a answer) {
	if err := r.mayAct(); err != nil {
		return answer{Reply: reclaim.Reply{Outcome: reclaim.NotSent}, err: err}
	}
	start := r.cfg.Clock.Now()
	a = r.call(ctx, ask, secrets)
	a.Outcome = outcomeOf(ctx, ask.Action, a.err)
	if a.err == nil || r.mayAct() == nil { // a call that the end of the lease cut off is no failure
		r.metrics.called(ask, a.err, r.cfg.Clock.Since(start))
	}
	return a
}

func (r *Controller) call(ctx context.Context, ask reclaim.Ask, secrets map[string]string) (a answer) {
	pv := ask.PV
	switch ask.Action {
	case reclaim.ListAttachments:
		a.Attached, a.err = whole(pv, r.awaited, r.attachments, func(limit int64) (page[map[string]int], error) {
			return r.cluster.listAttachments(ctx, limit)
		})
	case reclaim.ReadSecrets:
		a.secrets, a.Missing, a.err = r.readSecrets(ctx, pv)
	case reclaim.ReadClaim:
		a.Claim, a.err = r.cluster.readClaim(ctx, pv.Claim)
	case reclaim.ReadSiblings:
		return r.readSiblings(ctx, ask.Siblings)
	case reclaim.ListPVs:
		a.PVs, a.err = whole(pv, r.awaitedGone, r.pvs, func(limit int64) (page[[]volume.PV], error) {
			return r.cluster.listPVs(ctx, limit)
		})
		if a.err == nil {
			r.awaitedGone.forget(pv.UID) // a PV that is gone never changes, and each try needs a list of its own
		}
	case reclaim.ReadPV:
		a.PV, a.Found, a.err = r.cluster.readPV(ctx, pv.Name)
	case reclaim.ListNodes:
		a.OnlyNode, a.err = r.onlyNode(ctx)
	case reclaim.DeleteVolume:
		a.err = r.deleteVolume(ctx, pv, secrets)
	case reclaim.DeletePV:
		a.err = r.cluster.deletePV(ctx, pv)
	case reclaim.AddFinalizer, reclaim.AdoptPV, reclaim.RemoveFinalizer, reclaim.FinalizePV:
		a.PV, a.err = r.cluster.patchFinalizers(ctx, pv, ask.Add, ask.Remove, ask.Bound)
		a.Found, a.Version = a.PV.UID != "", a.PV.ResourceVersion
	case reclaim.Wait:
	}
	return a
}

// onlyNode reports whether this node alone has its topology segments. Each deletion of a process of one node asks this
// at most session.LiveFor before its DeleteVolume, so the brake is checked here.
func (r *Controller) onlyNode(ctx context.Context) (bool, error) {
	if err := r.checkBrake(ctx); err != nil {
		return false, err
	}
	nodes, err := r.cluster.listNodes(ctx)
	return slices.Equal(nodes, []string{r.cfg.Node.Name}), err
}

// outcomeOf returns the outcome that an error means for the session.
func outcomeOf(ctx context.Context, action reclaim.Action, err error) reclaim.Outcome {
	switch {
	case err == nil:
		return reclaim.OK
	case errors.Is(err, leadership.ErrExpired):
		return reclaim.NotSent
	case errors.Is(err, kube.ErrGone):
		return reclaim.Gone
	case errors.Is(err, kube.ErrChanged):
		return reclaim.Changed
	case errors.Is(err, ErrFinalizerRestored):
		return reclaim.Restored
	case ctx.Err() != nil:
		return reclaim.Canceled
	case errors.Is(err, errSecretUnclear):
		return reclaim.Unclear
	case errors.Is(err, errStale):
		return reclaim.Stale
	case action == reclaim.DeleteVolume:
		return outcomeOfDriver(err)
	}
	return reclaim.Unanswered
}

func outcomeOfDriver(err error) reclaim.Outcome {
	switch errclass.Of(err) {
	case errclass.InProgress:
		return reclaim.InProgress
	case errclass.Refused, errclass.NotFound:
		return reclaim.Refused
	default:
		return reclaim.Unanswered
	}
}

func (r *Controller) deleteVolume(ctx context.Context, pv volume.PV, secrets map[string]string) error {
	ctx, cancel := context.WithTimeout(migration.Mark(ctx, pv.InTree), r.cfg.CallTimeout)
	defer cancel()
	err := r.deleter.DeleteVolume(ctx, pv.Handle, secrets)
	if r.cfg.NotFoundIsDeleted && errclass.Of(err) == errclass.NotFound {
		return nil
	}
	return err
}

// listPage is the limit of one list: most clusters answer in one page of well under a megabyte.
const listPage = 500

// page is a live list of one small page. If it is not complete, only its resourceVersion is of use.
type page[T any] struct {
	complete bool
	content  T
	version  string
}

// whole returns the content of a live list for one PV. If the objects exceed one page, the watch has them, provided
// that it has reached the version of the first list since the PV has its state.
func whole[T any](pv volume.PV, lists *awaited, watch versioned,
	list func(limit int64) (page[T], error)) (content T, err error) {
	if version := lists.version(pv); version != "" {
		if !watch.Reached(version) {
			err = errStale
		}
		return content, err
	}
	limit := int64(listPage)
	if watch.Len() > listPage {
		limit = 1 // the answer is the version alone
	}
	live, err := list(limit)
	if err == nil && !live.complete {
		if lists.keep(pv, live.version); !watch.Reached(live.version) {
			err = errStale
		}
	}
	return live.content, err
}

// awaitedFor limits the use of a version. The watch reaches it with a bookmark, which API servers send each minute. A
// restore of etcd takes versions back.
const awaitedFor = 2 * time.Minute

// awaited has the versions that a watch has to reach, by PV. A new list for each try would have a new version, because
// versions grow with the writes to all kinds, and a watch with few events would hardly ever reach one of them.
type awaited struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	of    map[types.UID]awaitedList
}

// awaitedList is the version of a list that began when the PV had the resourceVersion pv.
type awaitedList struct {
	pv, version string
	read        time.Time
}

func newAwaited(c clock.PassiveClock) *awaited {
	return &awaited{clock: c, of: map[types.UID]awaitedList{}}
}

// version returns the version to reach, empty if the PV needs a list.
func (a *awaited) version(pv volume.PV) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.of[pv.UID]
	if list.pv != pv.ResourceVersion || a.clock.Since(list.read) >= awaitedFor {
		return ""
	}
	return list.version
}

func (a *awaited) keep(pv volume.PV, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[pv.UID] = awaitedList{pv.ResourceVersion, version, a.clock.Now()}
}

func (a *awaited) forget(pv types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, pv)
}

// siblingReaders bounds the concurrent reads of a volume's PVs. Reading hundreds in sequence would outlast the validity
// of a live read (session.LiveFor).
const siblingReaders = 8

// readSiblings reads each PV after its claim, because the policy may be set to Retain before the claim is deleted. A
// PV that names another claim than the cache shows keeps the volume, since that claim was not read. So does a PV that
// has taken the name of a sibling, if it names the volume.
func (r *Controller) readSiblings(ctx context.Context, siblings []volume.PV) (a answer) {
	type read struct {
		pv    volume.PV
		claim pvclaim.Result
		found bool
	}
	reads := make([]read, len(siblings))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(siblingReaders)
	for i, cached := range siblings {
		group.Go(func() (err error) {
			is := &reads[i]
			if !cached.Keeps() { // any other sibling keeps the volume by itself
				if is.claim, err = r.cluster.readClaim(ctx, cached.Claim); err != nil {
					return err
				}
			}
			is.pv, is.found, err = r.cluster.readPV(ctx, cached.Name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return answer{err: err}
	}
	a.Claims = map[types.UID]pvclaim.Result{}
	for i, cached := range siblings {
		is := reads[i]
		if is.found {
			a.PVs = append(a.PVs, is.pv)
		}
		if is.found && is.pv.UID == cached.UID {
			a.Claims[is.pv.UID] = is.claim
		}
	}
	return a
}

// readSecrets reads the Secret that the PV's annotations name, or else its StorageClass. Like the stock provisioner,
// it leaves out an object that does not exist, and returns its name as missing. An object that cannot be read or
// determined is an error, because a driver must not be called with the wrong credentials.
func (r *Controller) readSecrets(ctx context.Context, pv volume.PV) (secrets map[string]string, missing string,
	err error) {
	var ref volume.SecretRef
	switch {
	case pv.SecretKnown:
		ref, err = secretOf(pv)
	case pv.StorageClass != "":
		class, readErr := r.cluster.readClass(ctx, pv.StorageClass)
		switch {
		case readErr != nil:
			err = readErr
		case class != nil:
			ref, err = secretOfClass(pv, class)
		case pv.Provisioned():
			// Most static PVs name a class that is a mere label, so a missing class is reported only for provisioned PVs.
			missing = fmt.Sprintf("StorageClass %s, which would name it", pv.StorageClass)
		}
	}
	if err != nil || ref == (volume.SecretRef{}) {
		return nil, missing, err
	}
	secrets, found, err := r.cluster.readSecret(ctx, ref)
	if err == nil && !found {
		missing = fmt.Sprintf("Secret %s/%s", ref.Namespace, ref.Name)
	}
	return secrets, missing, err
}

// secretOf returns the Secret that a PV's annotations name, the zero value for none.
func secretOf(pv volume.PV) (volume.SecretRef, error) {
	ref := pv.DeletionSecret
	if ref == (volume.SecretRef{}) {
		return ref, nil
	}
	if err := secretref.Check(ref.Namespace, ref.Name); err != nil {
		return volume.SecretRef{}, fmt.Errorf("%w: annotations %s and %s: %w", errSecretUnclear,
			volume.AnnDeletionSecretName, volume.AnnDeletionSecretNamespace, err)
	}
	return ref, nil
}

// secretOfClass returns the Secret that a StorageClass names for a PV, the zero value for none. The claim is gone, so
// only its name is known: a template that refers to one of its annotations cannot be resolved. The rules are the same
// as at creation, so a class of the in-tree plugin that the driver took over from is translated first: its own
// parameters (Portworx: openstorage.io/auth-secret-name) name no Secret in terms of CSI.
func secretOfClass(pv volume.PV, class *storagev1.StorageClass) (ref volume.SecretRef, err error) {
	// Only the parameters name Secrets, so a topology without translation does not keep the volume.
	translated, err := translation.Class(&storagev1.StorageClass{Provisioner: class.Provisioner,
		Parameters: class.Parameters}, pv.Driver)
	if err != nil {
		return volume.SecretRef{}, unclearOfClass(pv, fmt.Errorf("its parameters have no translation for CSI driver %q: %w",
			pv.Driver, err))
	}
	template, err := secretref.Find(translated.Parameters, secretref.Provisioner(), secretref.Default())
	if err == nil && template != (secretref.Template{}) {
		ref.Namespace, ref.Name, err = template.For(secretref.Volume{PV: pv.Name, ClaimNamespace: pv.Claim.Namespace,
			ClaimName: pv.Claim.Name})
	}
	if err != nil {
		return volume.SecretRef{}, unclearOfClass(pv, err)
	}
	return ref, nil
}

func unclearOfClass(pv volume.PV, err error) error {
	return fmt.Errorf("%w: StorageClass %q, now that the claim is gone: %w; add the annotations %s and %s to the PV",
		errSecretUnclear, pv.StorageClass, err, volume.AnnDeletionSecretName, volume.AnnDeletionSecretNamespace)
}
