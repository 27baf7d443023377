package podsafety

import (
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func (w *world) list(context.Context) ([]volumeLock, error) {
	locks := slices.Collect(maps.Values(w.locked))
	if w.onList != nil {
		w.onList()
	}
	return locks, w.call("list locks")
}

func (w *world) put(_ context.Context, l volumeLock) (volumeLock, error) {
	what := "update lock"
	if l.object == "" {
		what = "create lock"
	}
	if err := w.call("%s", what); err != nil {
		return volumeLock{}, err
	}
	stored, exists := w.locked[l.node]
	gr := schema.GroupResource{Group: lockGroup, Resource: lockResource}
	switch {
	case l.object == "" && exists:
		return volumeLock{}, apierrors.NewAlreadyExists(gr, l.node)
	case l.object != "" && !exists:
		return volumeLock{}, apierrors.NewNotFound(gr, l.node)
	case l.version != stored.version:
		return volumeLock{}, apierrors.NewConflict(gr, l.node, nil)
	}
	l.object, l.version = "lock-of-"+types.UID(l.node), l.version+"1"
	l.volumes = maps.Clone(l.volumes)
	w.locked[l.node] = l
	return l, nil
}

func (w *world) delete(_ context.Context, l volumeLock) error {
	if err := w.call("delete lock"); err != nil {
		return err
	}
	if l.version != w.locked[l.node].version {
		return apierrors.NewConflict(schema.GroupResource{Group: lockGroup, Resource: lockResource}, l.node, nil)
	}
	delete(w.locked, l.node)
	return nil
}
