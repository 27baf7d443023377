//go:build controlplane

package snapshot_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

const driverName = "snapshots.csi-reclaimer.io"

// TestRealAPIServer reads a snapshot of a real driver from a real API server, before and after it serves snapshots.
func TestRealAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cp := controlplane.ForTest(t, controlplane.Newest, controlplane.Options{})
	config := cp.Admin()
	config.ContentType = "application/vnd.kubernetes.protobuf" // as for Kubernetes' own kinds
	reader := must.Get(snapshot.New(config))(t)
	maker := maker(t, cp)
	name := types.NamespacedName{Namespace: maker.Namespace, Name: "nightly"}

	if got, err := reader.Read(ctx, name); got != nil || !errors.Is(err, snapshot.ErrNotInstalled) {
		t.Fatalf("before snapshots are installed: got %+v, %v, want ErrNotInstalled", got, err)
	}
	must.OK(t, cp.InstallSnapshots(ctx))
	if got, err := reader.Read(ctx, name); got != nil || err != nil {
		t.Fatalf("a snapshot that does not exist: got %+v, %v, want neither it nor an error", got, err)
	}

	vol := must.Get(maker.Make(ctx, objects.Spec{Name: "data", Policy: v1.PersistentVolumeReclaimDelete}))(t)
	made := must.Get(maker.MakeSnapshot(ctx, objects.SnapshotSpec{Name: "nightly", Of: vol}))(t)
	got, err := reader.Read(ctx, name)
	if err != nil || got == nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	want := &request.Snapshot{
		Namespace: name.Namespace, Name: name.Name, UID: got.UID, Ready: true, RestoreSize: ptr.To[int64](1 << 20),
		ContentName: made.Content,
		Content: &request.SnapshotContent{
			Name: made.Content, Driver: driverName, Handle: made.Handle, Snapshot: name, SnapshotUID: got.UID,
			SourceMode: ptr.To(v1.PersistentVolumeFilesystem),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || got.UID == "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	nobody := must.Get(cp.ConfigFor("nobody-in-particular"))(t)
	stranger := must.Get(snapshot.New(nobody))(t)
	if got, err := stranger.Read(ctx, name); got != nil || !apierrors.IsForbidden(err) {
		t.Errorf("without rights: got %+v, %v, want Forbidden", got, err)
	}

	unready, err := maker.MakeSnapshot(ctx, objects.SnapshotSpec{Name: "unready", Of: vol,
		Change: func(s *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			s.Status.ReadyToUse, c.Status.ReadyToUse, c.Status.SnapshotHandle = ptr.To(false), ptr.To(false), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	got, err = reader.Read(ctx, types.NamespacedName{Namespace: maker.Namespace, Name: "unready"})
	if err != nil || got.Ready || got.Content.Handle != "" {
		t.Errorf("one that is not ready: got %+v, %v", got, err)
	}
	for _, s := range []*objects.Snapshot{made, unready} {
		if err := s.Delete(ctx); err != nil {
			t.Error(err)
		}
	}
	if got, err := reader.Read(ctx, name); got != nil || err != nil {
		t.Errorf("a snapshot that was deleted: got %+v, %v, want neither it nor an error", got, err)
	}
}

func maker(t *testing.T, cp *controlplane.ControlPlane) objects.Maker {
	t.Helper()
	client := must.Get(kubernetes.NewForConfig(cp.Admin()))(t)
	snapshots := must.Get(snapshotclient.NewForConfig(cp.Admin()))(t)
	namespace := must.Get(cp.CreateNamespace(t.Context(), "snapshots"))(t)
	driver := mockdriver.ForTest(t, mockdriver.Options{Name: driverName, Progress: os.Stderr})
	return objects.Maker{Client: client, Driver: driverName, Namespace: namespace, CSI: driver.Controller(),
		Snapshots: snapshots}
}
