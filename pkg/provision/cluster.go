package provision

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/sources"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// errSecretGone means that a Secret for a call does not exist.
var errSecretGone = errors.New("a Secret is gone")

// cluster is the part of the API server that provisioning uses.
type cluster interface {
	// selectNode selects a node for the claim, or clears it if node is empty, only if the claim is unchanged since it was
	// read.
	selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) error
	// readClaim reads a claim, nil if it does not exist.
	readClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	// readPV reads a PV, nil if it does not exist.
	readPV(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// createPV creates a PV. The error for an existing PV is the API server's AlreadyExists.
	createPV(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error)
	// holdSource keeps a claim or snapshot while volumes are created from it; freeSource ends that.
	holdSource(ctx context.Context, source volume.SourceRef) error
	freeSource(ctx context.Context, source volume.SourceRef) error
	// readSecret reads a Secret, and returns errSecretGone if it does not exist.
	readSecret(ctx context.Context, ref v1.SecretReference) (map[string]string, error)
}

// apiServer implements cluster with a client.
type apiServer struct {
	core corev1.CoreV1Interface
	// snapshots is nil if snapshots are not protected.
	snapshots sources.SnapshotProtector
}

// selectNode is an update, like external-provisioner's that clears a selected node, so the same rules suffice. The
// resourceVersion lets exactly one node be the first.
func (a apiServer) selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) error {
	claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnSelectedNode, node)
	if node == "" {
		delete(claim.Annotations, volume.AnnSelectedNode)
	}
	_, err := a.core.PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err):
		err = fmt.Errorf("%w: %w", kube.ErrChanged, err)
	case kube.Absent(err, kube.Claim.Resource, claim.Name):
		err = fmt.Errorf("%w: %w", kube.ErrGone, err)
	}
	if err != nil {
		return fmt.Errorf("select node %q for claim %s/%s: %w", node, claim.Namespace, claim.Name, err)
	}
	return nil
}

// holdSource fails for a terminating source that was not held before, because the API server adds no finalizer to it.
func (a apiServer) holdSource(ctx context.Context, source volume.SourceRef) error {
	if source.Kind == volume.SourceSnapshot {
		if a.snapshots == nil {
			return nil
		}
		return a.snapshots.AddFinalizer(ctx, types.NamespacedName{Namespace: source.Namespace, Name: source.Name}, source.UID)
	}
	err := kube.ChangeClaimFinalizers(ctx, a.core.PersistentVolumeClaims(source.Namespace), kube.FinalizerPatch{
		Name: source.Name, UID: source.UID, Add: []string{request.CloningFinalizer}})
	if err != nil {
		return fmt.Errorf("keep the claim that is cloned: %w", err)
	}
	return nil
}

func (a apiServer) freeSource(ctx context.Context, source volume.SourceRef) error {
	if source.Kind == volume.SourceSnapshot {
		if a.snapshots == nil {
			return nil
		}
		return a.snapshots.RemoveFinalizer(ctx, types.NamespacedName{Namespace: source.Namespace, Name: source.Name},
			source.UID)
	}
	return kube.ChangeClaimFinalizers(ctx, a.core.PersistentVolumeClaims(source.Namespace), kube.FinalizerPatch{
		Name: source.Name, UID: source.UID, Remove: []string{request.CloningFinalizer}})
}

func (a apiServer) readClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return kube.Read(ctx, kube.Claim, namespace, name, a.core.PersistentVolumeClaims(namespace).Get)
}

func (a apiServer) readPV(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return kube.Read(ctx, kube.PV, "", name, a.core.PersistentVolumes().Get)
}

func (a apiServer) createPV(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	stored, err := a.core.PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create PV %q: %w", pv.Name, err)
	}
	return stored, nil
}

func (a apiServer) readSecret(ctx context.Context, ref v1.SecretReference) (map[string]string, error) {
	values, found, err := kube.ReadSecret(ctx, a.core, ref.Namespace, ref.Name)
	if err == nil && !found {
		err = fmt.Errorf("%w: %s/%s", errSecretGone, ref.Namespace, ref.Name)
	}
	return values, err
}

// createPV creates a PersistentVolume or, if the name is taken, returns the existing PV and sets exists.
func createPV(ctx context.Context, at cluster, pv *v1.PersistentVolume) (_ *v1.PersistentVolume, exists bool,
	err error) {
	stored, err := at.createPV(ctx, pv)
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return stored, false, err
	}
	there, readErr := at.readPV(ctx, pv.Name)
	switch {
	case readErr != nil:
		return nil, false, fmt.Errorf("%w; %w", err, readErr)
	case there == nil:
		return nil, false, fmt.Errorf("create PV %q: its name was taken, and is free again", pv.Name)
	}
	return there, true, nil
}

// isRefusal reports whether the API server has rejected the object as invalid or forbidden.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// classOfWrite distinguishes refused writes from writes that may still arrive.
func classOfWrite(err error) errclass.Class {
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) {
		if code := status.Status().Code; code >= 400 && code < 500 && code != http.StatusRequestTimeout {
			return errclass.Refused
		}
	}
	return errclass.Uncertain
}

// Permissions returns the permissions that a Controller with these settings needs, and those of its Log. They do not
// include Secrets, whose names are known only when a volume is created. Without a permission the Controller does less,
// but stays safe.
func (p *Controller) Permissions() []permission.Permission {
	const storage = "storage.k8s.io"
	core := func(resource, verb, without string) permission.Permission {
		return permission.Permission{Resource: resource, Verb: verb, Without: without}
	}
	const nothing, classless = "no claim gets a volume", "no claim gets a volume, because its class is not known"
	rights := []permission.Permission{
		core("persistentvolumes", "list", nothing),
		core("persistentvolumes", "watch", nothing),
		core("persistentvolumes", "get", "a volume whose PV was created and not confirmed stays unsettled"),
		core("persistentvolumes", "create", "no claim gets a volume, and no volume that is in flight its PV"),
		core("events", "create", "why a claim waits is only in the log"),
		core("events", "patch", "why a claim waits is only in the log"),
	}
	if l, ok := p.log.(interface {
		Permissions() []permission.Permission
	}); ok {
		rights = append(rights, l.Permissions()...)
	}
	if p.cfg.FinishOnly {
		return append(rights, core("persistentvolumeclaims", "get",
			"a volume in flight stays unsettled if its Secret is gone with its claim"))
	}
	rights = append(rights,
		core("persistentvolumeclaims", "list", nothing),
		core("persistentvolumeclaims", "watch", nothing),
		core("persistentvolumeclaims", "get",
			"a claim whose volume was asked for before, or that was there before this process led, gets no volume"),
		core("persistentvolumeclaims", "patch",
			"no claim is cloned, for without update, too, its source cannot be protected"),
		core("persistentvolumeclaims", "update",
			"a claim is not given another node where the selected one cannot have its volume"),
		permission.Permission{Group: storage, Resource: "storageclasses", Verb: "list", Without: classless},
		permission.Permission{Group: storage, Resource: "storageclasses", Verb: "watch", Without: classless},
	)
	if p.cfg.Local == nil { // a node knows itself
		rights = append(rights, core("nodes", "get", "no claim gets a volume for which a node was selected"))
	}
	if w, ok := p.requests.(Watcher); ok {
		rights = append(rights, w.Permissions()...)
	}
	return rights
}

// MissingPermissions returns the permissions that the API server does not grant; see [permission.Missing]. The
// permission to patch claims is not missing if claims may be updated.
func (p *Controller) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	missing, err := permission.Missing(ctx, p.client.AuthorizationV1(), p.Permissions())
	if !slices.ContainsFunc(missing, of("update")) {
		missing = slices.DeleteFunc(missing, of("patch"))
	}
	return missing, err
}

// of returns a predicate for the permission to apply this verb to claims.
func of(verb string) func(permission.Permission) bool {
	return func(p permission.Permission) bool { return p.Resource == "persistentvolumeclaims" && p.Verb == verb }
}
