//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// patience bounds one race. The reference at its defaults takes a minute for a hundred volumes.
const patience = 5 * time.Minute

// race has users delete volumes while a subject is at work, and takes the time until the last PV is gone.
type race struct {
	subject subject
	n       int
	pvFirst bool
	// faults is what the driver does meanwhile.
	faults faults.Plan
}

// outcome is what came of a race.
type outcome struct {
	names []string
	// began is when the first volume was deleted, gone when the last PV was, dropped when the last PV lost the finalizer.
	began, gone, dropped time.Time
	// calls are the DeleteVolume calls for the volumes of the race.
	calls []ledger.Call
}

func (o outcome) perSecond(end time.Time) float64 {
	return float64(len(o.names)) / end.Sub(o.began).Seconds()
}

// race runs one: volumes are made while nobody is at work, the subject is started, and begins to count once it has
// reclaimed one.
func (s *session) race(ctx context.Context, r race) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	set, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: r.n})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, set.close(ctx)) }()
	stop, err := s.atWork(ctx, r.subject)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := s.env.driver.SetFaults(ctx, r.faults); err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.env.driver.ClearFaults(context.WithoutCancel(ctx))) }()
	names := s.shuffled(set.names)
	o = outcome{names: names, began: time.Now()}
	if err := set.remove(ctx, r.pvFirst, names); err != nil {
		return o, err
	}
	if err := set.watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == r.n }); err != nil {
		return o, err
	}
	o.gone = set.watch.last(names, func(p pvTimes) time.Time { return p.gone })
	o.dropped = set.watch.last(names, func(p pvTimes) time.Time { return p.dropped })
	o.calls, err = s.env.deletions()
	if err != nil {
		return o, err
	}
	o.calls = callsFor(o.calls, set.handle)
	return o, everyVolume(o.calls, r.n)
}

// callsFor picks the calls for some volumes.
func callsFor(calls []ledger.Call, handles map[string]string) (picked []ledger.Call) {
	mine := map[string]bool{}
	for _, handle := range handles {
		mine[handle] = true
	}
	for _, call := range calls {
		if mine[call.Volume] {
			picked = append(picked, call)
		}
	}
	return picked
}

// everyVolume is an error unless n volumes were deleted: what loses volumes is not fast.
func everyVolume(calls []ledger.Call, n int) error {
	deleted := map[string]bool{}
	for _, call := range calls {
		if call.Code == "OK" {
			deleted[call.Volume] = true
		}
	}
	if len(deleted) != n {
		return fmt.Errorf("%d of %d volumes were deleted", len(deleted), n)
	}
	return nil
}

// atWork starts a subject and returns once it has reclaimed a volume, so that its caches are filled. stop ends it.
func (s *session) atWork(ctx context.Context, subject subject) (stop func() error, err error) {
	canary, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: 1, name: "canary"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, canary.close(ctx)) }()
	program, err := s.env.start(ctx, subject)
	if err != nil {
		return nil, err
	}
	err = canary.remove(ctx, true, canary.names)
	if err == nil {
		err = canary.watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == 1 })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for %s to reclaim a volume: %w\n%s", subject.column, err,
			program.LogTail(10)), program.Stop())
	}
	return program.Stop, nil
}

// limit takes the time that API server and controller manager take where nobody has a finalizer on the PVs; claim
// first, the users delete each PV as soon as it is Released.
func (s *session) limit(ctx context.Context, n int, pvFirst bool) (perSecond float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	set, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: n, unprotected: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, set.close(ctx)) }()
	released := make(chan string, n)
	if !pvFirst {
		set.watch.mu.Lock()
		set.watch.onReleased = func(name string) { released <- name }
		set.watch.mu.Unlock()
	}
	names := s.shuffled(set.names)
	began := time.Now()
	deleted := make(chan error, 1)
	go func() { deleted <- set.remove(ctx, pvFirst, names) }()
	if !pvFirst {
		if err := s.env.each(ctx, n, func(ctx context.Context, client kubernetes.Interface, _ int) error {
			select {
			case name := <-released:
				return client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}); err != nil {
			return 0, errors.Join(err, <-deleted)
		}
	}
	if err := <-deleted; err != nil {
		return 0, err
	}
	if err := set.watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == n }); err != nil {
		return 0, err
	}
	end := set.watch.last(names, func(p pvTimes) time.Time { return p.gone })
	return float64(n) / end.Sub(began).Seconds(), nil
}
