package provision

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/loop"
)

// CloningFinalizer keeps a claim while its volume is cloned. It is the stock provisioner's.
const CloningFinalizer = "provisioner.storage.kubernetes.io/cloning-protection"

// sourceOf returns the claim that this one is a clone of. found is false for none.
func sourceOf(claim *v1.PersistentVolumeClaim) (source types.NamespacedName, found bool) {
	kind, group, name := "", (*string)(nil), ""
	switch {
	case claim.Spec.DataSource != nil:
		kind, group, name = claim.Spec.DataSource.Kind, claim.Spec.DataSource.APIGroup, claim.Spec.DataSource.Name
	case claim.Spec.DataSourceRef != nil:
		kind, group, name = claim.Spec.DataSourceRef.Kind, claim.Spec.DataSourceRef.APIGroup, claim.Spec.DataSourceRef.Name
	}
	found = kind == "PersistentVolumeClaim" && (group == nil || *group == "")
	return types.NamespacedName{Namespace: claim.Namespace, Name: name}, found
}

// freesSource tells whether a claim is a source that is being deleted, and may have to be let go.
func freesSource(claim *v1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp != nil && slices.Contains(claim.Finalizers, CloningFinalizer)
}

// cloneChanged wakes what lets sources go: a source that is being deleted, or the end of a clone.
func (p *Provisioner) cloneChanged(claim *v1.PersistentVolumeClaim) {
	if freesSource(claim) {
		p.sources.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	}
	if source, found := sourceOf(claim); found {
		p.sources.Add(source)
	}
}

// freeSource lets a source go that is being deleted, once no clone of it is being made. One that is
// not being deleted keeps the finalizer, so that no clone that begins can be overtaken: the API
// server puts none on what is being deleted.
func (p *Provisioner) freeSource(ctx context.Context, name types.NamespacedName) loop.Next {
	source, found := p.claims.Get(name.String())
	if !found || p.at(source) == AtElsewhere || !freesSource(source) || p.cloned(name) {
		return loop.Next{}
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err := p.cluster.freeSource(ctx, SourceClaim{name.Namespace, name.Name, source.UID})
	if err != nil && !errors.Is(err, kube.ErrGone) {
		klog.FromContext(ctx).Info("A claim that was cloned could not be let go; it is tried again", "claim", name, "err", err)
		return p.usual()
	}
	return loop.Next{}
}

// cloned tells whether a clone of the claim may be being made. A clone is held from before it is
// begun; of those that others make, and where nothing is held, any that has no volume counts.
func (p *Provisioner) cloned(source types.NamespacedName) bool {
	cloned := false
	p.claims.Each(func(claim *v1.PersistentVolumeClaim) {
		of, found := sourceOf(claim)
		if cloned || !found || of != source || claim.Spec.VolumeName != "" {
			return
		}
		cloned = !p.protects || !p.ours(claim) || slices.ContainsFunc(claim.Finalizers, anyNodes)
	})
	return cloned
}

// anyNodes tells whether a finalizer is ours, whichever node's.
func anyNodes(finalizer string) bool {
	return finalizer == Finalizer || strings.HasPrefix(finalizer, Finalizer+"-")
}

// holdSource has the claim stay whose volume is read while this one is made. Where this one is only
// looked for to be deleted, nothing is read any more.
func (w *run) holdSource(ctx context.Context, why Reason) error {
	source := w.life.order.CloneOf
	if source == nil || why == ReasonCleanUp || w.life.holds == source.UID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if err := w.cluster.holdSource(ctx, *source); err != nil {
		return because(failureOf(why), err)
	}
	w.life.holds = source.UID
	return nil
}
