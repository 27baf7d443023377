package reclaim

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Deleter deletes volumes in a storage system. csidriver.Driver is one; a vendor that
// embeds this package may call their own API instead.
type Deleter interface {
	// DeleteVolume deletes the volume with this handle (spec.csi.volumeHandle) and returns
	// nil once it is gone, also if it was gone before. It is called by several workers at
	// once, for one volume never twice at once, and again after an error. It returns soon
	// after ctx ends.
	//
	// secrets is the content of the Secret named for the deletion, nil when there is none.
	// It must not be logged.
	//
	// An error may be marked (package errclass) to say what it means for the next try.
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}

// Config holds the settings of a Controller. The zero value is usable: it honours the
// reclaim policy of a driver whose volumes nobody else deletes.
type Config struct {
	// Role says what else works on the driver's PVs. Default RoleOwner.
	Role volume.Role
	// Mode says what the finalizers are for. Default ModeHonor.
	Mode Mode
	// Scope says which PVs are protected. Default ScopeBoundDelete.
	Scope Scope
	// IgnoreStatic leaves PVs alone that no provisioner made (without the annotation
	// pv.kubernetes.io/provisioned-by). Default: they are treated as all others (KEP-2644).
	IgnoreStatic bool
	// ReclaimUnprotected has the volume of a PV deleted that vanished before a finalizer
	// could be added, if the policy was Delete and it is proven that nobody needs the
	// volume. Otherwise it is reported only. Default true, in role observer false.
	ReclaimUnprotected *bool
	// NeverAttached: no VolumeAttachment ever names a PV of the driver, so they are not
	// watched. True only where the driver lacks PUBLISH_UNPUBLISH_VOLUME and its CSIDriver
	// says attachRequired: false.
	NeverAttached bool
	// Node limits the work to the volumes of this node, for a driver that runs on each node by
	// itself. PVs of other nodes are not even kept in memory; of a PV that several nodes reach,
	// or may reach, none deletes the volume. Default: the whole cluster.
	Node *volume.Node
	// NotFoundIsDeleted takes errclass.NotFound for a volume that is deleted. The CSI
	// specification wants drivers to answer OK for one that is not there; NotFound can also
	// mean a driver that looks in the wrong place.
	NotFoundIsDeleted bool
	// DryRun decides and reports, in the log and the metrics, but writes nothing to the API
	// server and deletes no volume.
	DryRun bool
	// InFlight is the in-flight log of the driver's provisioner. A PV keeps its volume and its finalizers while its
	// volume has an entry there. Default: there is none.
	InFlight InFlight
	// Brake stops all deletions when suddenly many are due. Default: no brake.
	Brake BrakeConfig
	// TakeoverPeriod is how long after Run began the previous leader's last writes may
	// still be seen: the duration of its lease. Default 15 seconds.
	TakeoverPeriod time.Duration

	// Lease is asked before each deletion, write, Event and report; what is in flight is cut off when
	// it ends. Default nil: there is no leader election, and this process always acts.
	Lease leadership.Holder

	// Workers is how many volumes are deleted at once. Default 100, as many as the stock
	// external-provisioner has; it also bounds the load on the API server.
	Workers int
	// ProtectWorkers is how many finalizers are added to existing PVs at once, at most: there
	// are fewer while the API server answers 429, and only one while volumes are deleted.
	// They are apart from Workers, so that a backlog never delays a deletion. Default 8.
	ProtectWorkers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a failed deletion
	// or API call. Default 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// AdmissionPolicy, if set, returns since when an admission policy that adds the finalizer of Role in the write that
	// binds a PV has stood for the driver, unchanged; found is false where none does. PVs that are bound without the
	// finalizer nevertheless are counted, and reported once (AdmissionPolicyIneffective). It is called when there are
	// any, every 10 seconds at most, by one goroutine. Default: nothing is asked.
	AdmissionPolicy func(ctx context.Context) (since time.Time, found bool, err error)
	// AdmissionPolicySettles is how long an admission policy must have stood unchanged before a PV that is bound without
	// the finalizer counts as missed: API servers learn of a policy within seconds, and clocks differ. With less than
	// that, PVs are reported that no API server could have protected. Default 1 minute.
	AdmissionPolicySettles time.Duration
	// Deleted, if set, is called for each volume that was deleted with its class, and the topology segments from which
	// it could be used, none where they are not known. It must return at once. Default none.
	Deleted func(class string, at []map[string]string)
	// Progress, if set, is called during Release after each PV, with how many were released and how many could not be, of
	// how many. Calls are one at a time, and must return at once. Default none.
	Progress func(released, failed, of int)
	// Events records what keeps a PV, on the PV, and what ends a deletion that was not as
	// it should be. It should have a client and a limit of its own. Default none.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// TracerProvider makes a trace of each reclaim, from the moment in which a volume becomes deletable
	// until the finalizer is off its PV: at most 1000 at once. A span ends in the worker that did its work, so
	// one that sends it there and then holds up deletions. A dry run makes none. Default: no traces.
	TracerProvider trace.TracerProvider
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// InFlight reports which volumes are being provisioned; *inflight.Log is one. It is safe for concurrent use.
type InFlight interface {
	// InFlight returns what the log has for the volume of the PV with this name: nothing is known until the log has been
	// read. problem says for volume.InFlightUnreadable what cannot be read and why, and names it.
	InFlight(pv string) (state volume.InFlight, problem string)
	// Follow calls settled with the volume's name when its entry is gone. settled does not block.
	Follow(settled func(volume string))
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
		c.TracerProvider = nil // nothing would ever end
	}
	c.Clock = settings.Clock(c.Clock)
	return c
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Role > volume.RoleObserver, "role: %d is none", c.Role)
	wrong.If(c.Mode > ModeRelease, "mode: %d is none", c.Mode)
	wrong.If(c.Scope > ScopeBoundAny, "scope: %d is none", c.Scope)
	wrong.If(c.Role == volume.RoleObserver && c.Mode != ModeHonor, "mode: role observer has no finalizers to remove")
	wrong.If(c.Node != nil && (c.Node.Name == "" || len(c.Node.Segments) == 0),
		"node: its name or its segments are not given")
	wrong.If(c.Brake.Deletions < 0, "brake: %d deletions is negative", c.Brake.Deletions)
	wrong.If(c.Brake.Window < 0, "brake: a window of %v is negative", c.Brake.Window)
	wrong.If(c.Brake.Deletions > 0 && (c.Brake.Lease.Name == "" || c.Brake.Lease.Namespace == ""),
		"brake: no Lease is named that says whether it is on")
	wrong.If(c.TakeoverPeriod < 0, "takeover period: %v is negative", c.TakeoverPeriod)
	wrong.If(c.AdmissionPolicySettles < 0, "time for an admission policy to settle: %v is negative",
		c.AdmissionPolicySettles)
	wrong.Workers(c.Workers)
	wrong.If(c.ProtectWorkers < 0, "protect workers: %d is negative", c.ProtectWorkers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}

// Rules are the settings that decisions depend on. c has its defaults.
func (c Config) rules(driver string) reclaim.Rules {
	return reclaim.Rules{
		Driver: driver, Role: c.Role, Mode: c.Mode, Scope: c.Scope, IgnoreStatic: c.IgnoreStatic,
		ReclaimUnprotected: *c.ReclaimUnprotected, NeverAttached: c.NeverAttached, Local: c.Node != nil,
		Logged: c.InFlight != nil,
	}
}

// Permissions returns the permissions that a Controller with this Config needs. Those for Secrets are not
// among them: which ones it needs is known only when it deletes a volume.
func (c Config) Permissions() []permission.Permission {
	c = c.withDefaults()
	permissions := c.pvPermissions()
	if c.Role != volume.RoleObserver || *c.ReclaimUnprotected {
		permissions = append(permissions, c.deletionPermissions()...)
	}
	if c.Brake.Deletions > 0 && !c.DryRun {
		for _, verb := range []string{"get", "patch"} {
			permissions = append(permissions, permission.Permission{Group: "coordination.k8s.io", Resource: "leases", Verb: verb,
				Namespace: c.Brake.Lease.Namespace,
				Without:   "the brake does not survive a restart, and cannot be released", Unsafe: verb == "get"})
		}
	}
	if _, none := c.Events.(events.Discard); !none {
		for _, verb := range []string{"create", "patch"} {
			permissions = append(permissions, permission.Permission{Resource: "events", Verb: verb,
				Without: "what keeps a PV is reported in the log and the metrics only"})
		}
	}
	return permissions
}

// pvPermissions returns the permissions on PVs.
func (c Config) pvPermissions() []permission.Permission {
	pv := func(verb, without string, unsafe bool) permission.Permission {
		return permission.Permission{Resource: "persistentvolumes", Verb: verb, Without: without, Unsafe: unsafe}
	}
	permissions := []permission.Permission{
		pv("list", "nothing is known of PVs", true),
		pv("watch", "nothing is known of PVs", true),
	}
	if c.Role != volume.RoleObserver {
		permissions = append(permissions,
			pv("get", "no volume is deleted, because it is not known whether its PV still says so", true))
		if !c.DryRun {
			permissions = append(permissions,
				pv("patch", "no PV is protected, so a PV that is deleted before its claim leaks its volume, and PVs that are "+
					"protected already stay for ever", false))
		}
	}
	if c.Role == volume.RoleOwner && !c.DryRun {
		permissions = append(permissions, pv("delete", "PVs stay when their volume is deleted", false))
	}
	return permissions
}

// deletionPermissions returns the permissions to read what must be known before a volume is deleted.
func (c Config) deletionPermissions() []permission.Permission {
	const storage = "storage.k8s.io"
	permissions := []permission.Permission{
		{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "no volume is deleted, because it is not known whether its claim is gone", Unsafe: true},
		{Group: storage, Resource: "storageclasses", Verb: "get",
			Without: "volumes of PVs without the annotations that name their Secret are not deleted"},
	}
	if c.Node != nil {
		permissions = append(permissions, permission.Permission{Resource: "nodes", Verb: "list",
			Without: "no volume is deleted, because it is not known whether another node has it too", Unsafe: true})
	}
	if !c.NeverAttached {
		without := "no volume is deleted, because it is not known whether one is attached"
		permissions = append(permissions,
			permission.Permission{Group: storage, Resource: "volumeattachments", Verb: "list", Without: without, Unsafe: true},
			permission.Permission{Group: storage, Resource: "volumeattachments", Verb: "watch", Without: without, Unsafe: true})
	}
	return permissions
}

// MissingPermissions returns those of the permissions of its Config that the API server does not grant.
func (r *Controller) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	return permission.Missing(ctx, r.authorization, r.cfg.Permissions())
}
