package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// secrets reads the Secret of a request for each call, so that changes take effect. The driver is not called without
// the Secret, because it may then look in the wrong place and answer that no volume exists.
func (w *run) secrets(ctx context.Context, request inflight.Request) (map[string]string, error) {
	if request.Secret == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	values, err := w.cluster.readSecret(ctx, *request.Secret)
	w.saw(*request.Secret, values, err)
	return values, reasons.Because(w.failure(), err)
}

// secretsAgain is secrets for a request that may have been sent before, or whose volume is deleted. If the claim is
// gone with its namespace, the Secret may never come back. whole is false then, and the driver is called without it.
func (w *run) secretsAgain(ctx context.Context, request inflight.Request) (values map[string]string, whole bool,
	err error) {
	if w.prepared != nil && w.facts.Record.Unsent() {
		return w.prepared, true, nil
	}
	values, err = w.secrets(ctx, request)
	if err == nil || !errors.Is(err, errSecretGone) || !w.facts.Record.Begun() {
		return values, err == nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	claim, readErr := w.cluster.readClaim(ctx, w.claimKey.Namespace, w.claimKey.Name)
	if readErr != nil || claim != nil && claim.UID == w.claimKey.UID {
		return nil, false, err
	}
	return nil, false, nil
}

// withoutSecret adds to an error of a call that the driver did not get the Secret.
func withoutSecret(err error, request inflight.Request) error {
	return reasons.Because(provision.ReasonSecretGone, fmt.Errorf("%w (Secret %s/%s is gone)", err,
		request.Secret.Namespace, request.Secret.Name))
}

func (w *run) request() inflight.Request { return w.track.entry.Requests[w.facts.Record.Next] }

func (w *run) createVolume(ctx context.Context) error {
	f, request := &w.facts, w.request()
	secrets, whole, err := w.secretsAgain(ctx, request)
	if err != nil {
		return err
	}
	if err := w.holdSource(ctx, request); err != nil {
		return err
	}
	began, first := w.cfg.Clock.Now(), f.Record.Sending()
	asked := f.Record.Requests[f.Record.Next]
	w.track.record = f.Record
	w.tracker.note(w.track.entry, true)
	made, err := w.driver.CreateVolume(migration.Mark(ctx, request.Migrated), request.Create, secrets)
	reply := provision.Reply{Class: errclass.Of(err)}
	if err == nil {
		reply, err = w.judge(request, made)
		w.handle = reply.Handle
	}
	same := request.DriverVersion == w.version() && !request.OtherVersions
	reply.Comparable = whole && same
	f.Learn(provision.CreateVolume, reply, first, began, w.cfg.Clock.Now(), w.cfg.Quiet)
	if reply.Class == errclass.Done || reply.Class == errclass.Exhausted {
		w.reportChanged(made)
	}
	w.reschedule = w.reschedule || f.Reschedules(asked, reply.Class, w.left(ctx, asked, reply.Class))
	if reply.Unfit {
		// The next step deletes the volume, but the claim's owner is told the cause now.
		w.recorder.Report(ctx, w.eventOn(), provision.ReasonFailed, err.Error())
		return nil
	}
	return w.because(err, reply.Class, request, whole, same)
}

// because adds the reason to an error of CreateVolume, nil for none. whole means that the call had its Secret, and same
// that no other version of the driver was called.
func (w *run) because(err error, class errclass.Class, request inflight.Request, whole, same bool) error {
	if err == nil || w.facts.Record.Settled() {
		return reasons.Because(w.failed(class), err)
	}
	switch {
	case !whole:
		return withoutSecret(err, request)
	case class == errclass.Unfit && !same:
		return reasons.Because(provision.ReasonDriverChanged, fmt.Errorf("%w (version %q of the driver was called first, "+
			"then another one; this is %q)", err, request.DriverVersion, w.version()))
	case request.Source != nil && status.Code(err) == codes.NotFound:
		return reasons.Because(provision.ReasonSourceGone, err)
	}
	return reasons.Because(w.failed(class), err)
}

// version returns the vendor_version of the running driver, empty if unknown.
func (p *Controller) version() string {
	if d, ok := p.driver.(interface{ Version() string }); ok {
		return d.Version()
	}
	return ""
}

// left reports whether the node of a request, or the driver on it, is gone. The node is read only if that decides. A
// node that cannot be read counts as existing.
func (w *run) left(ctx context.Context, asked provision.Request, class errclass.Class) bool {
	locator, ok := w.requests.(Locator)
	if !ok || !w.facts.Reschedules(asked, class, true) || w.facts.Reschedules(asked, class, false) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	has, err := locator.HasNode(ctx, asked.Node)
	if err != nil {
		klog.FromContext(ctx).Info("The node that is selected for a claim could not be read", "claim", w.claimName(), "node",
			asked.Node, "err", err)
	}
	return err == nil && !has
}

// judge evaluates the driver's answer into a reply that has the handle in the PersistentVolume's form, and reports a
// volume that does not match the request as unfit. An unfit one has the driver's id, which DeleteVolume needs; the
// forms differ only for migrated volumes. An answer without an id is uncertain, so the driver is asked again.
func (w *run) judge(request inflight.Request, made *csi.Volume) (provision.Reply, error) {
	pv, err := w.requests.PV(request, made)
	switch {
	case made.GetVolumeId() == "":
		return provision.Reply{Class: errclass.Uncertain}, fmt.Errorf("use volume %q: %w", w.name, err)
	case err != nil:
		w.track.made, w.track.pv = made, nil
		return provision.Reply{Class: errclass.Done, Handle: made.GetVolumeId(), Unfit: true,
				InPVForm: !request.Migrated},
			fmt.Errorf("use volume %q: %w", made.GetVolumeId(), err)
	}
	w.track.made, w.track.pv = made, pv
	return provision.Reply{Class: errclass.Done, Handle: volume.Of(pv).Handle, InPVForm: true}, nil
}

// failed returns the reason of a failed CreateVolume.
func (w *run) failed(class errclass.Class) Reason {
	if class == errclass.Uncertain || class == errclass.InProgress || !w.facts.Record.Settled() {
		return provision.ReasonOutcomeUnknown
	}
	return provision.ReasonFailed
}
