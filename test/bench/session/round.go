//go:build unix

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

// Patience bounds one run. The reference at its defaults takes a minute for a hundred volumes.
const Patience = 5 * time.Minute

// Orders are the two in which users delete: the endings of figures' names.
func Orders() []string { return []string{PVFirst, ClaimFirst} }

const (
	PVFirst    = "pv_first"
	ClaimFirst = "claim_first"
)

// afterTakeover is how long after its start ours reads claim and PV before it provisions a claim. Until then the claim
// may be older than ours' hold of the in-flight log, by clocks that differ by 5 seconds and show whole ones.
const afterTakeover = 7 * time.Second

// WithSubject starts a subject, calls do once it has made and deleted a volume, so that its caches are filled, and
// afterTakeover has passed, and ends it.
func (s *Session) WithSubject(ctx context.Context, sub subject.Subject,
	do func(context.Context, subject.Running) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	program, err := s.Env.Start(ctx, sub)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	if _, err := s.Round(ctx, 1, PVFirst, false); err != nil {
		return fmt.Errorf("wait for %s to make and delete a volume: %w\n%s", sub.Column, err, program.LogTail(10))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(afterTakeover):
	}
	return do(ctx, program)
}

// Round is a number of claims that users make and delete.
type Round struct {
	Claims
	// Deleted is when the first claim or PV was deleted, gone when the last PV was gone, and ended, with an audit log,
	// when the API server received no more requests.
	Deleted, Gone, Ended time.Time
	// Calls are the DeleteVolume calls for the volumes.
	Calls []ledger.Call
}

// Round has users make and delete n claims in an order. alone, no subject is at work, and they make the PVs too.
func (s *Session) Round(ctx context.Context, n int, order string, alone bool) (r Round, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	watch, err := Track(ctx, s.Env.Users[0])
	if err != nil {
		return r, err
	}
	defer watch.Close()
	var then afterClaim
	if alone {
		then = MakePV(false)
	}
	if r.Claims, err = s.Env.BindClaims(ctx, n, then); err != nil {
		return r, err
	}
	if err := errors.Join(s.Env.WaitSettled(ctx), s.Env.Quiet(ctx)); err != nil {
		return r, err
	}
	names := s.Shuffled(r.Names())
	r.Deleted = time.Now()
	if alone && order == ClaimFirst {
		err = s.Env.removeReleased(ctx, r.Claims, names, watch)
	} else {
		err = s.Env.Remove(ctx, r.Claims, names, order == PVFirst)
	}
	if err != nil {
		return r, err
	}
	if err := watch.Wait(ctx, "gone", func(t *Tracker) bool { return t.Gone == n }); err != nil {
		return r, err
	}
	_, r.Gone = watch.Span(r.Pvs(), func(p PvTimes) time.Time { return p.Gone })
	err = s.Env.Quiet(ctx)
	r.Ended = time.Now()
	if alone || err != nil {
		return r, err
	}
	calls, err := s.Env.Deletions()
	if err != nil {
		return r, err
	}
	r.Calls = CallsFor(calls, watch.Handles(r.Pvs()))
	return r, EveryVolume(r.Calls, n)
}
