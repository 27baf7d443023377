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

// Config holds the settings of a Controller. Interval is required, the rest has defaults.
type Config struct {
	// Interval is how long after one leak check the next begins; up to a fifth less, so that many drivers do
	// not all list at once. Required.
	Interval time.Duration
	// Sightings is in how many complete leak checks in a row nothing accounts for a volume before it is
	// suspected. Default 3, at least 2.
	Sightings int
	// Grace is how long since the first of these sightings. Default 1 hour; negative: none.
	Grace time.Duration
	// PageSize is how many volumes the driver is asked for at once. Default 500; negative: as many as it
	// likes.
	PageSize int
	// Snapshots: the driver takes snapshots, so the VolumeSnapshotContents are read. Default: they are not.
	Snapshots bool
	// Volumes are the PVs that a Reclaimer of the same driver watches: those that come or go while an
	// leak check is made count too. Default: none; then the sightings and the grace alone have to see to that.
	Volumes Volumes
	// Events records new suspects and leak checks that fail, on the Lease On, which need not exist.
	// Default none.
	Events record.EventRecorder
	On     types.NamespacedName
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// Volumes are the PVs that somebody watches; reclaim.PVs is one.
type Volumes interface {
	// Follow has a function called for each PV that comes or goes; it is called before the watch begins.
	Follow(changed func(volume.PV))
	// Synced reports whether the watch has shown what there was when it began.
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

// maxPageSize is what max_entries can be at most (CSI spec, int32).
const maxPageSize = 1<<31 - 1

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Interval <= 0, "interval: %v is no time between two leak checks", c.Interval)
	wrong.If(c.Sightings != 0 && c.Sightings < leastSightings,
		"sightings: %d are too few, a volume may be deleted while one leak check is made; want at least %d", c.Sightings,
		leastSightings)
	wrong.If(c.PageSize > maxPageSize, "page size: %d is above %d", c.PageSize, maxPageSize)
	return wrong.Err()
}

func (c Config) rules() Rules { return Rules{Sightings: c.Sightings, Grace: c.Grace} }
