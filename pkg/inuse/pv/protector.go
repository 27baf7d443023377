package pv

import (
	"context"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Protector protects the PVs of a cluster; see [inuse.Guard] for how to run it.
type Protector struct {
	*inuse.Guard
	permission.Checker
	pvs    *kube.Cache[*PV]
	client corev1.PersistentVolumeInterface
}

// New returns a Protector of the PVs in the cluster of config, which is copied; with a QPS of 0, only the number of
// workers limits the calls. New starts nothing.
func New(config *rest.Config, cfg inuse.Config) (*Protector, error) {
	clients, err := controller.Connect("create the PV protector", config, cfg)
	if err != nil {
		return nil, err
	}
	p := &Protector{client: clients.Core.PersistentVolumes(),
		Checker: permission.NewChecker(clients.Authorization, Permissions(cfg))}
	p.pvs = kube.NewCache(clients.Core.RESTClient(), "persistentvolumes", &v1.PersistentVolume{}, record, changes{p})
	cfg.Watches.Share(p.pvs)
	if p.Guard, err = inuse.New("PersistentVolume", kind{p}, cfg, p.pvs); err != nil {
		return nil, err
	}
	return p, nil
}

// Permissions returns the permissions that a Protector with these settings needs.
func Permissions(c inuse.Config) []permission.Permission { return c.Permissions("persistentvolumes") }

// kind implements inuse.Kind.
type kind struct{ *Protector }

// Decide relies on the watch: a write that leads to the deletion of a PV fails if the PV has changed since it was read,
// so no live read is needed.
func (k kind) Decide(key string, duty func(inuse.Object) inuse.Duty) (inuse.Object, inuse.Decision, bool) {
	pv, found := k.pvs.Get(key)
	if !found {
		return inuse.Object{}, inuse.Decision{}, false
	}
	return pv.Object, Decide(Facts{Duty: duty(pv.Object), PV: *pv}), true
}

func (k kind) Get(key string) (inuse.Object, bool) {
	pv, found := k.pvs.Get(key)
	if !found {
		return inuse.Object{}, false
	}
	return pv.Object, true
}

// ReadUsers does nothing, because the PV itself shows whether it is in use.
func (kind) ReadUsers(inuse.Object) {}

func (k kind) Patch(ctx context.Context, o inuse.Object, a inuse.Action) (inuse.Object, error) {
	after, err := kube.PatchFinalizers(ctx, k.client, inuse.Patch(o, a, Finalizer))
	if err != nil {
		return inuse.Object{}, err
	}
	return inuse.ObjectOf(after, Finalizer), nil
}

func (k kind) Keys() []string {
	var keys []string
	k.pvs.Each(func(pv *PV) { keys = append(keys, pv.Key()) })
	return keys
}

func (k kind) List(ctx context.Context) (all []inuse.Held, err error) {
	err = kube.Each(ctx, "PVs", metav1.ListOptions{}, k.client.List,
		func(o *v1.PersistentVolume) { all = append(all, held(o)) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

// held returns a PV as read live by a release.
func held(o *v1.PersistentVolume) inuse.Held {
	pv := PVOf(o)
	pv.Object = pv.AsDeleted()
	return inuse.HeldOf(o, Finalizer).Decided(func(d inuse.Duty) inuse.Decision { return Decide(Facts{Duty: d, PV: pv}) })
}

// changes handles the watch events of PVs.
type changes struct{ *Protector }

func (c changes) Added(now *PV)                { c.Guard.Added(now.Object) }
func (c changes) Updated(before, now *PV)      { c.Guard.Updated(before.Object, now.Object) }
func (c changes) Deleted(last *PV, final bool) { c.Guard.Deleted(last.Object, final) }
