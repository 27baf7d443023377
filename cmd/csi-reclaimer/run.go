package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of calls to the API server
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // metrics of the work queues
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/serve"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// run is the whole life of the sidecar: until ctx ends, or something is wrong that waiting
// does not mend.
func run(ctx context.Context, o *options) error {
	klog.FromContext(ctx).Info("Starting csi-reclaimer", "version", programVersion(), "role", o.role)
	config, err := clusterConfig(o)
	if err != nil {
		return err
	}
	// The address is judged before the port is taken, so that a typo shows at once.
	if _, err := csidriver.SocketPath(o.csiAddress); err != nil {
		return fmt.Errorf("--csi-address: %w", err)
	}

	state := &health{}
	// The process's start time is in the legacy registry already, and twice is an error.
	rpcs := csimetrics.NewCSIMetricsManagerWithOptions("", csimetrics.WithProcessStartTime(false))
	own := prometheus.NewRegistry()
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stopBackground()
	if o.httpEndpoint != "" {
		server, err := serve.Listen(o.httpEndpoint, endpoints(o, state, prometheus.Gatherers{own, rpcs.GetRegistry(), legacyregistry.DefaultGatherer}))
		if err != nil {
			return err
		}
		serving.Go(func() {
			if err := server.Run(background); err != nil {
				klog.FromContext(ctx).Error(err, "Health and metrics are not served any more")
			}
		})
	}

	driver, err := csidriver.Connect(ctx, o.csiAddress, csidriver.Config{Timeout: o.timeout, Metrics: rpcs})
	if err != nil {
		return err
	}
	defer driver.Close()
	rpcs.SetDriverName(driver.Name())
	if !driver.CanDelete() {
		return fmt.Errorf("driver %q does not advertise CREATE_DELETE_VOLUME, so it cannot delete volumes: "+
			"csi-reclaimer has nothing to do beside it, remove it from the pod", driver.Name())
	}
	klog.FromContext(ctx).Info("Connected to the CSI driver", "driver", driver.Name(), "attaches", driver.Attaches())

	events, stopEvents, err := recorder(background, config, driver.Name())
	if err != nil {
		return err
	}
	defer stopEvents()
	reclaimer, err := reclaim.New(config, driver.Name(), driver, reclaim.Config{
		Workers: o.workers, ProtectWorkers: o.protectWorkers,
		RetryStart: o.retryStart, RetryMax: o.retryMax,
		Events: events, Metrics: own,
	})
	if err != nil {
		return err
	}
	state.set(reclaimer.Synced)
	return lead(ctx, o, config, driver.Name(), reclaimer, state)
}

// lead runs the reclaimer, as the holder of the Lease if leader election is on. When ctx
// ends, deletions in hand get --shutdown-grace to end, and the Lease is kept meanwhile.
func lead(ctx context.Context, o *options, config *rest.Config, driver string, r *reclaim.Reclaimer, state *health) error {
	// The watches outlive the election: a replica that waits keeps its caches warm.
	watch, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stopWatch()
	watching.Go(func() { r.Watch(watch) })

	act := func(lease context.Context) error {
		work, cutOff := context.WithCancel(lease)
		defer cutOff()
		unhook := context.AfterFunc(ctx, func() { stopWithin(work, o, r, cutOff) })
		defer unhook()
		return ignoreEnd(ctx, r.Run(work))
	}
	if !o.leaderElection {
		return act(context.WithoutCancel(ctx))
	}
	elector, err := leader.New(config, leader.Config{
		Name: leader.LeaseName(driver), Namespace: o.leaseNamespace, Identity: o.identity,
		LeaseDuration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod,
	})
	if err != nil {
		return err
	}
	state.watch(elector.Check)
	return elector.Run(ctx, act)
}

// stopWithin has the reclaimer end its work in hand, and cuts it off after the grace.
func stopWithin(work context.Context, o *options, r *reclaim.Reclaimer, cutOff func()) {
	klog.FromContext(work).Info("Stopping: deletions in hand may end", "grace", o.grace)
	if !r.Synced() {
		cutOff() // nothing is in hand
		return
	}
	r.Stop()
	grace, cancel := context.WithTimeout(work, o.grace)
	defer cancel()
	<-grace.Done()
	cutOff()
}

// ignoreEnd makes the end that was asked for no error.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// clusterConfig returns how to reach the API server.
func clusterConfig(o *options) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig=%s: %w", o.kubeconfig, err)
		}
	} else if config, err = rest.InClusterConfig(); err != nil {
		return nil, fmt.Errorf("find the cluster: %w; outside of a pod, give --kubeconfig", err)
	}
	config.QPS, config.Burst = o.kubeAPIQPS, o.kubeAPIBurst
	return rest.AddUserAgent(config, "csi-reclaimer"), nil
}

// recorder returns what writes Events, by a client and a limit of its own, so that they
// never hold up a deletion. stop ends it.
func recorder(ctx context.Context, config *rest.Config, driver string) (_ record.EventRecorder, stop func(), err error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 10, 50
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	source := v1.EventSource{Component: "csi-reclaimer/" + driver}
	return broadcaster.NewRecorder(scheme.Scheme, source), broadcaster.Shutdown, nil
}

// endpoints are the paths of the HTTP port.
func endpoints(o *options, state *health, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", serve.Health(state.alive))
	mux.Handle("/readyz", serve.Health(state.alive, state.ready))
	mux.Handle(leader.HealthPath, serve.Health(state.alive))
	mux.Handle(o.metricsPath, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

// health is what the health endpoints tell, from the moment the port is open. It is safe
// for concurrent use.
type health struct {
	mu     sync.Mutex
	synced func() bool
	lease  serve.Check
}

func (h *health) set(synced func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = synced
}

func (h *health) watch(lease serve.Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = lease
}

// alive is an error when only a restart helps. A driver that is away is no such thing.
func (h *health) alive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == nil {
		return nil
	}
	return h.lease()
}

// ready is an error until the driver was there and the caches are filled.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.synced == nil:
		return errors.New("waiting for the CSI driver")
	case !h.synced():
		return errors.New("waiting for the first list from the API server")
	}
	return nil
}
