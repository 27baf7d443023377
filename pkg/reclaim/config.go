package reclaim

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Deleter deletes volumes in a storage system. csidriver.Driver implements it; a vendor that embeds this package may
// call its own API instead.
type Deleter interface {
	// DeleteVolume deletes the volume with this handle (spec.csi.volumeHandle) and returns nil once it is gone, including
	// when it was gone before. Several workers call it at once, but never twice at once for the same volume, and it is
	// called again after an error. It returns soon after ctx ends, at the latest after Config.CallTimeout.
	//
	// secrets is the content of the Secret that is named for the deletion, nil without one, and must not be logged.
	//
	// An error may be marked (package errclass) to determine the next try.
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}

// Config holds the settings of a Controller. The zero value is usable: it honours the reclaim policy of a driver whose
// volumes no other program deletes.
type Config struct {
	// Role names the other programs that work on the driver's PVs. Default RoleOwner.
	Role volume.Role
	// Mode selects the purpose of the finalizers. Default ModeHonor.
	Mode Mode
	// Scope selects the PVs that are protected. Default ScopeBoundDelete.
	Scope Scope
	// IgnoreStatic leaves PVs alone that no provisioner created (without the annotation pv.kubernetes.io/provisioned-by).
	// By default they are treated like all others (KEP-2644).
	IgnoreStatic bool
	// ReclaimUnprotected deletes the volume of a PV that vanished before a finalizer could be added, if the policy was
	// Delete and the volume is proven to be unneeded; otherwise the volume is only reported. Default true, in role
	// observer false.
	ReclaimUnprotected *bool
	// NeverAttached asserts that no VolumeAttachment ever names a PV of the driver, so that they are not watched. It
	// holds only if the driver lacks PUBLISH_UNPUBLISH_VOLUME and its CSIDriver says attachRequired: false.
	NeverAttached bool
	// Node limits the work to the volumes of this node, for a driver that runs on each node by itself. PVs of other nodes
	// are not kept in memory, and no node deletes the volume of a PV that several nodes reach or may reach. Default nil,
	// the whole cluster.
	Node *volume.Node
	// NotFoundIsDeleted treats errclass.NotFound as a successful deletion. The CSI specification wants drivers to answer
	// OK for a volume that does not exist; NotFound can also come from a driver that looks in the wrong place.
	NotFoundIsDeleted bool
	// DryRun makes the Controller decide and report, in the log and the metrics, without writing to the API server or
	// deleting a volume.
	DryRun bool
	// InFlight is the in-flight log of the driver's provisioner, nil for none. A PV keeps its volume and its finalizers
	// while the log has an entry for its volume.
	InFlight InFlight
	// Brake stops all deletions when many become due at once; the zero value never does.
	Brake BrakeConfig
	// TakeoverPeriod is the time after Run began during which the previous leader's last writes may still appear: the
	// duration of its lease, by default 15 seconds.
	TakeoverPeriod time.Duration

	// Lease is checked before each deletion, write, Event and report, and its end cuts off the calls in flight. Default
	// nil: leader election is off, and this process always acts.
	Lease leadership.Holder

	// CallTimeout bounds the context of each DeleteVolume. Without a bound, a call that hangs would keep its worker and
	// its volume for ever. A Deleter with timeouts of its own needs a longer one here. Default 1 minute.
	CallTimeout time.Duration
	// Workers is the number of volumes that are deleted at once, which also bounds the load on the API server. Default
	// 100, as in the stock external-provisioner.
	Workers int
	// ProtectWorkers is the highest number of finalizers that are added to existing PVs at once. Fewer are added while
	// the API server answers 429, and one at a time while volumes are deleted. These workers are apart from Workers, so
	// that a backlog never delays a deletion. Default 8.
	ProtectWorkers int
	// RetryStart and RetryMax bound the delay after a failed deletion or API call, which doubles each time, by default
	// from 1 second to 5 minutes.
	RetryStart, RetryMax time.Duration
	// AdmissionPolicy, if set, returns since when the driver has had an unchanged admission policy that adds the
	// finalizer of Role in the write that binds a PV; found is false without one. PVs that are bound without the
	// finalizer nevertheless are counted, and reported once (AdmissionPolicyIneffective). One goroutine calls it, at most
	// every 10 seconds, and only after such a PV was seen. Default nil: policies are not checked.
	AdmissionPolicy func(ctx context.Context) (since time.Time, found bool, err error)
	// AdmissionPolicySettles is how long an admission policy must have stood unchanged before a PV that is bound without
	// the finalizer counts as missed, by default 1 minute: API servers learn of a policy within seconds, and clocks
	// differ. A shorter time reports PVs that no API server could have protected.
	AdmissionPolicySettles time.Duration
	// Deleted, if set, is called for each deleted volume with its class and the topology segments that it could be used
	// in, none if they are unknown. It must return at once, and a panic in it is logged.
	Deleted func(class string, at []map[string]string)
	// Progress, if set, is called during Release after each PV, with the numbers of PVs released so far, of failures, and
	// of all PVs to release. Calls are serialized and must return at once.
	Progress func(released, failed, of int)
	// Events records the causes that keep a PV, and deletions that ended irregularly, as Events of the PV. It should have
	// a client and a limit of its own. Default nil, which drops all Events.
	Events record.EventRecorder
	// Metrics is the registry for the package's metrics, nil to register none.
	Metrics prometheus.Registerer
	// TracerProvider creates a trace of each reclaim, at most 1000 at once, from the moment a volume becomes deletable
	// until the finalizer is off its PV; nil and dry runs create none. A span ends in the worker that did its work, so a
	// provider that sends spans synchronously delays deletions.
	TracerProvider trace.TracerProvider
	// Clock is replaced in tests; the default is the real clock.
	Clock clock.WithTicker
}

// InFlight reports the volumes that are being provisioned; *inflight.Log implements it. It is safe for concurrent use.
type InFlight interface {
	// InFlight returns the log's state for the volume of the PV with this name, which is unknown until the log has been
	// read. For volume.InFlightUnreadable, problem names the unreadable part and the cause.
	InFlight(pv string) (state volume.InFlight, problem string)
	// Follow registers changed to be called with a volume's name when its entry is gone, or can be read again; changed
	// must not block.
	Follow(changed func(volume string))
}

func (c Config) withDefaults() Config {
	c.Role = cmp.Or(c.Role, volume.RoleOwner)
	if c.ReclaimUnprotected == nil {
		reclaims := c.Role != volume.RoleObserver
		c.ReclaimUnprotected = &reclaims
	}
	c.Brake.Window = cmp.Or(c.Brake.Window, time.Minute)
	c.TakeoverPeriod = cmp.Or(c.TakeoverPeriod, 15*time.Second)
	c.AdmissionPolicySettles = cmp.Or(c.AdmissionPolicySettles, time.Minute)
	c.CallTimeout = settings.CallTimeout(c.CallTimeout)
	c.Workers = cmp.Or(c.Workers, 100)
	c.ProtectWorkers = cmp.Or(c.ProtectWorkers, 8)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	if c.Deleted == nil {
		c.Deleted = func(string, []map[string]string) {}
	}
	if c.Progress == nil {
		c.Progress = func(int, int, int) {}
	}
	c.Events = settings.Events(c.Events, c.DryRun)
	if c.DryRun {
		c.TracerProvider = nil // no trace would ever end
	}
	c.Clock = settings.Clock(c.Clock)
	return c
}

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Role > volume.RoleObserver, "role: unknown value %d", c.Role)
	wrong.If(c.Mode > ModeRelease, "mode: unknown value %d", c.Mode)
	wrong.If(c.Scope > ScopeBoundAny, "scope: unknown value %d", c.Scope)
	wrong.If(c.Role == volume.RoleObserver && c.Mode != ModeHonor, "mode: role observer has no finalizers to remove")
	wrong.If(c.Node != nil && (c.Node.Name == "" || len(c.Node.Segments) == 0),
		"node: its name or its segments are empty")
	wrong.If(c.Brake.Deletions < 0, "brake: %d deletions is negative", c.Brake.Deletions)
	wrong.If(c.Brake.Window < 0, "brake: a window of %v is negative", c.Brake.Window)
	wrong.If(c.Brake.Deletions > 0 && (c.Brake.Lease.Name == "" || c.Brake.Lease.Namespace == ""),
		"brake: must name its Lease")
	wrong.If(c.TakeoverPeriod < 0, "takeover period: %v is negative", c.TakeoverPeriod)
	wrong.If(c.AdmissionPolicySettles < 0, "time for an admission policy to settle: %v is negative",
		c.AdmissionPolicySettles)
	wrong.CallTimeout(c.CallTimeout)
	wrong.Workers(c.Workers)
	wrong.If(c.ProtectWorkers < 0, "protect workers: %d is negative", c.ProtectWorkers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}

// rules returns the settings that decisions depend on, of a Config with its defaults.
func (c Config) rules(driver string) reclaim.Rules {
	return reclaim.Rules{
		Driver: driver, Role: c.Role, Mode: c.Mode, Scope: c.Scope, IgnoreStatic: c.IgnoreStatic,
		ReclaimUnprotected: *c.ReclaimUnprotected, NeverAttached: c.NeverAttached, Local: c.Node != nil,
		Logged: c.InFlight != nil,
	}
}

// Permissions returns the permissions that a Controller with this Config needs. Permissions to read Secrets are left
// out, because only a deletion shows which Secret it needs.
func (c Config) Permissions() []permission.Permission {
	c = c.withDefaults()
	var needed controller.Permissions
	c.addPVs(&needed)
	if c.Role != volume.RoleObserver || *c.ReclaimUnprotected {
		c.addReads(&needed)
	}
	if c.Brake.Deletions > 0 && !c.DryRun {
		const group, without = "coordination.k8s.io", "the brake does not survive a restart, and cannot be released"
		needed.Namespace = c.Brake.Lease.Namespace
		needed.AddUnsafe(group, "leases", without, "get")
		needed.Add(group, "leases", without, "patch")
		needed.Add(group, "leases", "where the Lease does not exist, no annotation can stop deletions", "create")
		needed.Namespace = ""
	}
	needed.AddEvents(c.Events, "only the log and the metrics show why a PV stays")
	return needed.All
}

func (c Config) addPVs(needed *controller.Permissions) {
	const pvs = "persistentvolumes"
	needed.AddUnsafe("", pvs, "PVs are not observed", "list", "watch")
	if c.Role != volume.RoleObserver {
		needed.AddUnsafe("", pvs, "no volume is deleted, because its PV cannot be read live", "get")
		if !c.DryRun {
			needed.Add("", pvs, "no existing PV is protected, so a PV that is deleted before its claim leaks its volume, and "+
				"deleted PVs with the finalizer, as all new ones have it, stay for ever", "patch")
		}
	}
	if c.Role == volume.RoleOwner && !c.DryRun {
		needed.Add("", pvs, "PVs stay when their volume is deleted", "delete")
	}
}

// addReads adds the permissions for the reads that precede the deletion of a volume.
func (c Config) addReads(needed *controller.Permissions) {
	const storage = "storage.k8s.io"
	needed.AddUnsafe("", "persistentvolumeclaims",
		"no volume is deleted, because it is not known whether its claim is gone", "get")
	needed.Add(storage, "storageclasses",
		"volumes of PVs without the annotations that name their Secret are not deleted", "get")
	if c.Node != nil {
		needed.AddUnsafe("", "nodes",
			"no volume is deleted, because it is not known whether another node has it too", "list")
	}
	if !c.NeverAttached {
		needed.AddUnsafe(storage, "volumeattachments",
			"no volume is deleted, because it is not known whether one is attached", "list", "watch")
	}
}

// MissingPermissions returns the permissions of its Config that the API server does not grant.
func (r *Controller) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	return permission.Missing(ctx, r.authorization, r.cfg.Permissions())
}
