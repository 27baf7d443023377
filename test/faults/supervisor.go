//go:build unix

package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// again is how long a program that ended by itself waits for its next start.
const again = 200 * time.Millisecond

// forever ends the life of a process that still runs.
const forever = 1000 * time.Hour

// supervisor starts a sidecar again whenever it ends, as a kubelet does, and remembers when it lived. Its methods may
// be called from any goroutine.
type supervisor struct {
	car  *program.Program
	note func(format string, args ...any)

	mu     sync.Mutex
	wanted bool
	// staysDown means that a crash is not followed by a start.
	staysDown bool
	lives     []oracle.Process
	killed    time.Time // when the present process was killed; zero while it was not
	crashes   int
	// again is closed, and replaced, when a process has begun.
	began chan struct{}
}

// supervise takes over a sidecar that was started after began, until ctx ends.
func supervise(ctx context.Context, car *program.Program, began time.Time, note func(string, ...any)) (_ *supervisor,
	wait func()) {
	k := &supervisor{car: car, note: note, wanted: true, began: make(chan struct{})}
	k.live(began)
	var following sync.WaitGroup
	following.Go(func() { k.follow(ctx) })
	return k, following.Wait
}

func (k *supervisor) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.car.Done():
		}
		k.ended()
		if !k.again(ctx) {
			return
		}
	}
}

// ended notes the end of a process.
func (k *supervisor) ended() {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := &k.lives[len(k.lives)-1]
	if k.killed.IsZero() {
		last.To = time.Now()
		k.note("the sidecar ended by itself: %v: %s", k.car.Err(), strings.TrimSpace(k.car.LogTail(1)))
	} else {
		last.To = k.killed
	}
}

// again starts the next process once it is wanted.
func (k *supervisor) again(ctx context.Context) bool {
	for {
		k.mu.Lock()
		wanted, began, byItself := k.wanted, k.began, k.killed.IsZero()
		k.mu.Unlock()
		if wanted {
			if byItself {
				select {
				case <-ctx.Done():
					return false
				case <-time.After(again):
				}
			}
			return k.start()
		}
		select {
		case <-ctx.Done():
			return false
		case <-began:
		}
	}
}

func (k *supervisor) start() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	began := time.Now()
	if err := k.car.Restart(); err != nil {
		k.note("the sidecar cannot be started: %v", err)
		return false
	}
	k.killed = time.Time{}
	k.live(began)
	k.note("a sidecar begins")
	return true
}

// live notes the life of the present process.
func (k *supervisor) live(began time.Time) {
	k.lives = append(k.lives, oracle.Process{Span: oracle.Span{From: began, To: time.Now().Add(forever)},
		PID: k.car.PID()})
}

// crash kills the sidecar; it is started again at once, unless it is to stay down.
func (k *supervisor) crash() {
	k.mu.Lock()
	again := !k.staysDown
	k.mu.Unlock()
	k.kill(again)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crashes++
}

// kill ends the sidecar as kill -9 does.
func (k *supervisor) kill(startAgain bool) {
	k.mu.Lock()
	k.wanted = startAgain
	if k.killed.IsZero() {
		k.killed = time.Now()
	}
	k.note("the sidecar is killed")
	k.mu.Unlock()
	k.car.Kill()
}

// stayDown has a sidecar that crashes be down until it is wanted.
func (k *supervisor) stayDown() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.staysDown = true
}

// want has the sidecar run again after kill, or a crash after which it stayed down.
func (k *supervisor) want() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted, k.staysDown = true, false
	close(k.began)
	k.began = make(chan struct{})
}

// waitCrashes returns once the sidecar has crashed so many times and runs again.
func (k *supervisor) waitCrashes(ctx context.Context, n int) error {
	return until(ctx, fmt.Sprintf("%d crashes", n), func() (bool, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.crashes >= n && len(k.lives) > k.crashes && k.killed.IsZero(), nil
	})
}

// waitDown returns once the sidecar has crashed so many times and is down.
func (k *supervisor) waitDown(ctx context.Context, n int) error {
	return until(ctx, fmt.Sprintf("the sidecar to be down after %d crashes", n), func() (bool, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.crashes >= n && !k.wanted, nil
	})
}

// waitReady returns once the sidecar is ready, whichever process it is by then.
func (k *supervisor) waitReady(ctx context.Context) error {
	return until(ctx, "a sidecar that is ready", func() (bool, error) {
		_, err := k.car.Get(ctx, "/readyz")
		return err == nil, nil
	})
}

func (k *supervisor) history() (lives []oracle.Process, crashes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(lives, k.lives...), k.crashes
}

// driverSupervisor starts a driver again whenever it ends.
type driverSupervisor struct {
	*mockdriver.Driver
	note func(format string, args ...any)

	mu     sync.Mutex
	wanted bool
}

// follow keeps the driver until ctx ends.
func (k *driverSupervisor) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.Done():
		}
		k.mu.Lock()
		if k.wanted {
			k.note("the driver begins again: %v", k.Restart(ctx))
		}
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollEvery):
		}
	}
}

func (k *driverSupervisor) kill() {
	k.mu.Lock()
	k.wanted = false
	k.mu.Unlock()
	k.Kill()
}

func (k *driverSupervisor) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = true
}

// plan sets the driver's faults. It retries while the driver ends or starts. A killed driver has no faults, and takes
// none.
func (k *driverSupervisor) plan(ctx context.Context, plan faults.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	err := until(ctx, "the driver to take faults", func() (bool, error) {
		k.mu.Lock()
		wanted := k.wanted
		k.mu.Unlock()
		if last = k.SetFaults(ctx, plan); last != nil && !wanted {
			k.note("too late: %v", last)
			return true, nil
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// pollEvery is how often something is polled that has no watch.
const pollEvery = 20 * time.Millisecond

// until returns once done says so or fails.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-time.After(pollEvery):
		}
	}
}
