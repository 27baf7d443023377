package reclaim

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// cluster is what executing a decision asks of the API server. Every read is live: it goes
// to the server, and is as new as the moment it was sent.
type cluster interface {
	// readPV returns the PV of that name; found is false when there is none.
	readPV(ctx context.Context, name string) (pv PV, found bool, err error)
	// readClaim returns what is known of the claim; facts.Read is left to the caller.
	readClaim(ctx context.Context, of ClaimRef) (facts ClaimFacts, err error)
	// readSecret returns the content of the Secret; found is false when there is none.
	readSecret(ctx context.Context, ref SecretRef) (data map[string]string, found bool, err error)
	// listAttachments returns the VolumeAttachments of each PV if one small page shows them
	// all, else only the resourceVersion that the list has.
	listAttachments(ctx context.Context) (attachmentList, error)
	// addFinalizer, dropFinalizers and releasePV change the finalizers; see Action.
	addFinalizer(ctx context.Context, pv PV) error
	dropFinalizers(ctx context.Context, pv PV) error
	releasePV(ctx context.Context, pv PV) error
	// deletePV asks for the PV's deletion.
	deletePV(ctx context.Context, pv PV) error
}

// attachmentList is a live list of VolumeAttachments.
type attachmentList struct {
	complete bool
	ofPV     map[string]int
	version  string
}

// attachmentPage is how many VolumeAttachments one list asks for: enough that most
// clusters answer in one page of well under a megabyte.
const attachmentPage = 500

// apiServer is the cluster behind real clients.
type apiServer struct {
	clients kube.Clients
	// timeout bounds each call, so that a server that hangs does not hold a worker.
	timeout time.Duration
}

func (a apiServer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}

func (a apiServer) readPV(ctx context.Context, name string) (PV, bool, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return PV{}, false, nil
	case err != nil:
		return PV{}, false, fmt.Errorf("read PV %q: %w", name, err)
	}
	return PVOf(o), true, nil
}

func (a apiServer) readClaim(ctx context.Context, of ClaimRef) (ClaimFacts, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	facts := ClaimFacts{Of: of}
	o, err := a.clients.Core.PersistentVolumeClaims(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return facts, nil
	case err != nil:
		return ClaimFacts{}, fmt.Errorf("read claim %q: %w", of.Namespace+"/"+of.Name, err)
	}
	facts.Found, facts.UID, facts.VolumeName = true, o.UID, o.Spec.VolumeName
	return facts, nil
}

func (a apiServer) readSecret(ctx context.Context, ref SecretRef) (map[string]string, bool, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read Secret %q: %w", ref.Namespace+"/"+ref.Name, err)
	}
	data := make(map[string]string, len(o.Data))
	for key, value := range o.Data {
		data[key] = string(value)
	}
	return data, true, nil
}

func (a apiServer) listAttachments(ctx context.Context) (attachmentList, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	page, err := a.clients.Storage.VolumeAttachments().List(ctx, metav1.ListOptions{Limit: attachmentPage})
	if err != nil {
		return attachmentList{}, fmt.Errorf("list VolumeAttachments: %w", err)
	}
	list := attachmentList{complete: page.Continue == "", version: page.ResourceVersion, ofPV: map[string]int{}}
	for i := range page.Items {
		list.ofPV[attachmentOf(&page.Items[i]).pv]++
	}
	return list, nil
}

func (a apiServer) addFinalizer(ctx context.Context, pv PV) error {
	_, err := a.patch(ctx, kube.FinalizerPatch{Name: pv.Name, UID: pv.UID, Add: []string{Finalizer}})
	return err
}

func (a apiServer) dropFinalizers(ctx context.Context, pv PV) error {
	return a.drop(ctx, kube.FinalizerPatch{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Drop: pv.finalizers()})
}

func (a apiServer) releasePV(ctx context.Context, pv PV) error {
	return a.drop(ctx, kube.FinalizerPatch{Name: pv.Name, UID: pv.UID, Drop: pv.finalizers()})
}

// drop believes that a finalizer is off only when the answer shows it: an admission policy
// that puts it back makes the write a success that changed nothing.
func (a apiServer) drop(ctx context.Context, p kube.FinalizerPatch) error {
	after, err := a.patch(ctx, p)
	if err != nil {
		return err
	}
	if after.Protected() {
		return fmt.Errorf("patch finalizers of PV %q: the API server took the change and kept %v: look for an admission policy or webhook that puts it back", p.Name, after.finalizers())
	}
	return nil
}

func (a apiServer) patch(ctx context.Context, p kube.FinalizerPatch) (PV, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := kube.PatchFinalizers(ctx, a.clients.Core.PersistentVolumes(), p)
	if err != nil {
		return PV{}, err
	}
	return PVOf(o), nil
}

func (a apiServer) deletePV(ctx context.Context, pv PV) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return kube.DeletePV(ctx, a.clients.Core.PersistentVolumes(), pv.Name, pv.UID)
}
