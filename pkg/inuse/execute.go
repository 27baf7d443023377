package inuse

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// work decides on one object and carries the decision out.
func (g *Guard) work(ctx context.Context, key string) controller.Next {
	now := g.cfg.Clock.Now()
	var duty Duty
	o, d, found := g.kind.Decide(key, func(o Object) Duty {
		duty = g.notes.duty(o, now)
		return duty
	})
	if !found {
		return controller.Next{}
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("kind", g.name, "object", key, "UID", o.UID))
	klog.FromContext(ctx).V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
	if !d.due() {
		g.notes.notDue(o.UID)
	}
	switch d.Action {
	case Wait:
		return g.wait(ctx, o, d)
	case ReadUsers:
		g.reports.now(ctx, o, ReasonAsking, "")
		g.kind.Ask(o)
		return controller.Next{}
	case AddFinalizer, DropFinalizer:
	}
	if !duty.Alone {
		g.proveAlone(ctx)
	}
	if g.cfg.DryRun {
		g.reports.now(ctx, o, ReasonDryRun, "Would do "+d.Action.String()+": "+d.Reason.Sentence())
		return controller.Next{}
	}
	return g.write(ctx, o, d)
}

// proveAlone notes that a need was left unanswered; whatever else waited for others waits no more.
func (g *Guard) proveAlone(ctx context.Context) {
	if g.notes.alone() {
		klog.FromContext(ctx).Info("Nobody else does this work; doing it", "patience", g.cfg.Patience)
		for _, key := range g.kind.Keys() {
			g.Wake(key)
		}
	}
}

func (g *Guard) wait(ctx context.Context, o Object, d Decision) controller.Next {
	g.reports.now(ctx, o, d.Reason, d.Detail)
	if !d.Timed {
		return controller.Next{}
	}
	if d.Reason == ReasonLeftToBuiltIn {
		if left := g.notes.due(o.UID, g.cfg.Clock.Now()); left > 0 {
			return After(left)
		}
	}
	return g.cfg.Retry()
}

// write carries out AddFinalizer or DropFinalizer.
func (g *Guard) write(ctx context.Context, o Object, d Decision) controller.Next {
	err := g.send(ctx, o, d.Action)
	if err == nil {
		g.metrics.wrote(d.Action)
		g.reports.now(ctx, o, d.Reason, "")
		klog.FromContext(ctx).V(4).Info("Wrote", "action", d.Action, "reason", d.Reason)
		return controller.Next{}
	}
	return g.afterTrouble(ctx, o, err)
}

// send makes a write that is noted as ours.
func (g *Guard) send(ctx context.Context, o Object, a Action) error {
	g.notes.begin(o.UID, a)
	err := g.patch(ctx, o, a)
	g.notes.end(o.UID, a, outcomeOf(err))
	return err
}

func (g *Guard) patch(ctx context.Context, o Object, a Action) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	after, err := g.kind.Patch(ctx, o, a)
	if err == nil && after.Protected != (a == AddFinalizer) {
		err = fmt.Errorf("%s of %s %q: %w", a, g.name, o.Key(), errUndone)
	}
	return err
}

// errUndone: an admission policy or webhook undoes the write in itself.
var errUndone = errors.New("the API server took the change and undid it: look for an admission policy or webhook that does")

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return taken
	case errors.Is(err, kube.ErrGone), errors.Is(err, kube.ErrChanged), errors.Is(err, errUndone):
		return refused
	}
	return lost
}

func (g *Guard) afterTrouble(ctx context.Context, o Object, err error) controller.Next {
	switch {
	case ctx.Err() != nil: // the lease or the program ended: the next leader goes on
		return controller.Next{}
	case errors.Is(err, kube.ErrGone):
		return controller.Next{}
	case errors.Is(err, kube.ErrChanged):
		// The change's own event wakes the object, the delay is for the case that it came before
		// the answer.
		return soon()
	}
	g.reports.now(ctx, o, ReasonUnwritable, err.Error())
	return g.cfg.Retry()
}

// Patch returns the write that carries out AddFinalizer or DropFinalizer. Either holds only if the
// object still is as it was read.
func Patch(o Object, a Action, finalizer string) kube.FinalizerPatch {
	p := kube.FinalizerPatch{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
	if a == AddFinalizer {
		p.Add = []string{finalizer}
	} else {
		p.Drop = []string{finalizer}
	}
	return p
}
