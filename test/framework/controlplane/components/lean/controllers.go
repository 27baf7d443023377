package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
)

// settings are the flags shared with kube-controller-manager.
type settings struct {
	kubeconfig, certificate, key string
	port                         int
	sync                         time.Duration
	qps                          float32
	burst                        int
}

func runControllers(args []string) error {
	var s settings
	flags := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "Kubeconfig of an administrator.")
	flags.StringVar(&s.certificate, "tls-cert-file", "", "Certificate of the health port.")
	flags.StringVar(&s.key, "tls-private-key-file", "", "Key of the certificate.")
	flags.IntVar(&s.port, "secure-port", 0, "Port on loopback that serves /healthz.")
	flags.DurationVar(&s.sync, "pvclaimbinder-sync-period", 15*time.Second, "How often PVs and claims are looked at.")
	flags.Float32Var(&s.qps, "kube-api-qps", 20, "Requests per second of each controller.")
	flags.IntVar(&s.burst, "kube-api-burst", 30, "Burst of each controller.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return s.run(ctx)
}

// run runs the controllers until ctx ends, and serves /healthz.
func (s settings) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = s.qps, s.burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controllers, err := s.controllers(ctx, config, factory)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	for _, run := range controllers {
		running.Go(func() { run(ctx) })
	}
	err = s.serve(ctx)
	running.Wait()
	return err
}

// controllers makes each controller as kube-controller-manager does, with the service account that Kubernetes has for
// it and no more permissions.
func (s settings) controllers(ctx context.Context, config *rest.Config, factory informers.SharedInformerFactory) (
	all []func(context.Context), err error) {
	as := func(account string) kubernetes.Interface {
		own := rest.CopyConfig(config)
		own.Impersonate.UserName = "system:serviceaccount:kube-system:" + account
		client, failed := kubernetes.NewForConfig(own)
		err = errors.Join(err, failed)
		return client
	}
	logger, core := klog.FromContext(ctx), factory.Core().V1()
	binder, failed := persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
		KubeClient: as("persistent-volume-binder"), SyncPeriod: s.sync, VolumeInformer: core.PersistentVolumes(),
		ClaimInformer: core.PersistentVolumeClaims(), ClassInformer: factory.Storage().V1().StorageClasses(),
		PodInformer: core.Pods(), NodeInformer: core.Nodes(), EnableDynamicProvisioning: true,
	})
	err = errors.Join(err, failed)
	claims, failed := pvcprotection.NewPVCProtectionController(logger, core.PersistentVolumeClaims(), core.Pods(),
		as("pvc-protection-controller"))
	err = errors.Join(err, failed)
	pvs, failed := pvprotection.NewPVProtectionController(logger, core.PersistentVolumes(),
		as("pv-protection-controller"))
	err = errors.Join(err, failed)
	accounts, failed := serviceaccount.NewServiceAccountsController(logger, core.ServiceAccounts(), core.Namespaces(),
		as("service-account-controller"), serviceaccount.DefaultServiceAccountsControllerOptions())
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("create controllers: %w", err)
	}
	return []func(context.Context){
		binder.Run,
		func(ctx context.Context) { claims.Run(ctx, 1) },
		func(ctx context.Context) { pvs.Run(ctx, 1) },
		func(ctx context.Context) { accounts.Run(ctx, 1) },
	}, nil
}

// serve serves /healthz until ctx ends.
func (s settings) serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Addr: net.JoinHostPort("127.0.0.1", fmt.Sprint(s.port)), Handler: mux,
		ReadHeaderTimeout: time.Minute}
	unhook := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer unhook()
	if err := server.ListenAndServeTLS(s.certificate, s.key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
