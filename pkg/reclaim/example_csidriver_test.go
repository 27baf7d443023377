package reclaim_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// A program beside a CSI driver has the driver delete the volumes, over its socket.
func Example_csiDriver() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		return
	}
	driver, err := csidriver.Connect(ctx, os.Getenv("CSI_ADDRESS"), csidriver.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer driver.Close()
	reclaimer, err := reclaim.New(config, driver.Name(), driver, reclaim.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reclaimer.Run(ctx))
}
