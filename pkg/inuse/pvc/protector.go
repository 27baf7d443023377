package pvc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// listWorkers is how many namespaces are listed at once.
const listWorkers = 4

// Protector protects the claims of a cluster. How it is run, see [inuse.Guard].
type Protector struct {
	*inuse.Guard
	cfg     Config
	clock   clock.PassiveClock
	cluster cluster
	// authorization tells what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	claims        claimCache
	users         *users
	batches       *batches
	listing       *controller.Loop[string]
	claimsOf      *kube.Cache[*Claim]
	podsOf        *kube.Cache[*Pod]
}

// claimCache is what is read of the watch of claims.
type claimCache interface {
	Get(key string) (*Claim, bool)
	Each(visit func(*Claim))
}

// New returns a Protector of the claims in the cluster that config describes. config is copied; a
// QPS of 0 means that nothing but the number of workers limits the calls. Nothing is started.
func New(config *rest.Config, cfg Config) (*Protector, error) {
	if config == nil {
		return nil, errors.New("make a protector of claims: no cluster is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make a protector of claims: %w", err)
	}
	cfg.Config = cfg.WithDefaults()
	if cfg.TerminatedPods == TerminatedDefault {
		cfg.TerminatedPods = ReleaseTerminated
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	p := &Protector{cfg: cfg, clock: cfg.Clock, cluster: apiServer{clients.Core}, authorization: clients.Authorization, users: newUsers(), batches: newBatches()}
	rest := clients.Core.RESTClient()
	p.claimsOf = kube.NewCache(rest, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim, claimChanges{p})
	p.podsOf = kube.NewCache(rest, "pods", &v1.Pod{}, recordPod, podChanges{p})
	p.claims = p.claimsOf
	if p.Guard, err = inuse.New("PersistentVolumeClaim", kind{p}, cfg.Config); err != nil {
		return nil, err
	}
	if p.listing, err = controller.New(controller.Config{Name: "list-users", Workers: listWorkers, Clock: cfg.Clock}, p.list); err != nil {
		return nil, err
	}
	return p, nil
}

// Run is that of [inuse.Guard], with the lists of pods.
func (p *Protector) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var lists sync.WaitGroup
	defer lists.Wait()
	defer cancel()
	lists.Go(func() { p.listing.Run(ctx) })
	return p.Guard.Run(ctx)
}

// list makes one list of the pods in a namespace, for all claims that wait for it.
func (p *Protector) list(ctx context.Context, namespace string) controller.Next {
	asked, wait := p.batches.take(namespace, p.clock.Now())
	switch {
	case wait > 0:
		return inuse.After(wait)
	case len(asked) == 0:
		return controller.Next{}
	}
	pods, err := p.cluster.listPods(ctx, namespace)
	if ctx.Err() != nil {
		return controller.Next{} // the lease or the program ended: the next leader asks anew
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Who uses claims could not be read; they count as used", "namespace", namespace, "claims", len(asked))
	}
	p.batches.settle(namespace, asked, answer{at: p.clock.Now(), pods: indexed(pods), err: err})
	for _, claim := range asked {
		p.Wake(claim.key)
	}
	return controller.Next{}
}

// kind is the Protector as its Guard sees it.
type kind struct{ *Protector }

func (k kind) Decide(key string, duty func(inuse.Object) inuse.Duty) (inuse.Object, inuse.Decision, bool) {
	c, found := k.claims.Get(key)
	if !found {
		return inuse.Object{}, inuse.Decision{}, false
	}
	return c.Object, Decide(Snapshot{
		Duty: duty(c.Object), Ended: k.cfg.TerminatedPods, Claim: *c,
		Seen: k.users.usage(*c), Read: k.batches.reading(*c, k.clock.Now()),
	}), true
}

func (k kind) Ask(o inuse.Object) {
	if k.batches.join(o.Namespace, ask{o.UID, o.Key()}) {
		k.listing.Add(o.Namespace)
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

func (k kind) Caches() []inuse.Cache { return []inuse.Cache{k.claimsOf, k.podsOf} }
