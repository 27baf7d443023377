// Package provisioner is common to all peers, whichever version of sig-storage-lib-external-provisioner they run:
// flags, the client, the Lease, and the calls of the driver. Each peer is a main package that gives the library's
// ProvisionController to Main.
package provisioner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
)

// LongestRetry is the stock provisioner's --retry-interval-max.
const LongestRetry = 5 * time.Minute

// Settings are the values of the flags.
type Settings struct {
	Client *kubernetes.Clientset
	Driver *csidriver.Driver
	// Provisions makes the program create volumes for claims.
	Provisions   bool
	AddFinalizer bool
	// Threads is how many PVs, and how many claims, are worked on at once.
	Threads int
	// Retry is the delay after a first failure. 0: the library's own.
	Retry time.Duration
	// Resync is how often every PV is reconciled again.
	Resync time.Duration
}

// Controller is the library's ProvisionController. Its Run waits forever, even when ctx has ended.
type Controller interface{ Run(ctx context.Context) }

// Main is the main function of a peer: controller makes its controller.
func Main(controller func(context.Context, Settings) Controller) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], controller); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, controller func(context.Context, Settings) Controller) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	s := o.Settings
	if s.Driver, err = csidriver.Connect(ctx, o.address, csidriver.Config{}); err != nil {
		return err
	}
	defer s.Driver.Close()
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	// JSON would cost it memory and time that newer stock provisioners do not spend.
	config.ContentType = runtime.ContentTypeProtobuf
	if s.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c := controller(ctx, s)
	work := func() {
		fmt.Fprintln(os.Stderr, "peer: at work, add-finalizer", s.AddFinalizer)
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		<-ctx.Done()
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
	}
	if o.namespace == "" {
		work()
		return nil
	}
	return lead(ctx, s.Client, o.namespace, s.Driver.Name(), work)
}

// options are the flags: the settings, and how the peer reaches the driver and the API server.
type options struct {
	Settings
	address, kubeconfig, namespace string
	qps                            float64
	burst                          int
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	flags.StringVar(&o.address, "csi-address", "", "the CSI driver's socket (required)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig file (required)")
	flags.BoolVar(&o.AddFinalizer, "add-finalizer", true,
		"honour the reclaim policy by the library's finalizer (feature gate HonorPVReclaimPolicy of the stock provisioner)")
	flags.Float64Var(&o.qps, "kube-api-qps", -1,
		"calls a second to the API server, over all workers; below 0: no limit. client-go's own default is 5")
	flags.IntVar(&o.burst, "kube-api-burst", 10, "calls that may exceed --kube-api-qps at once")
	flags.IntVar(&o.Threads, "worker-threads", 4, "how many PVs, and how many claims, are worked on at once")
	flags.DurationVar(&o.Retry, "retry-interval-start", 0,
		"delay after a first failure; it doubles up to 5 minutes, as the stock provisioner has it with 1s. 0: the "+
			"library's own, 15s and 10 retries a second")
	flags.DurationVar(&o.Resync, "resync-period", 15*time.Minute, "how often every PV is reconciled again")
	flags.StringVar(&o.namespace, "leader-election-namespace", "",
		"work only while it holds the driver's Lease there, as the stock provisioner does with --leader-election. "+
			"Default: it needs none")
	flags.BoolVar(&o.Provisions, "provision", false,
		"make volumes for claims: of a size and a filesystem, and nothing else that a claim or class may ask for")
	return o, flags.Parse(args)
}

// lead does the work once the Lease is held, and gives it up after that.
func lead(ctx context.Context, client kubernetes.Interface, namespace, driver string, work func()) error {
	election, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var began atomic.Bool
	defer context.AfterFunc(ctx, func() {
		if !began.Load() {
			giveUp()
		}
	})()
	leaderelection.RunOrDie(election, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			// The name that csi-lib-utils makes of a driver's.
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: regexp.MustCompile("[^a-zA-Z0-9-]").ReplaceAllString(driver,
				"-")},
			Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "peer"},
		},
		// A busy machine must not end it. It is given up, so that no process waits for its end.
		LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { began.Store(true); work(); giveUp() },
			OnStoppedLeading: func() {},
		},
	})
	if ctx.Err() == nil {
		return errors.New("lost the Lease")
	}
	return nil
}

// CreateVolume makes a volume, and its PV as the stock provisioner does; the library adds claim, class and finalizer.
func (s Settings) CreateVolume(ctx context.Context, name string, claim *v1.PersistentVolumeClaim,
	class *storagev1.StorageClass) (*v1.PersistentVolume, error) {
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	made, err := s.Driver.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	}, nil)
	if err != nil {
		return nil, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, Capacity: v1.ResourceList{v1.ResourceStorage: size},
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: s.Driver.Name(),
				VolumeHandle: made.GetVolumeId()}},
		},
	}, nil
}

// DeleteVolume deletes the volume of a PV, which has one of the driver.
func (s Settings) DeleteVolume(ctx context.Context, pv *v1.PersistentVolume) error {
	return s.Driver.DeleteVolume(ctx, pv.Spec.CSI.VolumeHandle, nil)
}
