package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
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
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/places"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// run is the whole life of the sidecar: until ctx ends, or something is wrong that waiting
// does not mend.
func run(ctx context.Context, o *options, stdout io.Writer) error {
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
	if o.endpoint() != "" {
		server, err := serve.Listen(o.endpoint(), endpoints(o, state, prometheus.Gatherers{own, rpcs.GetRegistry(), legacyregistry.DefaultGatherer}))
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
	klog.FromContext(ctx).Info("Connected to the CSI driver", "driver", driver.Name(), "attaches", driver.Attaches())
	if err := waitForDeletion(ctx, o, driver, state); err != nil {
		return err
	}
	events, stopEvents, err := recorder(background, config, driver.Name())
	if err != nil {
		return err
	}
	defer stopEvents()
	where, err := places.New(config, driver.Name())
	if err != nil {
		return err
	}
	publisher, err := newCapacity(ctx, o, config, driver, where, own)
	if err != nil {
		return err
	}
	settings := o.reclaimConfig(driver.Name())
	settings.Events, settings.Metrics = events, own
	if publisher != nil {
		settings.Deleted = publisher.Changed
	}
	if settings.NeverAttached, err = neverAttached(ctx, config, driver); err != nil {
		return err
	}
	reclaimer, err := reclaim.New(config, driver.Name(), driver, settings)
	if err != nil {
		return err
	}
	provisioner, err := newProvisioner(ctx, o, config, driver, where, provision.Config{Volumes: reclaimer.PVs(), Changed: settings.Deleted, Events: events, Metrics: own})
	if err != nil {
		return err
	}
	controllers, rights := []controller{reclaimer}, []asker{reclaimer}
	if o.releaseFinalizers {
		controllers = []controller{releasing{reclaimer, stdout}}
	}
	if provisioner != nil {
		controllers, rights = append(controllers, provisioner), append(rights, provisioner)
		state.provisioning(provisioner.Synced)
	}
	if publisher != nil {
		controllers, rights = append(controllers, publisher), append(rights, publisher)
	}
	state.set(reclaimer.Synced)
	serving.Go(func() { returnMemory(background, reclaimer.WaitSynced) })
	serving.Go(func() { preflight(background, rights, state) })
	return lead(ctx, o, config, driver.Name(), state, controllers)
}

// releasing is a Reclaimer that only takes its finalizers off.
type releasing struct {
	*reclaim.Reclaimer
	stdout io.Writer
}

// Run does so, and prints what came of it.
func (r releasing) Run(ctx context.Context) error { return release(ctx, r.Reclaimer, r.stdout) }

// release takes the finalizers off and prints what came of it.
func release(ctx context.Context, r *reclaim.Reclaimer, stdout io.Writer) error {
	done, err := r.Release(ctx)
	for _, name := range done.Abandoned {
		if _, err := fmt.Fprintf(stdout, "PV %s was being deleted: its volume stays in the storage system\n", name); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(stdout, "%d PVs were released\n", done.PVs); err != nil {
		return err
	}
	if errors.Is(err, reclaim.ErrPutBack) {
		return fmt.Errorf("%w; remove that policy, or this driver from its parameters, and run again", err)
	}
	return err
}

// controller is one that works while this replica leads: reclaim.Reclaimer, provision.Provisioner,
// capacity.Controller.
type controller interface {
	Watch(ctx context.Context)
	Run(ctx context.Context) error
	Stop()
	Synced() bool
}

// lead runs the controllers, as the holder of the Lease if leader election is on. When ctx ends,
// their calls in hand get --shutdown-grace to end, and the Lease is kept meanwhile.
func lead(ctx context.Context, o *options, config *rest.Config, driver string, state *health, controllers []controller) error {
	// The watches outlive the election: a replica that waits keeps its caches warm.
	watch, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stopWatch()
	for _, c := range controllers {
		watching.Go(func() { c.Watch(watch) })
	}

	act := func(lease context.Context) error {
		unhook := context.AfterFunc(ctx, func() { klog.FromContext(ctx).Info("Stopping: calls in hand may end", "grace", o.grace) })
		defer unhook()
		// One that fails ends the others: the program ends with its error.
		all, work := errgroup.WithContext(lease)
		for _, c := range controllers {
			all.Go(func() error {
				own, cutOff := context.WithCancel(work)
				defer cutOff()
				unhook := context.AfterFunc(ctx, func() { stopWithin(own, o.grace, c, cutOff) })
				defer unhook()
				return ignoreEnd(ctx, c.Run(own))
			})
		}
		return all.Wait()
	}
	if !o.elects() {
		return act(context.WithoutCancel(ctx))
	}
	elector, err := leader.New(config, leader.Config{
		Name: leaseName(driver, parseRole(o.role)), Namespace: o.leaseNamespace, Identity: o.identity,
		LeaseDuration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod,
	})
	if err != nil {
		return err
	}
	state.watch(elector.Check)
	return elector.Run(ctx, act)
}

// stopWithin has a controller end its work in hand, and cuts it off after the grace.
func stopWithin(work context.Context, grace time.Duration, c controller, cutOff func()) {
	if !c.Synced() {
		cutOff() // nothing is in hand
		return
	}
	c.Stop()
	bound, cancel := context.WithTimeout(work, grace)
	defer cancel()
	<-bound.Done()
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
	if o.pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	mux.Handle(o.metricsPath, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}
