package snapshot

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Content is a snapshot in a storage system, as described by its VolumeSnapshotContent.
type Content struct {
	Name string
	UID  types.UID
	// Driver is spec.driver.
	Driver string
	// Handle is the snapshot's id at the driver, empty while it is unknown.
	Handle string
	// Making means that the snapshot is not known to be ready to use.
	Making bool
}

// EachContent calls visit for every VolumeSnapshotContent of the cluster, in its state at one moment after the call
// began. An error means that some were not visited; with ErrNotInstalled the cluster serves none.
func (r *Reader) EachContent(ctx context.Context, visit func(Content)) error {
	err := kube.EachOf(ctx, r.client.VolumeSnapshotContents().List, metav1.ListOptions{},
		func(c *snapshotv1.VolumeSnapshotContent) { visit(contentAt(c)) })
	if err != nil {
		return fmt.Errorf("list VolumeSnapshotContents: %w", meaning(err))
	}
	return nil
}

func contentAt(c *snapshotv1.VolumeSnapshotContent) Content {
	at := Content{Name: c.Name, UID: c.UID, Driver: c.Spec.Driver, Handle: ptr.Deref(c.Spec.Source.SnapshotHandle, ""),
		Making: true}
	if c.Status != nil {
		at.Handle = ptr.Deref(c.Status.SnapshotHandle, at.Handle)
		at.Making = !ptr.Deref(c.Status.ReadyToUse, false)
	}
	return at
}
