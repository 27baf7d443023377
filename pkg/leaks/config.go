package leaks

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Controller. Only Interval is required, and all other fields have defaults.
type Config struct {
	// Interval is the delay between two leak checks, which jitter shortens by up to a fifth, so that many drivers do not
	// all list at once. Required.
	Interval time.Duration
	// Sightings is the number of consecutive complete leak checks without anything that accounts for a volume, before
	// the volume is suspected: at least 2, and by default 3.
	Sightings int
	// Grace is the minimum time since the first of these sightings. The default is 1 hour, and a negative value means
	// none.
	Grace time.Duration
	// PageSize is max_entries of ListVolumes. The default is 500, and a negative value leaves the choice to the driver.
	PageSize int
	// Snapshots lets leak checks read VolumeSnapshotContents, for a driver that takes snapshots. The default is false.
	Snapshots bool
	// Volumes is the PV watch of a Reclaimer for the same driver, so that PVs created or deleted during a leak check
	// count too. Default nil, which leaves this case to sightings and grace alone.
	Volumes Volumes
	// Node is the node whose volumes the driver lists, if each node has a process of its own. PVs of other nodes are not
	// expected in the list. Default nil, for all nodes.
	Node *volume.Node
	// Events records new suspects and failed leak checks on the Lease named by On, which need not exist. Default nil.
	Events record.EventRecorder
	On     types.NamespacedName
	// Metrics registers the package's metrics. By default they are not registered.
	Metrics prometheus.Registerer
	// Clock is replaced in tests, and defaults to the real clock.
	Clock clock.WithTicker
}

// Volumes is a watch of PVs; reclaim.PVs implements it.
type Volumes interface {
	// Follow registers a function that is called for each PV created or deleted, and is itself called before the watch
	// begins.
	Follow(changed func(volume.PV))
	// Synced reports whether the watch has delivered its initial list.
	Synced() bool
}

func (c Config) withDefaults() Config {
	c.Sightings = cmp.Or(c.Sightings, 3)
	c.Grace = cmp.Or(c.Grace, time.Hour)
	c.PageSize = cmp.Or(c.PageSize, 500)
	c.Grace, c.PageSize = max(0, c.Grace), max(0, c.PageSize)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// maxPageSize is the largest max_entries (CSI spec, int32).
const maxPageSize = 1<<31 - 1

// Validate returns an error that names all invalid settings, or nil.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Interval <= 0, "interval: %v is no time between two leak checks", c.Interval)
	wrong.If(c.Sightings != 0 && c.Sightings < leastSightings,
		"sightings: %d are too few, a volume may be deleted while one leak check is made; want at least %d", c.Sightings,
		leastSightings)
	wrong.If(c.PageSize > maxPageSize, "page size: %d is above %d", c.PageSize, maxPageSize)
	return wrong.Err()
}

func (c Config) rules() suspicionRules { return suspicionRules{Sightings: c.Sightings, Grace: c.Grace} }
