package provision

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Rights returns what a Provisioner with these settings needs to be allowed. Secrets are not among
// them: which ones are needed is known only when a volume is made. Without any of them nothing is
// done that is not safe.
func (p *Provisioner) Rights() []reclaim.Right {
	const storage = "storage.k8s.io"
	core := func(resource, verb, without string) reclaim.Right {
		return reclaim.Right{Resource: resource, Verb: verb, Without: without}
	}
	const nothing, classless = "no claim gets a volume", "no claim gets a volume, for nobody knows its class"
	hold := "a crash while a volume is made can leave it behind, and no claim is cloned; after it is granted, restart csi-reclaimer"
	if p.cfg.NoFinalizer {
		hold = "no claim is cloned, for nobody could keep the source"
	}
	look := "what was begun for a claim that is deleted is not cleaned up, and the claim stays"
	if p.cfg.Local != nil {
		look = nothing
	}
	rights := []reclaim.Right{
		core("persistentvolumeclaims", "list", nothing),
		core("persistentvolumeclaims", "watch", nothing),
		core("persistentvolumeclaims", "patch", hold),
		core("persistentvolumeclaims", "update", "a claim is not given another node where the selected one cannot have its volume"),
		core("persistentvolumes", "list", nothing),
		core("persistentvolumes", "watch", nothing),
		core("persistentvolumes", "get", look),
		core("persistentvolumes", "create", nothing),
		{Group: storage, Resource: "storageclasses", Verb: "list", Without: classless},
		{Group: storage, Resource: "storageclasses", Verb: "watch", Without: classless},
	}
	if p.cfg.Local == nil { // a node knows itself
		rights = append(rights, core("nodes", "get", "no claim gets a volume for which a node was selected"))
	}
	for _, verb := range []string{"create", "patch"} {
		rights = append(rights, core("events", verb, "why a claim waits is told in the log only"))
	}
	if w, ok := p.orders.(Watcher); ok {
		rights = append(rights, w.Rights()...)
	}
	return rights
}

// Missing returns those of the rights that the API server does not grant; see [reclaim.Missing].
func (p *Provisioner) Missing(ctx context.Context) ([]reclaim.Right, error) {
	return reclaim.Missing(ctx, p.client.AuthorizationV1(), p.Rights())
}

// mayProtect tells whether claims get our finalizer. Where it is not allowed, as in the rules of the
// stock provisioner, volumes are made as that makes them. Where that cannot be found out claims are
// protected, or wait.
func (p *Provisioner) mayProtect(ctx context.Context) bool {
	if p.cfg.NoFinalizer {
		return false
	}
	lacks, err := reclaim.Missing(ctx, p.client.AuthorizationV1(), []reclaim.Right{{Resource: "persistentvolumeclaims", Verb: "patch"}})
	if err == nil && len(lacks) > 0 {
		klog.FromContext(ctx).Info("Claims may not be patched: volumes are made without the finalizer that keeps a crash from leaving one behind", "finalizer", p.cfg.finalizer())
	}
	return err != nil || len(lacks) == 0
}
