package watch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"

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

	// last is the last look, with the objects that it lacked although they are not gone.
	last view.Around
	// prefix begins the IDs of changes, which no other page of the object has: a client that connects again keeps the
	// timeline. changes counts them.
	prefix  string
	changes int
	// shown is the last seen state of the object. shown.Exists says whether the last look that could read it found it.
	shown view.Object
	// podErr is the reason why the last explanation could not read the pod, nil if it could, and for other kinds.
	podErr error
	// patience is liveTimeout.
	patience time.Duration
	// explained is the end of the last live explanation, took is its duration, and of identifies its input.
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
	p := &Page{c: c, ref: ref, cancel: cancel, running: &sync.WaitGroup{},
		prefix:   "change/" + string(uuid.NewUUID()) + "/",
		patience: liveTimeout}
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
	row, has := rows(p.ref.ID())
	if !has {
		row = view.Row{ID: p.ref.ID(), Ref: p.ref, Severity: view.SeverityNone}
	}
	if explanation, made := p.explain(ctx, now); made {
		p.shown.Explanation = explanation
	}
	unread := p.unread()
	// The caches leave out most pods, so a pod also exists if its last explanation found it.
	found := now.Exists(p.ref) || p.ref.Kind == view.KindPod && p.shown.Explanation != nil && p.shown.Exists &&
		unread == nil
	if found || p.shown.ID == "" {
		p.shown.Row = row
		if e := p.shown.Explanation; e != nil && e.Decision != nil {
			p.shown.Docs = view.DocsOf(p.ref.Kind, row.Driver, e.Decision.Reason)
		}
		now.Finalizers = p.finalizers()
		p.shown.Graph = view.GraphOf(now, rows)
	}
	p.shown.Exists = found || unread != nil && p.shown.Exists
	p.shown.Unread = ""
	if unread != nil {
		p.shown.Unread = unread.Error()
	}
	return p.shown, p.timeline(now)
}

// unread returns the reason why the object could not be read, nil if it could.
func (p *Page) unread() error {
	if p.ref.Kind == view.KindPod {
		return p.podErr
	}
	_, err := p.c.has(p.ref)
	return err
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
		for i := range a.Objects {
			if o := &a.Objects[i]; o.Kind == view.KindPV || o.Kind == view.KindClaim {
				p.events.followObject(cmp.Or(o.Namespace, metav1.NamespaceDefault), o.UID)
			}
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
func (p *Page) timeline(now view.Around) []view.Entry {
	now.Keep(p.last, p.c.gone)
	all := view.Diff(p.last, now, p.c.now())
	for i := range all {
		if all[i].ID == "" {
			p.changes++
			all[i].ID = p.prefix + strconv.Itoa(p.changes)
		}
	}
	p.last = now
	events := p.events.all()
	for i := range events.Value {
		all = append(all, view.EntryOf(&events.Value[i]))
	}
	view.SortEntries(all)
	return all
}

// explain makes the explanation, unless the last one still holds or none can be made. The explanation of a PV comes
// from the caches alone.
func (p *Page) explain(ctx context.Context, a view.Around) (_ *explain.Explanation, made bool) {
	var of string
	if p.ref.Kind != view.KindPV {
		if of = inputs(a, p.events); !p.due(of) {
			return nil, false
		}
	}
	begun := p.c.now()
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	e, err := Explain(ctx, p.cluster, p.ref)
	p.explained, p.of = p.c.now(), of
	p.took = p.explained.Sub(begun)
	// A pod may be outside the caches. A failed read shows neither that it exists nor that it is gone.
	if p.ref.Kind == view.KindPod {
		p.podErr = nil
		if err == nil || apierrors.IsNotFound(err) {
			p.shown.Exists = err == nil
		} else {
			p.podErr = err
		}
	}
	return &e, err == nil
}

// inputs differs between two looks if an input of the explanation changed.
func inputs(a view.Around, e *events) string {
	var b strings.Builder
	for i := range a.Objects {
		fmt.Fprintln(&b, a.Objects[i].ID, a.Objects[i].UID, a.Objects[i].Version)
	}
	fmt.Fprintln(&b, a.More)
	for _, o := range e.all().Value {
		fmt.Fprintln(&b, o.UID, o.ResourceVersion)
	}
	return b.String()
}

const (
	// liveGap is the minimum interval between two explanations by live reads. liveShare is the minimum ratio of that
	// interval to the duration of an explanation, which limits a page to a tenth of the time.
	liveGap   = 2 * time.Second
	liveShare = 9
	// liveAge is the interval after which an explanation is made anew without a seen change, for ages and unwatched
	// objects.
	liveAge = 30 * time.Second
	// liveTimeout limits an explanation. No heartbeat is sent during it, and the page treats a stream as dead after 45
	// silent seconds (page/app/stream.js).
	liveTimeout = 20 * time.Second
)

func (p *Page) due(of string) bool {
	passed := p.c.now().Sub(p.explained)
	if passed < max(liveGap, liveShare*p.took) {
		return false
	}
	return of != p.of || passed >= liveAge
}

// Explain explains an object of a kind that has pages. Objects of one namespace or node that the caches lack are read
// from the API server.
func Explain(ctx context.Context, c explain.Cluster, ref view.Ref) (none explain.Explanation, err error) {
	switch ref.Kind {
	case view.KindPV:
		facts, err := volumes.ReadPV(ctx, c, ref.Name)
		if err != nil {
			return none, err
		}
		return volumes.ExplainPV(facts), nil
	case view.KindNode:
		facts := nodes.Read(ctx, c, ref.Name)
		if err := facts.Unknown(); err != nil {
			return none, err
		}
		return nodes.Explain(facts), nil
	case view.KindPod:
		facts, err := locks.ReadPod(ctx, c, ref.Namespace, ref.Name)
		if err != nil {
			return none, err
		}
		return locks.ExplainPod(facts), nil
	default: // a claim
		return explainClaim(ctx, c, ref.Namespace, ref.Name)
	}
}

// explainClaim explains a claim, also one that was deleted while its volume was being provisioned.
func explainClaim(ctx context.Context, c explain.Cluster, namespace, name string) (none explain.Explanation, _ error) {
	facts, err := claims.ReadClaim(ctx, c, namespace, name)
	if apierrors.IsNotFound(err) {
		if facts, found := volumes.ReadDeletedClaim(ctx, c, namespace, name); found {
			return volumes.ExplainDeletedClaim(facts, namespace, name), nil
		}
	}
	if err != nil {
		return none, err
	}
	e := claims.Explain(facts)
	locks.AddLock(&e, locks.ReadClaim(ctx, c, facts.Claim))
	return e, nil
}
