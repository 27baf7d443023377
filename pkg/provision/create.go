package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// RequestBuilder decides the content of requests, and is safe for concurrent use.
type RequestBuilder interface {
	// PVName returns the name of a new claim's PV, which is also the name of the volume at the driver.
	PVName(claim types.UID) string
	// Build returns the request for a claim, with the volume name of want. An error describes a problem of the claim or
	// class, or a failed read; a *request.Error among its causes has the remediation.
	Build(ctx context.Context, want request.Options) (*inflight.Request, error)
	// PV returns the PersistentVolume of the volume that the driver created for o, which may have been read from the
	// in-flight log. An error means that the volume does not match the request: it gets no PersistentVolume and is
	// deleted.
	PV(o inflight.Request, made *csi.Volume) (*v1.PersistentVolume, error)
}

// Qualifier is a RequestBuilder that recognizes claims of other provisioners by claim and class alone.
type Qualifier interface {
	// Ignores returns a *request.Error if another program, such as a volume populator, provisions the claim, and otherwise
	// nil.
	Ignores(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error
}

// Locator is a RequestBuilder that knows the nodes on which volumes can be used.
type Locator interface {
	// HasNode reports whether the node exists and the driver is registered on it. An error means that this is unknown.
	HasNode(ctx context.Context, node string) (bool, error)
}

// Watcher is a RequestBuilder with watch caches of its own. A Controller runs them, and waits until they are filled.
type Watcher interface {
	// Watch keeps the caches up to date until ctx ends.
	Watch(ctx context.Context)
	// Synced reports whether the caches hold the state that the API server had when Watch began.
	Synced() bool
	// Permissions returns the permissions that the caches need.
	Permissions() []permission.Permission
}

// Follower is a RequestBuilder that depends on the topology of the driver's nodes.
type Follower interface {
	// Follow registers changed, which is called whenever a node appears, disappears or changes its topology, and must not
	// block. Follow is called once, before Watch.
	Follow(changed func())
}

// Driver creates and deletes volumes; csidriver.Driver is one. A driver without CSI implements it with calls of its
// storage system, and describes itself to package builder with builder.Fixed. CSI's messages are only data then.
//
// CreateVolume creates one volume for the name of a request, and returns the same volume when it is repeated, also
// after a crash. DeleteVolume succeeds for a volume that does not exist. Several workers call both at once, but never
// for the same volume, and they return soon after ctx ends. The request must not be changed, and secrets must not be
// logged. Errors are marked with an errclass.Class; after an error without a mark the outcome is in doubt, and the same
// request is repeated until the driver names the volume or refuses it.
//
// A Driver may have a method Version() string, which returns its vendor_version (GetPluginInfo). Then no refusal of
// another version settles a call whose outcome is in doubt. It may have a method Known() error, which returns an error
// while it would send no call, such as after the loss of a connection. CreateVolume is then not called.
//
// It may have the methods ReportsCapacity() bool and GetCapacity of csidriver.Driver. If each node provisions for
// itself, a node without room then does not select itself for a claim that binds immediately.
type Driver interface {
	// CreateVolume returns the volume of a request, whose VolumeId is the handle of the PV.
	CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest, secrets map[string]string) (*csi.Volume, error)
	// DeleteVolume deletes a volume.
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}

// Log is the in-flight log; *inflight.Log is one.
//
// A Log may have a method LeaseOf(volume string) v1.ObjectReference, which returns the Lease of a volume's entry.
// Events about a claim that is gone, or was bound before the Controller began, are then recorded on the Lease. It may
// have a method Permissions() []permission.Permission, which returns the permissions that it needs.
type Log interface {
	// TakeOver reads the log, and keeps every earlier process from writing to it.
	TakeOver(ctx context.Context) error
	// TakenOver returns the time of the take-over on the API server's clock, in whole seconds, and zero if unknown.
	TakenOver() time.Time
	// Run writes until ctx ends, or returns an error if a later process has taken over.
	Run(ctx context.Context) error
	// Get returns the entry of a volume, and its state.
	Get(volume string) (inflight.Entry, inflight.State)
	// State returns only the state of a volume's entry.
	State(volume string) inflight.State
	// Stats returns the figures of the log's metrics.
	Stats() inflight.Stats
	// Entries returns all stored entries, also the ones whose removal is not confirmed yet.
	Entries() []inflight.Entry
	// SourceInFlight returns whether an entry that may be stored has a volume that is created from the source, whose UID
	// does not count, and the problem if a part of the log cannot be read.
	SourceInFlight(of volume.SourceRef) (state volume.InFlight, problem string)
	// Put stores an entry, and returns nil once that is confirmed.
	Put(ctx context.Context, entry inflight.Entry) error
	// Remove removes an entry, asynchronously.
	Remove(volume string)
	// Confirm reads the log live and returns nil if this process still has the entry stored.
	Confirm(ctx context.Context, volume string) error
	// Follow registers changed, which is called for each confirmed removal, and for each entry of an earlier process that
	// can be read only now, and must not block. The latter call comes before a removal of that entry is confirmed.
	Follow(changed func(volume string))
}

// PVLister is a watch cache of PVs; reclaim.PVs is one. It shows at least the PVs that name a volume of the driver or,
// on a node, the ones among them that the node may reach, so the absence of a PV proves nothing. Its methods are safe
// for concurrent use.
type PVLister interface {
	// Get returns the PV with this name. Callers use its Driver, Handle, Claim.UID, Terminating and Reach.
	Get(name string) (pv volume.PV, found bool)
	// Shared reports whether a PV with a name other than except names the driver's volume.
	Shared(handle, except string) bool
	// Follow registers changed, which is called for every PV that appears or disappears from now on, with its first or
	// last state, and after Get reflects it. The function must not block the watch.
	Follow(changed func(volume.PV))
	// FollowLists registers listed, which is called after each list of PVs, once Get reflects it and its changes were
	// delivered. A PV that existed only while the watch was interrupted is never delivered. The function must not block
	// the watch.
	FollowLists(listed func())
	// Reached reports whether Get reflects everything up to a resourceVersion of a PV.
	Reached(version string) bool
	// Synced reports whether Get shows the PVs that existed when the watch began.
	Synced() bool
}

// secrets reads the Secret of a request for each call, so that changes take effect. The driver is not called without
// the Secret, because it may then look in the wrong place and answer that no volume exists.
func (w *run) secrets(ctx context.Context, request inflight.Request) (map[string]string, error) {
	if request.Secret == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
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
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
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
	if err := w.mayAct(); err != nil {
		return err
	}
	if err := w.driverKnown(); err != nil { // such a call is not sent, and would count as one without an answer
		return reasons.Because(w.failure(), err)
	}
	began, first := w.cfg.Clock.Now(), f.Record.Sending()
	asked := f.Record.Requests[f.Record.Next]
	w.tracker.note(w.track.entry, true)
	call, cancel := context.WithTimeout(migration.Mark(ctx, request.Migrated), w.cfg.CallTimeout)
	made, err := w.driver.CreateVolume(call, request.Create, secrets)
	cancel()
	reply := provision.Reply{Class: errclass.Of(err)}
	if err == nil {
		reply, err = w.judge(request, made)
		w.handle = reply.Handle
	}
	same := request.DriverVersion == w.version() && !request.OtherVersions
	reply.Comparable = whole && same
	f.Learn(provision.CreateVolume, reply, first, began, w.cfg.Clock.Now(), w.cfg.Quiet)
	if reply.Class == errclass.Done || reply.Class == errclass.Exhausted {
		w.reportChanged(ctx, made)
	}
	w.reschedule = w.reschedule || w.reschedules(asked, reply.Class, w.left(ctx, asked, reply.Class))
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

// driverKnown returns an error while the driver on the socket is unknown, so that it gets no call.
func (p *Controller) driverKnown() error {
	if d, ok := p.driver.(interface{ Known() error }); ok {
		return d.Known()
	}
	return nil
}

func (w *run) reschedules(asked provision.Request, class errclass.Class, nodeGone bool) bool {
	return w.facts.Reschedules(asked, class, nodeGone, w.cfg.Clock.Since(w.track.entry.Begun), w.cfg.Quiet)
}

// left reports whether the node of a request, or the driver on it, is gone. The node is read only if that decides. A
// node that cannot be read counts as existing.
func (w *run) left(ctx context.Context, asked provision.Request, class errclass.Class) bool {
	locator, ok := w.requests.(Locator)
	if !ok || !w.reschedules(asked, class, true) || w.reschedules(asked, class, false) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
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
