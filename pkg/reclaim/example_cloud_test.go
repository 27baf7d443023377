package reclaim_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// folders is a storage system whose volumes are folders: the client that a driver has of
// its cloud.
type folders string

// DeleteVolume makes it a reclaim.Deleter. A volume that is gone already is a success.
func (f folders) DeleteVolume(_ context.Context, handle string, _ map[string]string) error {
	// A person may have written the PV: "." is the whole storage system, and ".." is more than it.
	if handle == "." || handle != filepath.Base(handle) || !filepath.IsLocal(handle) {
		return errclass.Mark(errclass.Refused, fmt.Errorf("%q names no volume", handle))
	}
	return os.RemoveAll(filepath.Join(string(f), handle))
}

// A driver that calls its cloud directly reclaims volumes in its own controller.
func Example_ownCloud() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		return
	}
	cloud := folders(os.Getenv("VOLUMES"))
	reclaimer, err := reclaim.New(config, "folders.example.com", cloud, reclaim.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reclaimer.Run(ctx)) // until ctx ends; give it a ctx that ends with your lease
}
