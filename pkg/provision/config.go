package provision

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/sources"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Controller.
type Config struct {
	// Log is the in-flight log, which this Controller runs. Required.
	Log Log
	// Lease says for how long this process may act. Past it nothing is begun, and calls in flight are cut off.
	// Default: there is no leader election, and it always may.
	Lease Lease
	// Quiet is how long a call that was not answered can take to arrive: at least the lease's duration, and the
	// longer of the driver's call timeout and the API server's request timeout (1 minute by default). An entry
	// of the log that such a call concerns is not settled before. Default 2 minutes.
	Quiet time.Duration
	// FinishOnly settles what the in-flight log has, and provisions nothing new: for a process beside another
	// provisioner. Claims are not watched then.
	FinishOnly bool
	// AlsoKnownAs are further provisioner names that count as this driver's: the in-tree name of a
	// migrated driver. Default none.
	AlsoKnownAs []string
	// Local has the volumes of one node provisioned alone. Default: those of the whole cluster.
	Local *Local
	// Workers is how many volumes are worked on at once, those included whose outcome is in doubt. Default 100, as many as
	// the stock external-provisioner has.
	Workers int
	// CloneWorkers is how many sources of volumes, claims and snapshots, lose their protection at once. Default 1.
	CloneWorkers int
	// Snapshots adds a finalizer to VolumeSnapshots while volumes are restored from them. Default: nobody
	// keeps them.
	Snapshots sources.SnapshotProtector
	// RetryStart and RetryMax bound the delay, doubled each time, after a failed try. Refusals, which a person has to mend
	// first, start at ten times RetryStart. Default 1 second and 5 minutes, as in the stock
	// external-provisioner.
	RetryStart, RetryMax time.Duration
	// PVs shows which PVs there are. Whoever gives it keeps it up to date while Watch or Run is at
	// work. Default: a watch of its own.
	PVs PVLister
	// Claims, if set, receives what the watch of claims shows: the reclaim.Controller of the same driver, which then
	// reads no claim whose end was shown. With FinishOnly it receives nothing.
	Claims ClaimFollower
	// Changed, if set, is called when what the driver has left may have changed, with the class and with
	// the places of the volume, none where they are not known. It is to return at once.
	Changed func(class string, at []map[string]string)
	// Events records on the claim what comes of each try. Default: a recorder of its own, through the client of all
	// other requests.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// Lease says for how long this process still holds its leader election lease, by its own clock: zero or less if it
// does not. It is safe for concurrent use.
type Lease interface {
	Left() time.Duration
}

// ClaimFollower receives what a watch of claims shows, in its order. Its methods must not block, nor keep the claim.
type ClaimFollower interface {
	// ClaimShown is called for each event, and each item of a list, that shows a claim.
	ClaimShown(claim *v1.PersistentVolumeClaim)
	// ClaimDeleted is called for the event that shows the end of a claim, with its last state. An end that the watch has
	// missed is not delivered.
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

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Log == nil, "log: no in-flight log is given")
	wrong.If(c.Quiet < 0, "quiet: %v is negative", c.Quiet)
	wrong.Workers(c.Workers)
	wrong.If(c.CloneWorkers < 0, "clone workers: %d is negative", c.CloneWorkers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	if c.Local != nil {
		err := c.Local.validate()
		wrong.If(err != nil, "%w", err)
	}
	for _, name := range c.AlsoKnownAs {
		wrong.If(name == "", "also known as: a name is empty")
	}
	return wrong.Err()
}

// node returns the node whose volumes alone are made, nil for the whole cluster.
func (c Config) node() *volume.Node {
	if c.Local == nil {
		return nil
	}
	return &c.Local.Node
}

// Local has a Controller make the volumes of its own node alone: those of claims for which this node
// was selected.
type Local struct {
	// Node is the node. Required.
	Node volume.Node
	// Immediate has the node bid for claims that bind immediately, for which nobody selects one.
	Immediate bool
	// BaseDelay and MaxDelay bound how long it waits before it bids: at first any time up to
	// BaseDelay, then longer each time, up to MaxDelay. Default 20 seconds and 1 minute, as in the
	// stock external-provisioner.
	BaseDelay, MaxDelay time.Duration
}

func (l Local) withDefaults() Local {
	if l.BaseDelay == 0 {
		l.BaseDelay = 20 * time.Second
	}
	if l.MaxDelay == 0 {
		l.MaxDelay = time.Minute
	}
	return l
}

// validate returns what is wrong with it.
func (l Local) validate() error {
	full := l.withDefaults()
	switch {
	case l.Node.Name == "" || len(l.Node.Segments) == 0:
		return errors.New("node: its name or its segments are not given")
	case full.BaseDelay < 0 || full.MaxDelay < full.BaseDelay:
		return fmt.Errorf("node: from %v to %v is not a growing delay", full.BaseDelay, full.MaxDelay)
	}
	return nil
}
