package provision_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/builder"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// folders is a storage system whose volumes are folders: the client that a driver has of its cloud.
type folders string

// CreateVolume makes it a provision.Driver. CSI's messages are only data here, without a socket.
// For the same name the
// same volume is returned.
func (f folders) CreateVolume(_ context.Context, want *csi.CreateVolumeRequest,
	_ map[string]string) (*csi.Volume, error) {
	if err := os.MkdirAll(filepath.Join(string(f), want.GetName()), 0o700); err != nil {
		return nil, err // the outcome is in doubt, so the call is repeated
	}
	size := want.GetCapacityRange().GetRequiredBytes()
	return &csi.Volume{VolumeId: want.GetName(), CapacityBytes: size}, nil
}

// DeleteVolume makes it a reclaim.Deleter, too. A volume that is gone already is a success.
func (f folders) DeleteVolume(_ context.Context, handle string, _ map[string]string) error {
	// A person may have written the PV: "." is the whole storage system, and ".." is more than it.
	if handle == "." || handle != filepath.Base(handle) || !filepath.IsLocal(handle) {
		return errclass.Mark(errclass.Refused, fmt.Errorf("%q names no volume", handle))
	}
	return os.RemoveAll(filepath.Join(string(f), handle))
}

// A driver that calls its cloud directly creates and deletes volumes in its own controller.
func Example_ownCloud() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		return
	}
	config.QPS = -1 // the number of workers limits the calls
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runFolders(ctx, client, folders(os.Getenv("VOLUMES")), os.Getenv("NAMESPACE")))
}

func runFolders(ctx context.Context, client kubernetes.Interface, cloud folders,
	namespace string) error {
	const name = "folders.example.com"
	requests, err := builder.NewForClient(client, builder.Fixed{Driver: name}, builder.Config{})
	if err != nil {
		return err
	}
	log, err := inflight.New(inflight.Config{Leases: client.CoordinationV1(), Namespace: namespace,
		Name: "folders-in-flight", Driver: name, CreateMissing: true})
	if err != nil {
		return err
	}
	reclaimer, err := reclaim.NewForClient(client, name, cloud, reclaim.Config{InFlight: log})
	if err != nil {
		return err
	}
	provisioner, err := provision.NewForClient(client, name, cloud, requests,
		provision.Config{Log: log, PVs: reclaimer.PVs()})
	if err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return reclaimer.Run(ctx) })
	both.Go(func() error { return provisioner.Run(ctx) })
	return both.Wait()
}
