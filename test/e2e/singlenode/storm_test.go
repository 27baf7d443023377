//go:build unix

package singlenode

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// seedVariable repeats the choices of a run.
const seedVariable = "SEED"

// chance returns a source of randomness whose seed is logged, and taken from the variable SEED if that is set.
func (env *environment) chance() *rand.Rand {
	env.T.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		env.Must(err)
	}
	env.T.Logf("%s=%d", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// storm has many pods that use few claims, and people who delete the pods.
type storm struct {
	*environment
	random *rand.Rand
	claims []string
	// left is how many pods may still be created in place of others, ran which pods have run, and stopped how many pods
	// were deleted before. No more than mayStop are: how long pods wait must not decide how many run.
	left             int
	ran              map[types.UID]bool
	stopped, mayStop int
}

// testStorm creates 200 pods at once that use 20 claims, one to three each in any order. Running pods are deleted,
// evicted, or complete, some waiting pods are deleted, and some are replaced. Two replicas work at the same time, as
// after an unnoticed change of leaders, and are killed in turn.
func testStorm(env *environment) {
	const claims = 20
	pods := fixture.Size(1000, 200)
	s := &storm{environment: env, random: env.chance(), left: pods / 5, mayStop: pods / 4,
		ran: map[types.UID]bool{}}
	replicas := []*program.Program{env.Start("--leader-election=false"),
		env.Start("--leader-election=false")}
	for range claims {
		s.claims = append(s.claims, env.claim())
	}
	s.create(pods)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- killInTurn(s.Ctx, stop, replicas) }()
	s.play()
	close(stop)
	env.Must(<-stopped)
	for _, claim := range s.claims {
		env.waitFree(claim)
	}
	for _, g := range replicas {
		env.Must(g.Terminate())
	}
	env.T.Logf("%d pods have run, %d were deleted before", len(s.ran), s.stopped)
	if want := pods - s.mayStop; len(s.ran) < want {
		env.T.Errorf("%d pods have run, want at least %d", len(s.ran), want)
	}
}

// killInTurn kills one replica after the other with kill -9 and starts it again, some times or until stop. The other
// replica continues to work.
func killInTurn(ctx context.Context, stop <-chan struct{}, replicas []*program.Program) error {
	const kills = 6
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for i := range kills {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		g := replicas[i%len(replicas)]
		g.Kill()
		if err := errors.Join(g.Restart(), g.WaitReady(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// create creates pods at once.
func (s *storm) create(n int) {
	s.T.Helper()
	var users errgroup.Group
	users.SetLimit(fixture.Concurrency)
	for range n {
		claims := make([]string, 1+s.random.IntN(3))
		for i, at := range s.random.Perm(len(s.claims))[:len(claims)] {
			claims[i] = s.claims[at]
		}
		users.Go(func() error {
			pod := s.podOf("", claims...)
			pod.GenerateName = "storm-"
			_, err := s.environment.create(pod)
			return err
		})
	}
	s.Must(users.Wait())
}

// play acts on the pods until none is left, as long as it makes progress.
func (s *storm) play() {
	s.T.Helper()
	progress, before := time.Now(), -1
	for {
		pods := s.pods(anyPod)
		if len(pods) == 0 {
			return
		}
		if now := len(s.ran) + s.stopped + s.left - len(pods); now != before {
			progress, before = time.Now(), now
		}
		if time.Since(progress) > fixture.WaitTimeout {
			s.T.Fatalf("nothing happens to %d pods: %v", len(pods), s.events(pods[0].UID, ""))
		}
		var users sync.WaitGroup
		for _, pod := range pods {
			if do := s.choose(pod); do != nil {
				users.Go(do)
			}
		}
		users.Wait()
		select {
		case <-s.Ctx.Done():
			s.T.Fatal(s.Ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// choose returns an action on a pod, or nil.
func (s *storm) choose(pod *v1.Pod) func() {
	dice := s.random.IntN(100)
	remove := func() { s.tolerate(s.deletePod(pod)) }
	switch {
	case pod.DeletionTimestamp != nil:
		return nil
	case isGated(pod) && dice < 1 && s.stopped < s.mayStop:
		s.stopped++
		return remove
	case pod.Status.Phase == v1.PodSucceeded && dice < 10:
		return remove // some time after it has completed
	case !isRunning(pod) || dice < 30:
		return nil
	}
	s.ran[pod.UID] = true
	if s.left > 0 && dice%3 == 0 {
		s.left--
		s.create(1)
	}
	switch {
	case dice < 40:
		return func() { s.complete(pod) }
	case dice < 50:
		return func() { s.tolerate(s.Client.CoreV1().Pods(s.Namespace).EvictV1(s.Ctx, evictionOf(pod.Name))) }
	}
	return remove
}

// tolerate fails the test on an error, unless the pod is gone, or was bound while the API server deleted it: it deletes
// a pod without a node by force, tries again when that has changed, and the policy refuses that.
func (s *storm) tolerate(err error) {
	bound := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "csi-reclaimer-pod-force-delete")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !bound {
		s.T.Error(err)
	}
}
