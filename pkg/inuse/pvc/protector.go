package pvc

import (
	"context"

	"k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// listWorkers is the number of namespaces listed at once.
const listWorkers = 4

// Protector protects the claims of a cluster; see [inuse.Guard] for how to run it.
type Protector struct {
	*inuse.Guard
	permission.Checker
	cfg     Config
	cluster cluster
	claims  kube.Lister[*Claim]
	users   *users
	batches *batches
	listing *controller.Queue[string]
}

// New returns a Protector of the claims in the cluster of config, which is copied; with a QPS of 0, only the number of
// workers limits the calls. New starts nothing.
func New(config *rest.Config, cfg Config) (*Protector, error) {
	clients, err := controller.Connect("create the claim protector", config, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Config = cfg.WithDefaults()
	if cfg.TerminatedPods == TerminatedDefault {
		cfg.TerminatedPods = ReleaseTerminated
	}
	p := &Protector{cfg: cfg, cluster: apiServer{clients.Core}, users: newUsers(), batches: newBatches(),
		Checker: permission.NewChecker(clients.Authorization, cfg.Permissions())}
	rest := clients.Core.RESTClient()
	claims := kube.NewCache(rest, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim, claimChanges{p})
	pods := kube.NewCache(rest, "pods", &v1.Pod{}, recordPod, podChanges{p})
	cfg.Watches.Share(claims, pods)
	p.claims = claims
	return p, p.guard(kind{p}, claims, pods)
}

// guard creates the Guard of a kind, and the queue of lists.
func (p *Protector) guard(of inuse.Kind, caches ...controller.Cache) (err error) {
	if p.Guard, err = inuse.New("PersistentVolumeClaim", of, p.cfg.Config, caches...); err != nil {
		return err
	}
	p.listing = controller.QueueOf(p.Controller, p.cfg.Settings, "list-users", listWorkers, p.list)
	return nil
}

// list makes one list of the pods in a namespace, for all claims that wait for it.
func (p *Protector) list(ctx context.Context, namespace string) controller.Result {
	asked, wait := p.batches.take(namespace, p.cfg.Clock.Now())
	switch {
	case wait > 0:
		return controller.After(wait)
	case len(asked) == 0:
		return controller.Done()
	}
	pods, err := p.cluster.listPods(ctx, namespace)
	if ctx.Err() != nil {
		return controller.Done() // the lease or the program ended: the next leader asks again
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not read which pods use claims; the claims count as in use",
			"namespace", namespace, "claims", len(asked))
	}
	p.batches.settle(namespace, asked, answer{at: p.cfg.Clock.Now(), pods: indexed(pods), err: err})
	for _, claim := range asked {
		p.Enqueue(claim.key)
	}
	return controller.Done()
}

// kind implements inuse.Kind.
type kind struct{ *Protector }

func (k kind) Decide(key string, duty func(inuse.Object) inuse.Duty) (inuse.Object, inuse.Decision, bool) {
	c, found := k.claims.Get(key)
	if !found {
		return inuse.Object{}, inuse.Decision{}, false
	}
	return *c, Decide(Facts{
		Duty: duty(*c), Ended: k.cfg.TerminatedPods, Claim: *c,
		Seen: k.users.usage(*c), Read: k.batches.reading(*c, k.cfg.Clock.Now()),
	}), true
}

func (k kind) Get(key string) (inuse.Object, bool) {
	c, found := k.claims.Get(key)
	if !found {
		return inuse.Object{}, false
	}
	return *c, true
}

func (k kind) ReadUsers(o inuse.Object) {
	if k.batches.join(o.Namespace, ask{o.UID, o.Key()}) {
		k.listing.Add(o.Namespace)
	}
	if now, _ := k.Get(o.Key()); now.UID != o.UID {
		k.batches.forget(o.UID) // its deletion preceded the request
	}
}

func (k kind) Patch(ctx context.Context, o inuse.Object, a inuse.Action) (inuse.Object, error) {
	return k.cluster.patch(ctx, o, a)
}

func (k kind) Keys() []string {
	var keys []string
	k.claims.Each(func(c *Claim) { keys = append(keys, c.Key()) })
	return keys
}
