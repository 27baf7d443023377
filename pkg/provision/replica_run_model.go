//go:build model

package provision

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Fresh returns a process that has just been started.
func (m *Machine) Fresh() *Replica {
	if n := len(m.idle); n > 0 {
		r := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return r
	}
	n := len(m.names)
	r := &Replica{
		Machine: m, seen: make([]ClaimView, n), pv: make([]PVView, n), hands: make([]hand, n),
		Woken: make([]bool, n), Again: make([]bool, n), Asked: make([]bool, n), AskedAgain: make([]bool, n),
		inProgress: make([]ClaimView, n), syncing: make([]ClaimView, n), unknown: make([]bool, n),
	}
	p := &r.p
	p.cfg, p.names, p.orders, p.protects, p.reports, p.metrics = m.parts.cfg, m.parts.names, m.parts.orders, m.parts.protects, m.parts.reports, m.parts.metrics
	p.cluster, p.driver, p.clean, p.toLibrary = r, r, cleanQueue{r}, libraryQueue{r}
	p.watches = watches{claims: &claims{claimCache: seenClaims{r}, names: map[types.UID]string{}}, volumes: seenPVs{r}, classes: cached{objects: seenClass{r: r}}}
	for i, uid := range m.uids {
		p.claims.names[uid] = "ns/" + m.names[i]
	}
	r.forgetAll()
	return r
}

// Release gives a Replica back that is not looked at any more.
func (m *Machine) Release(r *Replica) {
	clear(r.seen)
	clear(r.pv)
	clear(r.hands)
	clear(r.Woken)
	clear(r.Again)
	clear(r.Asked)
	clear(r.AskedAgain)
	clear(r.inProgress)
	clear(r.syncing)
	clear(r.unknown)
	r.class, r.leads = false, false
	r.forgetAll()
	m.idle = append(m.idle, r)
}

func (r *Replica) forgetAll() {
	p := &r.p
	p.lives, p.early, p.shelf, p.hands, p.bids = newLives(), newLives(), newShelf(), newHands(), newBids()
	p.awake.Store(false)
	p.ended.Clear()
}

// cleanQueue is our loop's queue, libraryQueue the library's.
type cleanQueue struct{ r *Replica }

func (q cleanQueue) Add(k key)         { q.r.Woken[q.r.claimOf(k.uid)] = true }
func (cleanQueue) Run(context.Context) {}
func (cleanQueue) Stop()               {}

type libraryQueue struct{ r *Replica }

func (q libraryQueue) OnAdd(object any, _ bool) {
	claim, _ := object.(*v1.PersistentVolumeClaim)
	q.r.Asked[q.r.claimOf(claim.UID)] = true
}
func (q libraryQueue) OnUpdate(_, now any) { q.OnAdd(now, false) }
func (libraryQueue) OnDelete(any)          {}

// cached is a watch cache of what the Replica has seen.
type cached struct {
	cache.SharedIndexInformer
	objects cache.Indexer
}

func (c cached) GetStore() cache.Store     { return c.objects }
func (c cached) GetIndexer() cache.Indexer { return c.objects }

type seenClaims struct{ r *Replica }

func (s seenClaims) Get(name string) (*v1.PersistentVolumeClaim, bool) {
	for i, c := range s.r.seen {
		if c.Version != 0 && "ns/"+s.r.names[i] == name {
			return s.r.cachedClaim(i, c), true
		}
	}
	return nil, false
}

func (s seenClaims) Each(visit func(*v1.PersistentVolumeClaim)) {
	for i, c := range s.r.seen {
		if c.Version != 0 {
			visit(s.r.cachedClaim(i, c))
		}
	}
}

func (seenClaims) Synced() bool        { return true }
func (seenClaims) Run(context.Context) {}

type seenPVs struct{ r *Replica }

func (s seenPVs) Get(name string) (reclaim.PV, bool) {
	if len(name) != len("pvc-u0") {
		return reclaim.PV{}, false
	}
	return s.r.cachedPV(pvShown{s.r.nameOf(name), s.r.pv[s.r.nameOf(name)]})
}

// Shared looks for PVs of a volume, whose id is the name of the PV that is made of it.
func (s seenPVs) Shared(handle, except string) bool {
	_, found := s.Get(handle)
	return found && handle != except
}

func (seenPVs) Follow(func(reclaim.PV)) {}
func (seenPVs) Synced() bool            { return true }

type seenClass struct {
	cache.Indexer
	r *Replica
}

func (s seenClass) GetByKey(string) (any, bool, error) {
	if !s.r.class {
		return (*storagev1.StorageClass)(nil), false, nil
	}
	return modelClass, true, nil
}

// Lead makes the process the one that acts.
func (r *Replica) Lead() {
	r.leads = true
	r.p.awake.Store(true)
	r.p.wakeAll()
}

// Leads tells whether it acts.
func (r *Replica) Leads() bool { return r.leads }

// SeenClaim returns the claim as the cache shows it.
func (r *Replica) SeenClaim(i int) ClaimView { return r.seen[i] }

// SeeClaim has the watch show a claim.
func (r *Replica) SeeClaim(i int, now ClaimView) {
	before := r.cachedClaim(i, r.seen[i])
	r.seen[i] = now
	r.p.claimChanged(before, r.cachedClaim(i, now))
}

// LoseClaim has the watch tell of a claim's end, and its last state.
func (r *Replica) LoseClaim(i int, last ClaimView) {
	r.seen[i] = ClaimView{}
	r.p.claimChanged(r.cachedClaim(i, last), nil)
}

// SeePV has the watch show what has become of a PV.
func (r *Replica) SeePV(name int, now PVView) {
	before := r.pv[name]
	r.pv[name] = now
	was, existed := r.cachedPV(pvShown{name, before})
	is, exists := r.cachedPV(pvShown{name, now})
	switch {
	case !existed && exists:
		r.p.volumeChanged(is)
	case existed && !exists:
		r.p.volumeChanged(was)
	}
}

// SeeClass has the watch tell that the StorageClass came or went.
func (r *Replica) SeeClass(there bool) {
	r.class = there
	r.p.wakeAll()
}

// Busy tells whether a worker has the claim in hand.
func (r *Replica) Busy(i int) bool { return r.hands[i].w != nil }

// Asks returns what is asked for the claim in hand.
func (r *Replica) Asks(i int) Ask {
	ask := r.hands[i].ask
	ask.Reason = r.hands[i].d.Reason
	return ask
}

// ToldUnknown tells whether the claim's run that ended in this move told that it is not known what is
// left of it. A Replica that is decoded has forgotten it.
func (r *Replica) ToldUnknown(i int) bool { return r.unknown[i] }

// Begin has a worker of our own loop take a claim. It goes on until something is asked.
func (r *Replica) Begin(i int) {
	r.Woken[i], r.Again[i] = false, false
	claim := r.p.lastKnown(r.key(i))
	if claim == nil {
		return
	}
	r.decide(i, &run{Provisioner: &r.p, claim: claim, life: r.p.lives.get(r.key(i))}, ofLoop)
}

// Answer goes on with the claim in hand.
func (r *Replica) Answer(i int, reply Reply) {
	r.hands[i].given = append(r.hands[i].given, reply)
	r.carryOn(i)
}

// decide takes a run's next step.
func (r *Replica) decide(i int, w *run, from origin) {
	d := w.next(r.ctx)
	r.hands[i] = hand{w: w, d: d, from: from}
	if d.Action == Wait {
		r.end(i, nil)
		return
	}
	r.carryOn(i)
}

// carryOn carries out the step in hand as far as there are answers.
func (r *Replica) carryOn(i int) {
	h := &r.hands[i]
	over, err := r.attempt(h)
	switch {
	case !over:
	case err != nil || h.d.last():
		r.end(i, err)
	default:
		r.decide(i, h.w, h.from)
	}
}

// attempt carries out a step, or finds what it asks: then all is as before the step.
func (r *Replica) attempt(h *hand) (over bool, err error) {
	life, facts, asked := *h.w.life, h.w.facts, h.w.asked
	r.answers = answers{given: h.given}
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case unanswered{}:
			*h.w.life, h.w.facts, h.w.asked = life, facts, asked
			h.ask, over = r.answers.asked, false
		default:
			panic(cause)
		}
	}()
	err = h.w.act(r.ctx, h.d)
	return true, err
}

// end ends the run in hand.
func (r *Replica) end(i int, err error) {
	h := r.hands[i]
	r.hands[i] = hand{}
	switch h.from {
	case ofLoop:
		r.unknown[i] = err == nil && h.d.Reason == ReasonOutcomeUnknown
		r.Again[i] = h.w.tidied(r.ctx, h.d, err).Backoff.Max != 0
		h.w.leaveName()
	case ofShouldProvision:
		r.should(i, h.w, h.w.unprotected(r.ctx, err))
	case ofProvision:
		_, state, err := h.w.provisioned(h.d, err)
		h.w.leaveName()
		r.answered(i, state, err)
	}
}

// Age makes the live read of the claim in hand too old.
func (r *Replica) Age(i int) (aged bool) {
	f := &r.hands[i].w.facts
	old := r.p.cfg.Clock.Now().Add(-2 * liveFor)
	if f.PVRead.After(old) {
		f.PVRead, aged = old, true
	}
	return aged
}

// Waits tells whether a claim has to wait before its next try.
func (r *Replica) Waits(i int) bool { return r.p.lives.due(r.uid(i), r.p.cfg.Clock.Now()) > 0 }

// PassTime has the wait be over.
func (r *Replica) PassTime(i int) {
	again := r.p.lives.again[r.uid(i)]
	again.not = r.p.cfg.Clock.Now()
	r.p.lives.again[r.uid(i)] = again
}

// What follows plays the library, as its ProvisionController does.

// Syncing tells whether a worker of the library has a claim in hand.
func (r *Replica) Syncing(i int) bool { return r.syncing[i].Version != 0 }

// Sync has a worker of the library take a claim, and ask ShouldProvision for it.
func (r *Replica) Sync(i int) {
	r.Asked[i] = false
	r.syncing[i] = r.seen[i]
	if !r.Syncing(i) {
		r.syncing[i] = r.inProgress[i]
	}
	claim := r.claim(i, r.syncing[i])
	if claim == nil {
		return
	}
	if claim.Spec.VolumeName != "" || !(library{&r.p}).ready(claim) {
		r.leave(i)
		return
	}
	w := &run{Provisioner: &r.p, claim: claim, life: r.p.lives.get(r.key(i)), wanted: &wanted{class: r.p.classOf(claim)}}
	d, err := w.qualify(r.ctx)
	if err == nil && d.Action == Protect {
		r.hands[i] = hand{w: w, d: d, from: ofShouldProvision}
		r.carryOn(i)
		return
	}
	r.should(i, w, err != nil || w.leftToProvision(d))
}

// should goes on with the answer of ShouldProvision.
func (r *Replica) should(i int, w *run, should bool) {
	w.leaveName()
	switch {
	case !should:
		r.leave(i)
	case !r.class:
		r.syncing[i], r.AskedAgain[i] = ClaimView{}, true
	}
}

// Qualified tells whether the library is about to call Provision for a claim.
func (r *Replica) Qualified(i int) bool {
	return r.Syncing(i) && (!r.Busy(i) || r.hands[i].from == ofLoop)
}

// Provision has the library call Provision, where its store shows no PV.
func (r *Replica) Provision(i int) {
	claim := r.claim(i, r.syncing[i])
	_, exists, _ := volumeStore{p: &r.p}.GetByKey("pvc-" + string(claim.UID))
	switch {
	case exists:
		r.leave(i)
	case !r.class:
		r.answered(i, controller.ProvisioningFinished, errBroken)
	default:
		w := library{&r.p}.provision(r.p.lives.get(r.key(i)), controller.ProvisionOptions{PVC: claim, StorageClass: modelClass})
		r.decide(i, w, ofProvision)
	}
}

// answered does what the library does after Provision.
func (r *Replica) answered(i int, state controller.ProvisioningState, err error) {
	//nolint:errorlint // as the library does
	if _, ignored := err.(*controller.IgnoredError); ignored || err == nil {
		r.leave(i)
		return
	}
	switch state {
	case controller.ProvisioningFinished:
		r.inProgress[i] = ClaimView{}
	case controller.ProvisioningInBackground:
		r.inProgress[i] = r.syncing[i]
	default:
	}
	r.syncing[i], r.AskedAgain[i] = ClaimView{}, true
}

// leave has the library forget a claim until it is told of it again.
func (r *Replica) leave(i int) { r.inProgress[i], r.syncing[i] = ClaimView{}, ClaimView{} }
