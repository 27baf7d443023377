package inflight

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// owning is the change that a write makes to the owner of a shard, or of the Lease with the chunks.
type owning uint8

const (
	ownLeave owning = iota // unchanged
	ownNone                // the Lease holds entries or chunks, which garbage collection must not remove
	ownSet                 // the Lease is empty, and is deleted with its owner
)

// ownerOf is a pure function that decides the owner of a Lease with so many entries or chunks. managed means that the
// log has one shard and a Config.Owner, and known that the owner is known.
func ownerOf(managed bool, content int, known bool) owning {
	switch {
	case !managed:
		return ownLeave
	case content > 0:
		return ownNone
	case known:
		return ownSet
	}
	return ownLeave
}

// setOwner sets the owner of a Lease that is about to be updated. A Lease is created without an owner, because an API
// server that lets a process create a Lease with an owner may still refuse to let it remove the owner.
func (l *Log) setOwner(lease *coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	managed := l.cfg.Owner != nil && len(l.shards) == 1
	switch ownerOf(managed, len(view{lease: lease}.content()), l.owner != nil) {
	case ownNone:
		lease.OwnerReferences = nil
	case ownSet:
		lease.OwnerReferences = []metav1.OwnerReference{*l.owner}
	default:
	}
}

func (l *Log) findOwner(ctx context.Context) {
	if l.cfg.Owner == nil {
		return
	}
	ctx, end := l.call(ctx, callTimeout, errSlow)
	defer end()
	owner := l.cfg.Owner(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = owner
}

// disown reports whether an update with an owner was refused and may be sent again without one. The admission plugin
// OwnerReferencesPermissionEnforcement requires the permission to delete the Lease.
func (l *Log) disown(ctx context.Context, lease *coordinationv1.Lease, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !errors.Is(err, ErrForbidden) || l.owner == nil || len(lease.OwnerReferences) == 0 {
		return false
	}
	l.owner = nil
	klog.FromContext(ctx).Info("The Lease of the in-flight log may not have an owner, so it stays when that is deleted",
		"lease", klog.KObj(lease), "err", err)
	return true
}
