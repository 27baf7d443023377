package watch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// Page is the view of one object while a client looks at it. Its methods are called one at a time.
type Page struct {
	c       *Cluster
	ref     view.Ref
	events  *events
	cluster explain.Cluster
	cancel  context.CancelFunc
	running *sync.WaitGroup

	last    view.Around
	looked  bool
	changes int
	// shown is the last seen state of the object. shown.Exists says whether the last look found it.
	shown view.Object
	// explained is the end of the last live explanation, took is its duration, and of is the fingerprint of its input.
	explained time.Time
	took      time.Duration
	of        string
}

// Kinds returns the kinds that have pages.
func Kinds() []view.Kind {
	return []view.Kind{view.KindPV, view.KindClaim, view.KindPod, view.KindNode}
}

// Open begins to follow an object, until ctx ends or Close is called.
func (c *Cluster) Open(ctx context.Context, ref view.Ref) (*Page, error) {
	if !slices.Contains(Kinds(), ref.Kind) {
		return nil, fmt.Errorf("there is no page of kind %q", ref.Kind)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Page{c: c, ref: ref, cancel: cancel, running: &sync.WaitGroup{}}
	p.events = &events{c: c, tables: map[string]*table[v1.Event]{},
		start: func(run func(context.Context)) { p.running.Go(func() { run(ctx) }) }}
	p.cluster = c.cluster
	p.cluster.Source = followed{c, p.events}
	return p, nil
}

func (p *Page) Close() {
	p.cancel()
	p.running.Wait()
}

// Look returns the object's present state, its changes since the last look, and all its Events. rows returns rows of
// the tables by ID.
func (p *Page) Look(ctx context.Context, rows func(id string) (view.Row, bool)) (view.Object, []view.Entry) {
	now := p.c.around(ctx, p.ref)
	p.followEvents(now)
	exists := p.exists(now)
	row, has := rows(p.ref.ID())
	if !has {
		row = view.Row{ID: p.ref.ID(), Ref: p.ref, Severity: view.SeverityNone}
	}
	if explanation, made := p.explain(ctx, now); made {
		p.shown.Explanation = explanation
	}
	if exists || p.shown.ID == "" {
		p.shown.Row = row
		if e := p.shown.Explanation; e != nil && e.Decision != nil {
			p.shown.Docs = view.DocsOf(p.ref.Kind, row.Driver, e.Decision.Reason)
		}
		now.Finalizers = p.finalizers()
		p.shown.Graph = view.GraphOf(now, rows)
	}
	p.shown.Exists = exists
	return p.shown, p.timeline(now)
}

func (p *Page) exists(a view.Around) bool {
	switch p.ref.Kind {
	case view.KindPV:
		return len(a.PVs) > 0
	case view.KindClaim:
		return len(a.Claims) > 0
	case view.KindNode:
		return len(a.Nodes) > 0
	default: // a pod
	}
	return len(a.Pods) > 0 || p.shown.Explanation != nil && p.shown.Exists
}

// finalizers returns the explained finalizers of the object and its PV, by Ref.ID.
func (p *Page) finalizers() map[string][]explain.Finalizer {
	all := map[string][]explain.Finalizer{}
	e := p.shown.Explanation
	if e == nil {
		return all
	}
	all[p.ref.ID()] = e.Finalizers
	if e.PV != nil {
		all[view.Ref{Kind: view.KindPV, Name: p.shown.PV}.ID()] = e.PV.Finalizers
	}
	return all
}

// followEvents watches the Events of the object, and of the claim or PV related to it.
func (p *Page) followEvents(a view.Around) {
	switch p.ref.Kind {
	case view.KindPV, view.KindClaim:
		for _, o := range a.PVs {
			p.events.followObject(metav1.NamespaceDefault, o.UID)
		}
		for _, o := range a.Claims {
			p.events.followObject(o.Namespace, o.UID)
		}
	case view.KindNode:
		for _, kind := range []string{"Node", "NodeFence"} {
			p.events.follow(metav1.NamespaceDefault, fields.Set{"involvedObject.kind": kind,
				"involvedObject.name": p.ref.Name})
		}
	default: // a pod
		p.events.follow(p.ref.Namespace, fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": p.ref.Name})
	}
}

// timeline returns the entries that are new since the last look, and all Events.
func (p *Page) timeline(now view.Around) (all []view.Entry) {
	if p.looked {
		for _, entry := range view.Diff(p.last, now, p.c.now()) {
			p.changes++
			entry.ID = "change/" + strconv.Itoa(p.changes)
			all = append(all, entry)
		}
	} else {
		all = view.Begin(now)
	}
	p.last, p.looked = now, true
	events := p.events.all()
	for i := range events.Value {
		all = append(all, view.EntryOf(&events.Value[i]))
	}
	view.SortEntries(all)
	return all
}

// explain makes the explanation, unless the last one still holds or none can be made.
func (p *Page) explain(ctx context.Context, a view.Around) (_ *explain.Explanation, made bool) {
	if p.ref.Kind == view.KindPV {
		facts, err := volumes.ReadPV(ctx, p.cluster, p.ref.Name)
		if err != nil {
			return nil, false
		}
		e := volumes.ExplainPV(facts)
		return &e, true
	}
	of := fingerprint(a, p.events)
	if !p.due(of) {
		return nil, false
	}
	begun := p.c.now()
	e, err := p.explainLive(ctx)
	p.explained, p.of = p.c.now(), of
	p.took = p.explained.Sub(begun)
	return e, err == nil
}

const (
	// liveGap is the minimum interval between two explanations by live reads. liveShare is the minimum ratio of that
	// interval to the duration of an explanation, which limits a page to a tenth of the time.
	liveGap   = 2 * time.Second
	liveShare = 9
	// liveAge is the interval after which an explanation is made anew without a seen change, for ages and unwatched
	// objects.
	liveAge = 30 * time.Second
)

func (p *Page) due(of string) bool {
	passed := p.c.now().Sub(p.explained)
	if passed < max(liveGap, liveShare*p.took) {
		return false
	}
	return of != p.of || passed >= liveAge
}

// explainLive reads the objects of one namespace or node that the caches lack from the API server.
func (p *Page) explainLive(ctx context.Context) (*explain.Explanation, error) {
	var e explain.Explanation
	switch p.ref.Kind {
	case view.KindNode:
		facts := nodes.Read(ctx, p.cluster, p.ref.Name)
		if err := facts.Unknown(); err != nil {
			return nil, err
		}
		e = nodes.Explain(facts)
	case view.KindPod:
		facts, err := locks.ReadPod(ctx, p.cluster, p.ref.Namespace, p.ref.Name)
		p.shown.Exists = err == nil
		if err != nil {
			return nil, err
		}
		e = locks.ExplainPod(facts)
	default:
		facts, err := claims.ReadClaim(ctx, p.cluster, p.ref.Namespace, p.ref.Name)
		if apierrors.IsNotFound(err) {
			if facts, found := volumes.ReadDeletedClaim(ctx, p.cluster, p.ref.Namespace, p.ref.Name); found {
				e = volumes.ExplainDeletedClaim(facts, p.ref.Namespace, p.ref.Name)
				return &e, nil
			}
		}
		if err != nil {
			return nil, err
		}
		e = claims.Explain(facts)
		locks.AddLock(&e, locks.ReadClaim(ctx, p.cluster, facts.Claim))
	}
	return &e, nil
}
