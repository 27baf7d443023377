package provision_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/builder"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// A program beside a CSI driver makes the volumes of claims, and deletes those of PVs.
func Example_csiDriver() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println(run(ctx))
}

func run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	driver, err := csidriver.Connect(ctx, os.Getenv("CSI_ADDRESS"), csidriver.Config{})
	if err != nil {
		return err
	}
	defer driver.Close()
	requests, err := builder.New(config, driver, builder.Config{})
	if err != nil {
		return err
	}
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1 // client-go's 5 requests a second would delay each claim
	leases, err := coordinationv1.NewForConfig(unlimited)
	if err != nil {
		return err
	}
	log, err := inflight.New(inflight.Config{Leases: leases, Namespace: os.Getenv("NAMESPACE"),
		Name: "example-in-flight", Driver: driver.Name(), CreateMissing: true})
	if err != nil {
		return err
	}
	reclaimer, err := reclaim.New(config, driver.Name(), driver, reclaim.Config{InFlight: log})
	if err != nil {
		return err
	}
	provisioner, err := provision.New(config, driver.Name(), driver, requests,
		provision.Config{Log: log, PVs: reclaimer.PVs()})
	if err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return reclaimer.Run(ctx) })
	both.Go(func() error { return provisioner.Run(ctx) })
	return both.Wait()
}
