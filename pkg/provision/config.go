package provision

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/sources"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Controller.
type Config struct {
	// Log is the in-flight log, which the Controller runs. Required.
	Log Log
	// Lease limits the time for which this process may act. It is asked before each call of the driver, and each write of
	// a claim or a source. Once it is not renewed in time, no call is begun, calls in flight are canceled, and Run ends.
	// By default no leader election limits the process.
	Lease Lease
	// Quiet is the time within which an unanswered call can still arrive. It must cover the lease's duration, and the
	// longer of CallTimeout and the API server's request timeout (1 minute by default). An entry is not settled before
	// the quiet period of its unanswered call is over. Default 1 minute more than CallTimeout, at least 2 minutes.
	Quiet time.Duration
	// CallTimeout bounds the context of each CreateVolume and DeleteVolume. Without a bound, a call that hangs would keep
	// its worker and its claim for ever. A Driver with timeouts of its own needs a longer one here. Default 1 minute.
	CallTimeout time.Duration
	// FinishOnly settles the entries of the in-flight log, but neither watches claims nor provisions new volumes. It is
	// for a process beside another provisioner.
	FinishOnly bool
	// AlsoKnownAs lists further provisioner names of this driver, such as the in-tree name of a migrated driver. Default
	// none.
	AlsoKnownAs []string
	// Local limits provisioning to the volumes of one node; nil stands for the whole cluster. Log, the RequestBuilder, PVs
	// and the reclaim.Controller beside need the same node.
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
	// PVs is a watch cache of PVs. The caller keeps it up to date while Watch or Run is working. A
	// reclaim.Controller that provides it needs the in-flight log, too (reclaim.Config.InFlight). Default: a watch of its
	// own.
	PVs PVLister
	// Claims, if set, receives the events of the watch of claims. It is the reclaim.Controller of the same driver, which
	// then does not read claims whose deletion was shown, and receives no events with FinishOnly.
	Claims ClaimFollower
	// Changed, if set, is called when the driver's free capacity may have changed, with the class and the topology
	// segments of the volume, nil if they are unknown. It must return immediately, and a panic in it is logged.
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

// ClaimFollower receives the events of a watch of claims, in order. Its methods must not block or retain the claim,
// which may have only its namespace, name, UID, resourceVersion and spec.volumeName.
type ClaimFollower interface {
	// ClaimShown is called for each event, and each list item, that shows a claim.
	ClaimShown(claim *v1.PersistentVolumeClaim)
	// ClaimDeleted is called for each deletion event, with the claim's last state. A deletion that the watch missed is not
	// delivered.
	ClaimDeleted(last *v1.PersistentVolumeClaim)
}

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, 100)
	c.CallTimeout = settings.CallTimeout(c.CallTimeout)
	c.Quiet = cmp.Or(c.Quiet, max(2*time.Minute, c.CallTimeout+time.Minute))
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
	wrong.CallTimeout(c.CallTimeout)
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

// sameNode returns an error if an input reports another node than Local. An input for the whole cluster would take the
// volumes of other nodes for this one's.
func (c Config) sameNode(name string, input any) error {
	of, reports := input.(interface{ Node() *volume.Node })
	if !reports {
		return nil
	}
	if here, there := placeOf(c.node()), placeOf(of.Node()); here != there {
		return fmt.Errorf("Config.Local is %s, and %s is of %s", here, name, there)
	}
	return nil
}

// keepsInFlight returns an error if PVs is of a reclaim.Controller without the in-flight log. It would delete a volume
// while a late CreateVolume can make it again, after which nothing names the volume.
func (c Config) keepsInFlight() error {
	of, reports := c.PVs.(interface{ KeepsInFlight() bool })
	if !reports || of.KeepsInFlight() {
		return nil
	}
	return errors.New("Config.PVs is of a reclaim.Controller that deletes volumes in flight: set its " +
		"reclaim.Config.InFlight to Config.Log")
}

func placeOf(node *volume.Node) string {
	if node == nil {
		return "the whole cluster"
	}
	return fmt.Sprintf("node %q", node.Name)
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
