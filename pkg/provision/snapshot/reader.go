package snapshot

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// ErrNotInstalled means that the API server, or a proxy in front of it, does not serve VolumeSnapshots. It does not
// prove that a snapshot does not exist.
var ErrNotInstalled = errors.New("snapshots are not installed in this cluster: it serves no " + snapshotv1.GroupName +
	"/v1; install the CRDs of kubernetes-csi/external-snapshotter")

// Resources of the API, as in URLs and errors.
const (
	snapshotResource = "volumesnapshots"
	contentResource  = "volumesnapshotcontents"
)

// Reader reads snapshots, and changes one of their finalizers.
type Reader struct {
	client   snapshotclient.SnapshotV1Interface
	objects  dynamic.Interface
	metadata metadata.Interface
}

// New returns a reader for the cluster of config, which is copied. A QPS of 0 means no limit on the client's side.
func New(config *rest.Config) (*Reader, error) {
	c := kube.ConfigOf(config)
	// Custom resources are not available as protobuf, which the other clients request: the API server would answer 406.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := snapshotclient.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("create a client for %s/v1: %w", snapshotv1.GroupName, err)
	}
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("create a client for objects of any kind: %w", err)
	}
	ofMetadata, err := metadata.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("create a client for metadata: %w", err)
	}
	return &Reader{client: client, objects: objects, metadata: ofMetadata}, nil
}

// Read reads a VolumeSnapshot and its VolumeSnapshotContent live. It returns nil if the VolumeSnapshot does not exist,
// and a nil Content if the content does not exist.
//
// It needs at most two GETs and no watch, because a source is read once for each claim, and few claims have one. An
// error means that their existence is unknown; with ErrNotInstalled this cluster cannot tell.
func (r *Reader) Read(ctx context.Context, name types.NamespacedName) (*request.Snapshot, error) {
	snapshot, err := kube.GetObject(ctx, snapshotv1.Resource(snapshotResource), name.Name,
		r.client.VolumeSnapshots(name.Namespace).Get)
	switch {
	case absent(err, snapshotResource, name.Name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read VolumeSnapshot %q: %w", name, meaning(err))
	}
	read := snapshotOf(snapshot)
	if read.ContentName == "" {
		return read, nil
	}
	content, err := kube.GetObject(ctx, snapshotv1.Resource(contentResource), read.ContentName,
		r.client.VolumeSnapshotContents().Get)
	switch {
	case absent(err, contentResource, read.ContentName):
		return read, nil
	case err != nil:
		return nil, fmt.Errorf("read VolumeSnapshotContent %q of VolumeSnapshot %q: %w", read.ContentName, name, meaning(err))
	}
	read.Content = contentOf(content)
	return read, nil
}

// absent reports whether the API server answered that it has no object of that name.
func absent(err error, resource, name string) bool {
	return kube.Absent(err, snapshotv1.Resource(resource), name)
}

func meaning(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	return err
}

func snapshotOf(s *snapshotv1.VolumeSnapshot) *request.Snapshot {
	read := &request.Snapshot{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Deleting: s.DeletionTimestamp != nil,
		Protected: protected(s)}
	if s.Status == nil {
		return read
	}
	read.Ready = ptr.Deref(s.Status.ReadyToUse, false)
	read.ContentName = ptr.Deref(s.Status.BoundVolumeSnapshotContentName, "")
	if size := s.Status.RestoreSize; size != nil {
		read.RestoreSize = ptr.To(size.Value())
	}
	return read
}

func contentOf(c *snapshotv1.VolumeSnapshotContent) *request.SnapshotContent {
	ref := c.Spec.VolumeSnapshotRef
	read := &request.SnapshotContent{
		Name: c.Name, Driver: c.Spec.Driver,
		Snapshot: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, SnapshotUID: ref.UID,
		SourceMode: c.Spec.SourceVolumeMode, AllowModeChange: c.Annotations[request.AllowModeChangeAnnotation],
	}
	if c.Status != nil {
		read.Handle = ptr.Deref(c.Status.SnapshotHandle, "")
	}
	return read
}

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
	return meaning(kube.Each(ctx, "VolumeSnapshotContents", metav1.ListOptions{}, r.client.VolumeSnapshotContents().List,
		func(c *snapshotv1.VolumeSnapshotContent) { visit(contentAt(c)) }))
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

// Permission returns the permission for a verb on a resource of the snapshot API. without describes the effect of its
// absence.
func Permission(resource, verb, without string) permission.Permission {
	return permission.Permission{Group: "snapshot.storage.k8s.io", Resource: resource, Verb: verb, Without: without}
}
