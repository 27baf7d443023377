// Command peer deletes volumes of a CSI driver as the stock external-provisioner does: with
// the ProvisionController of sig-storage-lib-external-provisioner v10. With --provision it also makes
// plain ones. See package peer.
package main

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	address := flags.String("csi-address", "", "the CSI driver's socket (required)")
	kubeconfig := flags.String("kubeconfig", "", "path of a kubeconfig file (required)")
	addFinalizer := flags.Bool("add-finalizer", true,
		"honour the reclaim policy by the library's finalizer (feature gate HonorPVReclaimPolicy of the stock provisioner)")
	qps := flags.Float64("kube-api-qps", -1,
		"calls a second to the API server, over all workers; below 0: no limit. client-go's own default is 5")
	burst := flags.Int("kube-api-burst", 10, "calls that may exceed --kube-api-qps at once")
	threads := flags.Int("worker-threads", controller.DefaultThreadiness,
		"how many PVs, and how many claims, are worked on at once")
	retry := flags.Duration("retry-interval-start", 0,
		"delay after a first failure; it doubles up to 5 minutes, as the stock provisioner has it with 1s. 0: the "+
			"library's own, 15s and 10 retries a second")
	resync := flags.Duration("resync-period", controller.DefaultResyncPeriod, "how often every PV is reconciled again")
	namespace := flags.String("leader-election-namespace", "",
		"work only while it holds the driver's Lease there, as the stock provisioner does with --leader-election. "+
			"Default: it needs none")
	provision := flags.Bool("provision", false,
		"make volumes for claims: of a size and a filesystem, and nothing else that a claim or class may ask for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	driver, err := csidriver.Connect(ctx, *address, csidriver.Config{})
	if err != nil {
		return err
	}
	defer driver.Close()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(*qps), *burst
	// JSON would cost it memory and time that newer stock provisioners do not spend.
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c := controller.NewProvisionController(klog.Background(), client, driver.Name(), provisioner{driver, *provision},
		append(retries(*retry), controller.LeaderElection(false), controller.AddFinalizer(*addFinalizer),
			controller.ResyncPeriod(*resync), controller.Threadiness(*threads), controller.MetricsPort(0))...)
	work := func() {
		fmt.Fprintln(os.Stderr, "peer: at work, add-finalizer", *addFinalizer)
		// Run waits for ever, also when ctx has ended.
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		<-ctx.Done()
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
	}
	if *namespace == "" {
		work()
		return nil
	}
	return lead(ctx, client, *namespace, driver.Name(), work)
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
		// A busy machine must not end it. It is given up, so that nobody waits for its end.
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

// retries returns the option for delays after failures, none for the library's own.
func retries(start time.Duration) []func(*controller.ProvisionController) error {
	if start == 0 {
		return nil
	}
	return []func(*controller.ProvisionController) error{
		//nolint:staticcheck // the library's type
		controller.RateLimiter(workqueue.NewItemExponentialFailureRateLimiter(start, longestRetry)),
	}
}

// longestRetry is the stock provisioner's --retry-interval-max.
const longestRetry = 5 * time.Minute

// provisioner makes and deletes by the driver, and refuses what is not tested here.
type provisioner struct {
	driver     *csidriver.Driver
	provisions bool
}

func (p provisioner) ShouldProvision(context.Context, *v1.PersistentVolumeClaim) bool {
	return p.provisions
}

// Provision makes a volume, and its PV as the stock provisioner does; the library adds claim, class and finalizer.
func (p provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume,
	controller.ProvisioningState, error) {
	size := o.PVC.Spec.Resources.Requests[v1.ResourceStorage]
	made, err := p.driver.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: o.PVName, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	}, nil)
	if err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: o.PVC.Spec.AccessModes, Capacity: v1.ResourceList{v1.ResourceStorage: size},
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: p.driver.Name(),
				VolumeHandle: made.GetVolumeId()}},
		},
	}, controller.ProvisioningFinished, nil
}

func (p provisioner) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	if pv.Spec.CSI == nil {
		return &controller.IgnoredError{Reason: "not a CSI volume"}
	}
	return p.driver.DeleteVolume(ctx, pv.Spec.CSI.VolumeHandle, nil)
}
