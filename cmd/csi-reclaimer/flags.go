package main

import (
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/tracing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

type options struct {
	csiAddress string
	timeout    time.Duration

	cluster app.ClusterOptions

	provision     optionalBool
	quiet         time.Duration
	volumes       request.Settings
	immediate     bool
	preventMode   bool
	cloneWorkers  int
	sweepInterval time.Duration
	capacity      capacityOptions
	node          nodeOptions
	leaks         leakOptions

	role               string
	honor              bool
	gates              featuregate.MutableFeatureGate
	scope              string
	staticPVs          string
	reclaimUnprotected optionalBool
	notFoundIsDeleted  bool
	releaseFinalizers  bool
	dryRun             bool
	brakeDeletions     int
	brakeWindow        time.Duration

	workers        int
	protectWorkers int
	retryStart     time.Duration
	retryMax       time.Duration

	leader leader.Options
	http   health.Options
	traces tracing.Options
	grace  time.Duration
}

// Values of --finalizer-scope and --static-pvs.
const (
	scopeBoundDelete = "bound-delete"
	scopeBoundAny    = "bound-any"
	staticHonor      = "honor"
	staticIgnore     = "ignore"
)

// honorGate is the feature gate under which the stock external-provisioner honors the reclaim policy (KEP-2644).
const honorGate featuregate.Feature = "HonorPVReclaimPolicy"

// Feature gates of the stock external-provisioner that do not concern the reclaim policy.
const (
	topologyGate       featuregate.Feature = "Topology"
	attributesGate     featuregate.Feature = "VolumeAttributesClass"
	crossNamespaceGate featuregate.Feature = "CrossNamespaceVolumeDataSource"
	releaseLeaseGate   featuregate.Feature = "ReleaseLeaderElectionOnExit"
)

// Flags returns the flags that set o, in the groups of --help. Flags that also exist in other kubernetes-csi sidecars
// have the same names and defaults here.
func (o *options) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets

	fs := groups.FlagSet("CSI driver")
	fs.StringVar(&o.csiAddress, "csi-address", "/run/csi/socket",
		"The CSI driver's socket: an absolute path, or unix:///path. The directory must exist. csi-reclaimer waits for "+
			"the driver.")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second,
		"Timeout of one call to the CSI driver. A call that takes longer is repeated, because it may have succeeded.")

	o.cluster.Flags(groups.FlagSet("Kubernetes"),
		"Requests per second to the API server. The limit applies to each of these separately: deletions, first-time "+
			"protection (--protect-threads), provisioning, and the reads for CreateVolume requests. Watches, the Lease and "+
			"Events (10 per second) are not limited by it. 0: no client-side limit; the number of workers bounds the "+
			"concurrent requests, and csi-reclaimer obeys Retry-After of the API server's 429 responses. A deletion takes at "+
			"least 3 requests when the PV was deleted first and 4 when the claim was, so this limits deletions.")
	o.cluster.MasterFlag(groups.FlagSet("Kubernetes"))
	o.provisioningFlags(groups.FlagSet("Provisioning"))
	o.capacity.flags(groups.FlagSet("Capacity"))
	o.leaks.flags(groups.FlagSet("Leak check"))
	o.reclaimingFlags(groups.FlagSet("Reclaiming"))
	o.leader.Flags(groups.FlagSet("Leader election"),
		"the driver's Lease. Required with more than one replica. In role owner it is the Lease of the "+
			"external-provisioner; in the other roles its name ends in -reclaimer.",
		", of the brake and of the in-flight log")
	fs = groups.FlagSet("Health and metrics")
	o.http.Flags(fs)
	fs.DurationVar(&o.grace, "shutdown-grace", 15*time.Second,
		"How long calls in progress may take after SIGTERM before they are canceled. Keep it below the pod's "+
			"terminationGracePeriodSeconds.")

	o.traces.Flags(groups.FlagSet("Traces"),
		"a trace of each attempt to create a volume and of each reclaim, with every read, write and driver call")
	groups.FlagSet("Logs") // keeps this group before Other
	fs = groups.FlagSet("Other")
	o.gates.AddFlag(fs)
	fs.Bool("automaxprocs", false,
		"Accepted for compatibility with the external-provisioner, and ignored: the Go runtime obeys the CPU limit of the "+
			"container (GOMAXPROCS overrides it).")
	return groups
}

func (o *options) reclaimingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.role, "role", volume.RoleOwner.String(),
		"Which other provisioner works on this driver's PVs. owner: none; csi-reclaimer provisions volumes (--provision), "+
			"and deletes them in any order of deletion. "+
			"companion: an external-provisioner without KEP-2644 (4.x and older, or HonorPVReclaimPolicy off) deletes the "+
			"volumes of PVs whose claim was deleted first, and csi-reclaimer the others. "+
			"observer: an external-provisioner that honors the policy (5.0 and newer); csi-reclaimer writes no finalizer, "+
			"and reports volumes that leak nevertheless.")
	fs.BoolVar(&o.honor, "honor-reclaim-policy", true,
		"Honor the reclaim policy in any order of deletion. false rolls back: csi-reclaimer removes its finalizers, and "+
			"deletes only volumes of released PVs, as provisioners before KEP-2644 did.")
	fs.StringVar(&o.scope, "finalizer-scope", scopeBoundDelete,
		"Which claimed PVs are protected. bound-delete: PVs with reclaim policy Delete. bound-any: PVs with any policy, so "+
			"that a PV is already protected if its policy becomes Delete right before its deletion.")
	fs.StringVar(&o.staticPVs, "static-pvs", staticHonor,
		"PVs that no provisioner created. honor: handled like all others. ignore: they lose csi-reclaimer's "+
			"finalizers and are not changed otherwise; they only keep a volume from being deleted by another PV.")
	fs.Var(&o.reclaimUnprotected, "reclaim-unprotected",
		"Delete the volume of a PV that disappeared before it was protected, if csi-reclaimer can prove that nothing "+
			"needs it; otherwise only report it. Default: true, in role observer false.")
	fs.Lookup("reclaim-unprotected").NoOptDefVal = "true"
	fs.BoolVar(&o.notFoundIsDeleted, "not-found-is-deleted", false,
		"Treat NotFound from DeleteVolume as success. The CSI specification requires OK for a volume that does not exist; "+
			"NotFound can also mean that the driver looks in the wrong place.")
	fs.BoolVar(&o.dryRun, "dry-run", false,
		"Decide, and report in the log and the metrics, but write nothing to the API server (neither Events nor a Lease), "+
			"and neither create nor delete volumes.")
	fs.BoolVar(&o.releaseFinalizers, "release-finalizers", false,
		"Finish the volumes in flight, remove the finalizers of this role from all other PVs of the driver, print how many, "+
			"and exit. No volume of a PV is deleted. "+
			"The first step of removing csi-reclaimer; stop all its replicas before.")
	fs.IntVar(&o.brakeDeletions, "brake-deletions", 0,
		"Stop all deletions when more than this many volumes become deletable within --brake-window, until the annotation "+
			reclaim.BrakeAnnotation+" is removed from the Lease. 0: no brake.")
	fs.DurationVar(&o.brakeWindow, "brake-window", time.Minute,
		"Over which time --brake-deletions counts.")
	fs.IntVar(&o.workers, "worker-threads", 100,
		"How many volumes are deleted concurrently, and how many are created, with the CreateVolume calls that are "+
			"repeated.")
	fs.IntVar(&o.protectWorkers, "protect-threads", 8,
		"How many finalizers are added to existing PVs concurrently, at most: fewer while the API server answers 429, one "+
			"while volumes are deleted.")
	fs.DurationVar(&o.retryStart, "retry-interval-start", time.Second,
		"Delay after the first failure of a deletion or a creation; ten times as long if a person has to fix the cause. "+
			"It doubles with each failure, up to --retry-interval-max.")
	fs.DurationVar(&o.retryMax, "retry-interval-max", 5*time.Minute,
		"Longest delay after a failed deletion or creation.")
}

func newOptions() (*options, error) {
	o := &options{gates: featuregate.NewFeatureGate()}
	err := o.gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		honorGate:          {Default: true, PreRelease: featuregate.Beta},
		topologyGate:       {Default: true, PreRelease: featuregate.GA},
		attributesGate:     {Default: true, PreRelease: featuregate.GA},
		crossNamespaceGate: {Default: false, PreRelease: featuregate.Alpha},
		releaseLeaseGate:   {Default: true, PreRelease: featuregate.Beta},
	})
	return o, err
}

// optionalBool is a flag whose default depends on other flags.
type optionalBool struct{ value *bool }

func (b *optionalBool) String() string {
	if b.value == nil {
		return ""
	}
	return strconv.FormatBool(*b.value)
}

func (b *optionalBool) Set(text string) error {
	value, err := strconv.ParseBool(text)
	b.value = &value
	return err
}

func (b *optionalBool) Type() string { return "bool" }

// parseRole returns the role of that name, or RoleUnknown.
func parseRole(name string) volume.Role {
	for _, role := range []volume.Role{volume.RoleOwner, volume.RoleCompanion, volume.RoleObserver} {
		if name == role.String() {
			return role
		}
	}
	return volume.RoleUnknown
}

// callTimeout returns a bound that no call of the driver reaches, because each one has --timeout.
func (o *options) callTimeout() time.Duration { return o.timeout + allowance }

func (o *options) reclaimConfig(driver string) reclaim.Config {
	c := reclaim.Config{
		Role:               parseRole(o.role),
		IgnoreStatic:       o.staticPVs == staticIgnore,
		ReclaimUnprotected: o.reclaimUnprotected.value,
		NotFoundIsDeleted:  o.notFoundIsDeleted,
		DryRun:             o.dryRun,
		Workers:            o.workers, ProtectWorkers: o.protectWorkers,
		RetryStart: o.retryStart, RetryMax: o.retryMax, CallTimeout: o.callTimeout(),
		TakeoverPeriod: o.leader.Settings.LeaseDuration,
	}
	if o.scope == scopeBoundAny {
		c.Scope = reclaim.ScopeBoundAny
	}
	switch {
	case o.releaseFinalizers:
		c.Mode = reclaim.ModeRelease
	case !o.honor || !o.gates.Enabled(honorGate):
		c.Mode = reclaim.ModeRollback
	}
	if o.brakeDeletions > 0 {
		c.Brake = reclaim.BrakeConfig{
			Deletions: o.brakeDeletions, Window: o.brakeWindow,
			Lease: types.NamespacedName{Namespace: o.leader.Namespace(), Name: leaseName(driver, c.Role)},
		}
	}
	return c
}

// ownLabels adds the label by which the plugin recognizes the Leases of a driver's csi-reclaimer, also those of nodes,
// and the label that keeps the Leases out of backups.
func ownLabels(set map[string]string, driver string) map[string]string {
	set = maps.Clone(set)
	if set == nil {
		set = map[string]string{}
	}
	set[objects.DriverLabel], set[kube.NoBackup] = driver, "true"
	return set
}

// leaseName returns the name of the Lease for leader election. An owner uses the stock provisioner's Lease, so that
// one of the two programs waits for the other; the other roles work beside the provisioner and have their own.
func leaseName(driver string, role volume.Role) string {
	if role == volume.RoleOwner {
		return leader.LeaseName(driver)
	}
	return leader.LeaseName(driver) + "-reclaimer"
}

// Validate returns an error that names all invalid settings, or nil.
func (o *options) Validate() error {
	var wrong settings.Wrong
	role := parseRole(o.role)
	wrong.If(role == volume.RoleUnknown, "--role=%s: must be owner, companion or observer", o.role)
	wrong.If(o.scope != scopeBoundDelete && o.scope != scopeBoundAny, "--finalizer-scope=%s: must be %s or %s", o.scope,
		scopeBoundDelete, scopeBoundAny)
	wrong.If(o.staticPVs != staticHonor && o.staticPVs != staticIgnore, "--static-pvs=%s: must be %s or %s", o.staticPVs,
		staticHonor, staticIgnore)
	wrong.If(role == volume.RoleObserver && !o.honor,
		"--honor-reclaim-policy=false: role observer adds no finalizer, so there is nothing to roll back; leave the flag out")
	wrong.If(role == volume.RoleObserver && o.releaseFinalizers,
		"--release-finalizers: role observer adds no finalizer; set --role to the role that did")
	wrong.If(o.releaseFinalizers && o.dryRun, "--release-finalizers: a dry run removes nothing; leave out --dry-run")
	wrong.If(o.brakeDeletions < 0, "--brake-deletions=%d: must not be negative", o.brakeDeletions)
	wrong.If(o.brakeWindow <= 0, "--brake-window=%v: must be positive", o.brakeWindow)
	wrong.If(o.timeout <= 0, "--timeout=%v: must be positive", o.timeout)
	wrong.If(o.workers < 1, "--worker-threads=%d: must be at least 1", o.workers)
	wrong.If(o.protectWorkers < 1, "--protect-threads=%d: must be at least 1", o.protectWorkers)
	wrong.If(o.retryStart <= 0, "--retry-interval-start=%v: must be positive", o.retryStart)
	wrong.If(o.retryMax < o.retryStart, "--retry-interval-max=%v: must not be below --retry-interval-start=%v", o.retryMax,
		o.retryStart)
	wrong.If(o.grace < 0, "--shutdown-grace=%v: must not be negative", o.grace)
	return errors.Join(wrong.Err(), o.cluster.Validate(), o.leader.Validate(), o.http.Validate(), o.traces.Validate(),
		o.validateProvisioning(role), o.validateCapacity(role), o.validateLeakCheck())
}
