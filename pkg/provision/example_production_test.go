package provision_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/builder"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// A production program has replicas with leader election, Events, metrics and health checks, and
// ends by a signal.
func Example_production() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println(runReplica(ctx, os.Getenv("NAMESPACE"), os.Getenv("POD_NAME")))
}

func runReplica(ctx context.Context, namespace, pod string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	clock := leadership.NewClock()
	driver, err := csidriver.Connect(ctx, os.Getenv("CSI_ADDRESS"), csidriver.Config{Lease: clock})
	if err != nil {
		return err
	}
	defer driver.Close()
	ctx, end := whileFit(ctx, driver)
	defer end()
	acting := rest.CopyConfig(config)
	acting.Wrap(leadership.Transport(clock)) // after the end of the lease, no write is sent
	sink, err := kubernetes.NewForConfig(acting)
	if err != nil {
		return err
	}
	events := record.NewBroadcaster()
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: sink.CoreV1().Events("")})
	recorder := events.NewRecorder(scheme.Scheme, v1.EventSource{Component: driver.Name()})
	registry := prometheus.NewRegistry()
	r, err := newReplica(acting, namespace, driver, clock, leadership.Recorder(clock, recorder),
		registry)
	if err != nil {
		return err
	}

	// This client has limits of its own, so that a busy program renews its lease, and a request that
	// hangs leaves time for another one before the renew deadline.
	own := rest.CopyConfig(config)
	own.Timeout = renewDeadline / 2
	electing, err := kubernetes.NewForConfig(own)
	if err != nil {
		return err
	}
	// external-provisioner uses a Lease of this name, too, so the two do not work at the same time.
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace,
		strings.ReplaceAll(driver.Name(), ".", "-"),
		electing.CoreV1(), electing.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: leadership.NewIdentity(pod)})
	if err != nil {
		return err
	}
	health := leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
	server := &http.Server{Addr: ":8080", Handler: endpoints(registry, health, r.synced),
		ReadHeaderTimeout: 10 * time.Second}
	all, background := errgroup.WithContext(context.WithoutCancel(ctx))
	all.Go(func() error { return serve(server) })
	watching, end := context.WithCancel(background)
	// Each replica knows the history before it leads.
	all.Go(func() error { r.reclaimer.Watch(watching); return nil })
	all.Go(func() error { r.provisioner.Watch(watching); return nil })
	all.Go(func() error {
		defer func() { _ = server.Close() }()
		defer end()
		leading, stop := context.WithCancel(background)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		return lead(leading, clock, lock, health, r)
	})
	return errors.Join(all.Wait(), driver.Err())
}

// serve serves until the server is closed, which is no error: it would hide the error that the
// replica ends with.
func serve(server *http.Server) error {
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// whileFit returns a context that also ends when a driver serves the socket that this process is
// not set up for: a driver of another name, or one that began or ceased to report topology.
func whileFit(ctx context.Context, driver *csidriver.Driver) (context.Context, context.CancelFunc) {
	const topology = csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS
	driver.Require(func(_ context.Context, before, after csidriver.Facts) error {
		if before.Services[topology] != after.Services[topology] {
			return errors.New("the driver began or ceased to report topology")
		}
		return nil
	})
	ctx, end := context.WithCancel(ctx)
	go func() {
		select {
		case <-driver.Replaced():
			end()
		case <-ctx.Done():
		}
	}()
	return ctx, end
}

// replica has the controllers of one process.
type replica struct {
	reclaimer   *reclaim.Controller
	provisioner *provision.Controller
}

func newReplica(config *rest.Config, namespace string, driver *csidriver.Driver,
	clock *leadership.Clock,
	events record.EventRecorder, metrics prometheus.Registerer) (r replica, err error) {
	requests, err := builder.New(config, driver, builder.Config{})
	if err != nil {
		return r, err
	}
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1 // client-go's 5 requests a second would delay each claim
	client, err := kubernetes.NewForConfig(unlimited)
	if err != nil {
		return r, err
	}
	log, err := inflight.New(inflight.Config{Leases: client.CoordinationV1(), Namespace: namespace,
		Name: "example-in-flight", Driver: driver.Name(), CreateMissing: true, Lease: clock})
	if err != nil {
		return r, err
	}
	if r.reclaimer, err = reclaim.New(config, driver.Name(), driver,
		reclaim.Config{InFlight: log, Lease: clock, Events: events, Metrics: metrics}); err != nil {
		return r, err
	}
	r.provisioner, err = provision.New(config, driver.Name(), driver, requests,
		provision.Config{Log: log, Lease: clock,
			PVs: r.reclaimer.PVs(), Claims: r.reclaimer, Events: events, Metrics: metrics})
	return r, err
}

func (r replica) synced() bool { return r.reclaimer.Synced() && r.provisioner.Synced() }

// run works until ctx ends, which cuts off calls in flight, or until stop.
func (r replica) run(ctx context.Context) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return r.reclaimer.Run(ctx) })
	both.Go(func() error { return r.provisioner.Run(ctx) })
	return both.Wait()
}

// stop begins no more calls and lets those in flight end.
func (r replica) stop() {
	r.reclaimer.Stop()
	r.provisioner.Stop()
}

// worker is a replica.
type worker interface {
	run(ctx context.Context) error
	stop()
}

// renewDeadline is the time that the leader tries to renew its lease for.
const renewDeadline = 10 * time.Second

// lead waits for the lease, runs the worker while it is held, and stops it when ctx ends. An error
// means that the process has to start anew.
func lead(ctx context.Context, clock *leadership.Clock, lock resourcelock.Interface,
	health *leaderelection.HealthzAdaptor, w worker) error {
	election, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	var began atomic.Bool
	ended := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: clock.Lock(lock), LeaseDuration: 15 * time.Second, RenewDeadline: renewDeadline,
		RetryPeriod: 5 * time.Second,
		// The lease is not released but expires: client-go would also release it while calls are
		// still in flight.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				began.Store(true)
				ended <- w.run(held)
				resign()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	health.SetLeaderElection(elector) // NewLeaderElector does not connect a WatchDog
	defer context.AfterFunc(ctx, func() {
		w.stop() // a leader ends when its calls have ended
		if !began.Load() {
			resign()
		}
	})()
	go func() {
		select {
		case <-clock.Back(): // as after a restore of etcd: the caches may be ahead of the cluster
			resign()
		case <-election.Done():
		}
	}()
	elector.Run(election)
	if began.Load() {
		if err := <-ended; err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	// The memory of this process is void.
	return fmt.Errorf("lost the leader election lease, which was %v", clock)
}

// endpoints serves metrics and health checks.
func endpoints(metrics prometheus.Gatherer, health *leaderelection.HealthzAdaptor,
	synced func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz/leader-election", func(w http.ResponseWriter, r *http.Request) {
		if err := health.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !synced() {
			http.Error(w, "the caches are not filled yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}
