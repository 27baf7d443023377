package provision

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/order"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

var (
	// errNameTaken: the PV's name belongs to a PV that is not the claim's, or is being deleted.
	errNameTaken = errors.New("the name of the claim's PersistentVolume is taken")
	// errSecretGone: a Secret that goes with a call does not exist.
	errSecretGone = errors.New("a Secret is gone")
)

// cluster is what is asked of the API server.
type cluster interface {
	// protect puts the finalizer on the claim, only if it still is as it was read; it returns
	// nil only if the finalizer was not on before.
	protect(ctx context.Context, c Claim) error
	// letGo takes it off, and returns the resourceVersion that this made.
	letGo(ctx context.Context, c Claim) (version string, err error)
	// selectNode selects a node for the claim, only if the claim still is as it was read.
	selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) error
	// readPV reads a PV, nil if there is none.
	readPV(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// createPV creates a PV; that one of its name is there is the API server's AlreadyExists.
	createPV(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error)
	// holdSource has a claim or a snapshot stay while volumes are made from it; freeSource ends that.
	holdSource(ctx context.Context, source order.SourceRef) error
	freeSource(ctx context.Context, source order.SourceRef) error
	// readSecret reads a Secret; it returns errSecretGone if there is none.
	readSecret(ctx context.Context, ref v1.SecretReference) (map[string]string, error)
}

// apiServer is the cluster behind a client.
type apiServer struct {
	core corev1.CoreV1Interface
	// snapshots is nil where none is protected.
	snapshots SnapshotProtector
	// finalizer is the one that claims get.
	finalizer string
}

// protect is bound to the resourceVersion: that it succeeds shows that nobody had put the
// finalizer on, so that nobody had begun to make a volume.
func (a apiServer) protect(ctx context.Context, c Claim) error {
	_, err := kube.PatchClaimFinalizers(ctx, a.core.PersistentVolumeClaims(c.Namespace), kube.FinalizerPatch{
		Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, Add: []string{a.finalizer}})
	return err
}

// letGo goes by UID alone: what it was decided from cannot be undone by a change of the claim.
func (a apiServer) letGo(ctx context.Context, c Claim) (version string, err error) {
	claim, err := kube.PatchClaimFinalizers(ctx, a.core.PersistentVolumeClaims(c.Namespace), kube.FinalizerPatch{
		Name: c.Name, UID: c.UID, Drop: []string{a.finalizer}})
	if err != nil {
		return "", err
	}
	return claim.ResourceVersion, nil
}

// selectNode is an update, as the library's own that takes a selected node back: rules that let it do that
// let this be done too. The resourceVersion lets one node of all be the first.
func (a apiServer) selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) error {
	claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, annSelectedNode, node)
	_, err := a.core.PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err):
		err = fmt.Errorf("%w: %w", kube.ErrChanged, err)
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%w: %w", kube.ErrGone, err)
	}
	if err != nil {
		return fmt.Errorf("select node %q for claim %s/%s: %w", node, claim.Namespace, claim.Name, err)
	}
	return nil
}

// holdSource fails for a source that is being deleted and was not held before: the API server puts no
// finalizer on such.
func (a apiServer) holdSource(ctx context.Context, source order.SourceRef) error {
	if source.Kind == order.SourceSnapshot {
		if a.snapshots == nil {
			return nil
		}
		return a.snapshots.AddFinalizer(ctx, types.NamespacedName{Namespace: source.Namespace, Name: source.Name}, source.UID)
	}
	_, err := kube.PatchClaimFinalizers(ctx, a.core.PersistentVolumeClaims(source.Namespace), kube.FinalizerPatch{
		Name: source.Name, UID: source.UID, Add: []string{CloningFinalizer}})
	if err != nil {
		return fmt.Errorf("keep the claim that is cloned: %w", err)
	}
	return nil
}

func (a apiServer) freeSource(ctx context.Context, source order.SourceRef) error {
	if source.Kind == order.SourceSnapshot {
		if a.snapshots == nil {
			return nil
		}
		return a.snapshots.RemoveFinalizer(ctx, types.NamespacedName{Namespace: source.Namespace, Name: source.Name}, source.UID)
	}
	_, err := kube.PatchClaimFinalizers(ctx, a.core.PersistentVolumeClaims(source.Namespace), kube.FinalizerPatch{
		Name: source.Name, UID: source.UID, Drop: []string{CloningFinalizer}})
	return err
}

func (a apiServer) readPV(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	pv, err := a.core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no PV is an answer of its own here
	}
	if err != nil {
		return nil, fmt.Errorf("read PV %q: %w", name, err)
	}
	return pv, nil
}

func (a apiServer) createPV(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	stored, err := a.core.PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create PV %q: %w", pv.Name, err)
	}
	return stored, nil
}

func (a apiServer) readSecret(ctx context.Context, ref v1.SecretReference) (map[string]string, error) {
	secret, err := a.core.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %s/%s", errSecretGone, ref.Namespace, ref.Name)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	values := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values, nil
}

// storePV creates the PV of a claim's volume and returns it as it is stored. That one is there
// already is a success only if it is this claim's and is not being deleted: the answer to an
// earlier try was lost. node is the one whose volumes are made, nil for the whole cluster.
func storePV(ctx context.Context, at cluster, node *reclaim.Node, c Claim, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	stored, err := at.createPV(ctx, pv)
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return stored, err
	}
	there, err := at.readPV(ctx, pv.Name)
	switch {
	case err != nil:
		return nil, err
	case there == nil:
		return nil, fmt.Errorf("create PV %q: %w, and was free again a moment later", pv.Name, errNameTaken)
	case stateOf(reclaim.PVAt(node, there), c, reclaim.PVOf(pv).Driver) == PVStored:
		return there, nil
	}
	return nil, fmt.Errorf("create PV %q: %w", pv.Name, errNameTaken)
}

// stateOf says what a PV under the claim's own PV's name is to the claim. One that names another
// driver's volume is not the claim's, whoever made it for the claim: taken for it, it would leave
// behind what this driver made. One of which the driver cannot be told may be.
func stateOf(pv reclaim.PV, c Claim, driver string) PV {
	switch {
	case pv.Claim.UID != c.UID, pv.Driver != "" && pv.Driver != driver:
		return PVOther
	case pv.Reach == reclaim.ReachElsewhere:
		return PVElsewhere
	case pv.Terminating:
		return PVTerminating
	}
	return PVStored
}
