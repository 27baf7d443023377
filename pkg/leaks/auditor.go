package leaks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Auditor looks again and again for volumes of one driver that nothing accounts for. What it remembers
// between audits is in memory: a process that takes over begins to count anew.
type Auditor struct {
	cfg     Config
	driver  string
	asks    Driver
	cluster cluster
	// authorization tells what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	memory        *memory
	audits        *controller.Loop[audits]
	// cutOff ends an audit in hand once Run has begun: nothing is lost with it.
	cutOff atomic.Pointer[context.CancelFunc]
}

// audits is the one key of the loop.
type audits struct{}

// New returns an Auditor for the driver with this name on the cluster that config describes, which is copied.
// Nothing is started: see Run.
func New(config *rest.Config, driver string, asks Driver, cfg Config) (*Auditor, error) {
	if config == nil {
		return nil, errors.New("make an auditor: no cluster is given")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	at := apiServer{core: clients.Core, leases: clients.Coordination}
	if cfg.Snapshots {
		if at.contents, err = snapshot.New(config); err != nil {
			return nil, err
		}
	}
	a, err := newAuditor(at, driver, asks, cfg)
	if err != nil {
		return nil, err
	}
	a.authorization = clients.Authorization
	return a, nil
}

func newAuditor(at cluster, driver string, asks Driver, cfg Config) (*Auditor, error) {
	switch {
	case driver == "":
		return nil, errors.New("make an auditor: the driver's name is empty")
	case asks == nil:
		return nil, errors.New("make an auditor: no driver is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make an auditor: %w", err)
	}
	a := &Auditor{cfg: cfg.withDefaults(), driver: driver, asks: asks, cluster: at, memory: newMemory()}
	var err error
	if a.audits, err = controller.New(controller.Config{Name: "audit", Workers: 1, Clock: a.cfg.Clock}, a.work); err != nil {
		return nil, err
	}
	if a.cfg.Volumes != nil {
		a.cfg.Volumes.Follow(a.changed)
	}
	return a, a.register(a.cfg.Metrics)
}

// changed is told of each PV that comes or goes.
func (a *Auditor) changed(pv volume.PV) {
	if handle, about := names(pv, a.driver); about && handle != "" {
		a.memory.seen(handle)
	}
}

// Watch returns when ctx ends: nothing is watched but what Config.Volumes is.
func (*Auditor) Watch(ctx context.Context) { <-ctx.Done() }

// Synced tells whether Run has what it needs to begin.
func (a *Auditor) Synced() bool { return a.cfg.Volumes == nil || a.cfg.Volumes.Synced() }

// Run makes an audit at once and then every Config.Interval, until ctx ends or Stop is called; it returns when
// the audit in hand has ended. It is called once, by the one replica that leads. An audit that fails is told,
// and made again when the next is due.
func (a *Auditor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.cutOff.Store(&cancel)
	if !cache.WaitForCacheSync(ctx.Done(), a.Synced) {
		return fmt.Errorf("wait for the first list of PVs: %w", context.Cause(ctx))
	}
	klog.FromContext(ctx).Info("Auditing", "driver", a.driver, "interval", a.cfg.Interval, "sightings", a.cfg.Sightings, "grace", a.cfg.Grace)
	a.audits.Add(audits{})
	a.audits.Run(ctx)
	return nil
}

// Stop ends the audit in hand and begins no more; Run then returns. It does not wait.
func (a *Auditor) Stop() {
	a.audits.Stop()
	if cutOff := a.cutOff.Load(); cutOff != nil {
		(*cutOff)()
	}
}

// work makes one audit.
func (a *Auditor) work(ctx context.Context, _ audits) controller.Next {
	if err := a.audit(ctx); err != nil && ctx.Err() == nil {
		a.failed(ctx, err)
	}
	return controller.Next{Backoff: controller.Backoff{First: a.cfg.Interval, Max: a.cfg.Interval}}
}

// audit makes one audit. An error means that it could not be completed, and nothing was learned from it.
func (a *Auditor) audit(ctx context.Context) error {
	a.memory.begin()
	found, err := look(ctx, a.driver, a.asks, a.cluster, int32(a.cfg.PageSize), a.cfg.Clock.Now)
	if err != nil {
		return err
	}
	a.found(ctx, a.memory.complete(found, a.cfg.rules(), a.cfg.Clock.Now()))
	return nil
}

// maxMessage bounds what is told in one Event, in bytes: the limit that events.k8s.io sets for a note.
const maxMessage = 1024

// found tells of new suspects: the largest by name, all in the report.
func (a *Auditor) found(ctx context.Context, fresh []unaccounted) {
	_, last := a.memory.state()
	klog.FromContext(ctx).V(2).Info("An audit was made", "driver", a.driver, "volumes", last.listed, "newSuspects", len(fresh), "took", last.completed.Sub(last.began))
	if len(fresh) == 0 {
		return
	}
	largest := fresh[0].volume
	size := "of unknown size"
	if largest.Bytes > 0 {
		size = sizeWords(largest.Bytes)
	}
	a.tell(ctx, ReasonLeakSuspected, fmt.Sprintf("%d more volumes of driver %s: the largest is %s (%s). kubectl reclaim leaks --driver=%s shows all, and what to do.",
		len(fresh), a.driver, shown(largest.Handle), size, a.driver))
}

// failed tells that an audit could not be completed, once until one can.
func (a *Auditor) failed(ctx context.Context, err error) {
	klog.FromContext(ctx).Info("An audit could not be completed: it is made again when the next is due", "driver", a.driver, "err", err)
	if a.memory.fail(err) {
		a.tell(ctx, ReasonAuditFailed, err.Error())
	}
}

// tell tells of the driver's volumes on the Lease, there being no object of theirs.
func (a *Auditor) tell(ctx context.Context, reason Reason, detail string) {
	message := text.Text(reason.Sentence()+" "+detail, maxMessage)
	klog.FromContext(ctx).Info(message, "reason", reason, "driver", a.driver)
	if a.cfg.Events == nil {
		return
	}
	a.cfg.Events.Event(&v1.ObjectReference{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: a.cfg.On.Namespace, Name: a.cfg.On.Name,
	}, v1.EventTypeWarning, string(reason), message)
}
