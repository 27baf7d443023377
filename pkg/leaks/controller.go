package leaks

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Controller finds leaked volumes of one driver in repeated leak checks. Its counts are kept in memory, so a new
// leader starts counting from zero. [controller.Controller] says how it is run: Run makes a leak check at once and
// then every Config.Interval. It reports a leak check that fails, and makes the next one after the interval. Stop
// cancels the leak check in progress, which loses nothing. Watch waits for the owner of Config.Volumes, who watches
// the PVs.
type Controller struct {
	*controller.Controller
	permission.Checker
	cfg      Config
	name     string
	driver   Driver
	cluster  cluster
	tracker  *tracker
	recorder *events.Recorder[Reason]
	checks   *controller.Queue[checkKey]
}

type checkKey struct{}

// New returns a Controller for the named driver on the cluster of config, which New copies. New sends no requests to
// the cluster or the driver; see Run.
func New(config *rest.Config, driver string, asks Driver, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a leak check: nil rest.Config")
	}
	config = kube.Limited(config)
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	at := apiServer{core: clients.Core, attachments: clients.Storage, leases: clients.Coordination}
	if cfg.Snapshots {
		if at.contents, err = snapshot.New(config); err != nil {
			return nil, err
		}
	}
	a, err := newController(at, driver, asks, cfg)
	if err != nil {
		return nil, err
	}
	a.Checker = permission.NewChecker(clients.Authorization, a.Permissions())
	return a, nil
}

func newController(at cluster, driver string, asks Driver, cfg Config) (*Controller, error) {
	switch {
	case driver == "":
		return nil, errors.New("create a leak check: the driver's name is empty")
	case asks == nil:
		return nil, errors.New("create a leak check: nil Driver")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a leak check: %w", err)
	}
	a := &Controller{cfg: cfg.withDefaults(), name: driver, driver: asks, cluster: at, tracker: newTracker()}
	a.recorder = events.NewRecorder(events.Config[Reason]{Events: a.cfg.Events})
	var caches []controller.Cache
	if pvs := a.cfg.Volumes; pvs != nil {
		pvs.Follow(a.pvChanged)
		// The caller keeps these PVs up to date.
		caches = append(caches, controller.Polled("persistentvolumes", func(ctx context.Context) { <-ctx.Done() },
			pvs.Synced))
	}
	a.Controller = controller.NewController("leaks", caches...)
	controller.Begin(a.Controller, a.begin)
	a.checks = controller.NewQueue(a.Controller, controller.Config{Name: "leaks", Workers: 1, Clock: a.cfg.Clock},
		a.reconcile)
	return a, a.register(a.cfg.Metrics)
}

// pvChanged records the volume of each PV that is created or deleted.
func (a *Controller) pvChanged(pv volume.PV) {
	if handle, about := names(pv, a.name); about && handle != "" {
		a.tracker.seen(handle)
	}
}

// begin makes the first leak check.
func (a *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Auditing", "driver", a.name, "interval", a.cfg.Interval, "sightings", a.cfg.Sightings,
		"grace", a.cfg.Grace)
	a.checks.Enqueue(checkKey{})
}

func (a *Controller) reconcile(ctx context.Context, _ checkKey) controller.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.Stopped():
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := a.check(ctx); err != nil && ctx.Err() == nil {
		a.failed(ctx, err)
	}
	return controller.Every(a.cfg.Interval)
}

// check makes one leak check, and returns an error if it is incomplete and has no effect on the counts.
func (a *Controller) check(ctx context.Context) error {
	a.tracker.begin()
	found, err := readAll(ctx, a.name, a.driver, a.cluster, a.cfg)
	if err != nil {
		return err
	}
	a.found(ctx, a.tracker.complete(found, a.cfg.rules(), a.cfg.Clock.Now()))
	return nil
}

// found reports new suspects in an Event that names the largest; the report lists them all.
func (a *Controller) found(ctx context.Context, fresh []unaccounted) {
	_, last := a.tracker.state()
	klog.FromContext(ctx).V(2).Info("A leak check was completed", "driver", a.name, "volumes", last.listed, "newSuspects",
		len(fresh),
		"took", last.completed.Sub(last.began))
	if len(fresh) == 0 {
		return
	}
	largest := fresh[0].volume
	size := "of unknown size"
	if largest.Bytes > 0 {
		size = sizeWords(largest.Bytes)
	}
	a.event(ctx, ReasonLeakSuspected, fmt.Sprintf(
		"%s of driver %s: the largest is %s (%s). kubectl reclaim leaks --driver=%s shows all, and the next steps.",
		plural.Count(len(fresh), "more volume"), a.name, shown(largest.Handle), size, a.name))
}

// failed reports an incomplete leak check, with one Event for consecutive failures.
func (a *Controller) failed(ctx context.Context, err error) {
	klog.FromContext(ctx).Info("A leak check could not be completed; the next one is due after the interval", "driver",
		a.name, "err", err)
	if a.tracker.fail(err) {
		a.event(ctx, reasonLeakCheckFailed, err.Error())
	}
}

// event records an Event on the Lease, because the driver's volumes have no API object.
func (a *Controller) event(ctx context.Context, reason Reason, detail string) {
	a.recorder.Event(ctx, events.Lease(a.cfg.On), reason, detail)
}

// Permissions returns the permissions that the Controller needs with its settings.
func (a *Controller) Permissions() []permission.Permission {
	const nothing = "no leak check can be completed, so no leak is ever suspected"
	var needed controller.Permissions
	needed.Add("", "persistentvolumes", nothing, "list")
	needed.Add("", "persistentvolumeclaims", nothing, "list")
	needed.Add("storage.k8s.io", "volumeattachments", nothing, "list")
	needed.Add("coordination.k8s.io", "leases", nothing, "list")
	if a.cfg.Snapshots {
		needed.Add("snapshot.storage.k8s.io", "volumesnapshotcontents", nothing, "list")
	}
	return needed.All
}
