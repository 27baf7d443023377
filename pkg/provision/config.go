package provision

import (
	"cmp"
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/sources"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Controller.
type Config struct {
	// Log is the in-flight log, which the Controller runs. Required.
	Log Log
	// Lease limits the time for which this process may act. After it no call is begun, and calls in flight are canceled.
	// By default no leader election limits the process.
	Lease Lease
	// Quiet is the time within which an unanswered call can still arrive. It must cover the lease's duration, and the
	// longer of the driver's call timeout and the API server's request timeout (1 minute by default). An entry is not
	// settled before the quiet period of its unanswered call is over. Default 2 minutes.
	Quiet time.Duration
	// FinishOnly settles the entries of the in-flight log, but neither watches claims nor provisions new volumes. It is
	// for a process beside another provisioner.
	FinishOnly bool
	// AlsoKnownAs lists further provisioner names of this driver, such as the in-tree name of a migrated driver. Default
	// none.
	AlsoKnownAs []string
	// Local limits provisioning to the volumes of one node; nil stands for the whole cluster.
	Local *Local
	// Workers is the number of volumes that are worked on concurrently, including the ones whose outcome is in doubt.
	// Default 100, as in the stock external-provisioner.
	Workers int
	// CloneWorkers is the number of sources, claims and snapshots, that lose their protection concurrently. Default 1.
	CloneWorkers int
	// Snapshots adds a finalizer to VolumeSnapshots while volumes are restored from them; if nil, they are not protected.
	Snapshots sources.SnapshotProtector
	// RetryStart and RetryMax bound the delay after a failed try, which doubles each time. Refusals, which need a
	// correction by a person, start at ten times RetryStart. Default 1 second and 5 minutes, as in the stock
	// external-provisioner.
	RetryStart, RetryMax time.Duration
	// PVs is a watch cache of PVs. The caller keeps it up to date while Watch or Run is working. Default: a watch of its
	// own.
	PVs PVLister
	// Claims, if set, receives the events of the watch of claims. It is the reclaim.Controller of the same driver, which
	// then does not read claims whose deletion was shown, and receives no events with FinishOnly.
	Claims ClaimFollower
	// Changed, if set, is called when the driver's free capacity may have changed, with the class and the topology
	// segments of the volume, nil if they are unknown. It must return immediately.
	Changed func(class string, at []map[string]string)
	// Events records the outcome of each try on the claim. Default: a recorder of its own, which uses the client of all
	// other requests.
	Events record.EventRecorder
	// Metrics is the registerer of the package's metrics, which by default are not registered.
	Metrics prometheus.Registerer
	// TracerProvider creates a trace of each try to provision a claim, with a span for each step; nil creates none. A span
	// ends in the worker that did its work, so a provider that sends spans synchronously delays the work.
	TracerProvider trace.TracerProvider
	// Clock is replaced in tests, and defaults to the real clock.
	Clock clock.WithTicker
}

// Lease is the leader election lease of this process. Left returns the time for which the process still holds it, on
// its own clock, and zero or less if it does not; it is safe for concurrent use.
type Lease interface {
	Left() time.Duration
}

// ClaimFollower receives the events of a watch of claims, in order. Its methods must not block or retain the claim.
type ClaimFollower interface {
	// ClaimShown is called for each event, and each list item, that shows a claim.
	ClaimShown(claim *v1.PersistentVolumeClaim)
	// ClaimDeleted is called for each deletion event, with the claim's last state. A deletion that the watch missed is not
	// delivered.
	ClaimDeleted(last *v1.PersistentVolumeClaim)
}

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, 100)
	c.Quiet = cmp.Or(c.Quiet, 2*time.Minute)
	c.CloneWorkers = cmp.Or(c.CloneWorkers, 1)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	if c.Changed == nil {
		c.Changed = func(string, []map[string]string) {}
	}
	if c.Local != nil {
		local := c.Local.withDefaults()
		c.Local = &local
	}
	c.Clock = settings.Clock(c.Clock)
	return c
}

// Validate returns an error that lists every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Log == nil, "log: must not be nil")
	wrong.If(c.Quiet < 0, "quiet: %v is negative", c.Quiet)
	wrong.Workers(c.Workers)
	wrong.If(c.CloneWorkers < 0, "clone workers: %d is negative", c.CloneWorkers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	if c.Local != nil {
		c.Local.validate(&wrong)
	}
	for _, name := range c.AlsoKnownAs {
		wrong.If(name == "", "also known as: a name is empty")
	}
	return wrong.Err()
}

// node returns the only node to provision for, nil for the whole cluster.
func (c Config) node() *volume.Node {
	if c.Local == nil {
		return nil
	}
	return &c.Local.Node
}

// Local makes a Controller provision for its own node only: for claims that have this node selected.
type Local struct {
	// Node is the node. Required.
	Node volume.Node
	// Immediate lets the node select itself for claims that bind immediately, which no scheduler selects a node for.
	Immediate bool
	// BaseDelay and MaxDelay bound the delay before the node selects itself. It is at first random up to BaseDelay, and
	// then grows up to MaxDelay. Default 20 seconds and 1 minute, as in the stock external-provisioner.
	BaseDelay, MaxDelay time.Duration
}

func (l Local) withDefaults() Local {
	l.BaseDelay, l.MaxDelay = cmp.Or(l.BaseDelay, 20*time.Second), cmp.Or(l.MaxDelay, time.Minute)
	return l
}

func (l Local) validate(wrong *settings.Wrong) {
	l = l.withDefaults()
	wrong.If(l.Node.Name == "" || len(l.Node.Segments) == 0, "node: its name or its segments are empty")
	wrong.If(l.BaseDelay < 0 || l.MaxDelay < l.BaseDelay, "node: from %v to %v is not a growing delay", l.BaseDelay,
		l.MaxDelay)
}

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
// another version settles a call whose outcome is in doubt.
type Driver interface {
	// CreateVolume returns the volume of a request, whose VolumeId is the handle of the PV.
	CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest, secrets map[string]string) (*csi.Volume, error)
	// DeleteVolume deletes a volume.
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}

// Log is the in-flight log; *inflight.Log is one.
//
// A Log may have a method LeaseOf(volume string) v1.ObjectReference, which returns the Lease of a volume's entry.
// Events about a claim that is gone are then recorded on the Lease.
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
