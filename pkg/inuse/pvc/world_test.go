package pvc

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

// world is an API server with pods that accepts writes and keeps a diary. The test plays the watches by hand.
type world struct {
	*Protector

	mu     sync.Mutex
	shown  map[string]*Claim
	pods   []Pod
	fail   error
	diary  []string
	listed chan struct{} // if set, a list waits for it
	events *record.FakeRecorder
	// decided counts the decisions on each claim, if it is not nil.
	decided map[string]int
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diary = append(w.diary, what)
}

func (w *world) listPods(context.Context, string) ([]Pod, error) {
	w.note("list")
	if w.listed != nil {
		<-w.listed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods, w.fail
}

func (w *world) listClaims(context.Context) ([]inuse.Held, error) {
	w.note("list claims")
	return nil, w.fail
}

func (w *world) patch(_ context.Context, o inuse.Object, a inuse.Action) (inuse.Object, error) {
	w.note(a.String() + " " + o.Name)
	o.Protected = a == inuse.AddFinalizer
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.shown, o.Key())
	return o, nil
}

func (w *world) Get(key string) (*Claim, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, found := w.shown[key]
	return c, found
}

func (w *world) Each(visit func(*Claim)) {
	w.mu.Lock()
	all := make([]*Claim, 0, len(w.shown))
	for _, c := range w.shown {
		all = append(all, c)
	}
	w.mu.Unlock()
	for _, c := range all {
		visit(c)
	}
}

// run has a Protector work on a world until the test ends. It has enqueued all claims that were there at its start.
// After a millisecond, it is proven to be alone.
func run(t *testing.T, prepare func(*world)) *world {
	t.Helper()
	w := &world{shown: map[string]*Claim{}, events: record.NewFakeRecorder(1000)}
	var err error
	w.Protector, err = New(&rest.Config{Host: "http://127.0.0.1:1"}, Config{Config: inuse.Config{
		Mode: inuse.ModeFull, Patience: time.Millisecond, Settings: controllers.Settings{Events: w.events,
			RetryStart: 10 * time.Millisecond, RetryMax: 20 * time.Millisecond}}})
	if err != nil {
		t.Fatal(err)
	}
	w.claims, w.cluster = w, w
	prepare(w)
	w.Stop()
	c := counting{kind: kind{w.Protector}, begun: make(chan struct{}), once: &sync.Once{}}
	must.OK(t, w.guard(c))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-c.begun
	return w
}

// counting counts the decisions, and closes begun at the first look for all claims, which is the guard's start.
type counting struct {
	kind
	begun chan struct{}
	once  *sync.Once
}

func (c counting) Keys() []string {
	keys := c.kind.Keys()
	c.once.Do(func() { close(c.begun) })
	return keys
}

func (c counting) Decide(key string, duty func(inuse.Object) inuse.Duty) (inuse.Object, inuse.Decision, bool) {
	if w, is := c.claims.(*world); is {
		w.mu.Lock()
		if w.decided != nil {
			w.decided[key]++
		}
		w.mu.Unlock()
	}
	return c.kind.Decide(key, duty)
}

// delete has the watch show that a claim is being deleted.
func (w *world) delete(name string) {
	c := claim(types.UID(name))
	c.Name = name
	w.mu.Lock()
	w.shown[c.Key()] = &c
	w.mu.Unlock()
	claimChanges{w.Protector}.Added(&c)
}

func (w *world) diaryNow() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.diary)
}

// await waits until the diary has the entry.
func (w *world) await(t *testing.T, entry string) {
	t.Helper()
	w.until(t, entry, func(diary []string) bool { return slices.Contains(diary, entry) })
}

// until waits until the diary satisfies the condition.
func (w *world) until(t *testing.T, what string, is func(diary []string) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(w.diaryNow()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %q", what, w.diaryNow())
		}
	}
}

func web(phase v1.PodPhase) *Pod {
	pod := apiPod()
	pod.Status.Phase = phase
	p := PodOf(pod)
	return &p
}

func TestClaimIsReleasedAfterItsLastPod(t *testing.T) {
	another := web(v1.PodRunning)
	another.UID, another.Claims = "later", nil
	for sentence, end := range map[string]func(podChanges){
		"it is deleted":                    func(c podChanges) { c.Deleted(web(v1.PodRunning), true) },
		"it ends":                          func(c podChanges) { c.Updated(web(v1.PodRunning), web(v1.PodSucceeded)) },
		"another pod of the name is there": func(c podChanges) { c.Updated(web(v1.PodRunning), another) },
	} {
		t.Run(sentence, func(t *testing.T) {
			w := run(t, func(*world) {})
			pods := podChanges{w.Protector}
			pods.Added(web(v1.PodRunning))
			w.delete("idle")
			w.await(t, "RemoveFinalizer idle")
			w.delete("data")
			w.until(t, "an Event", func([]string) bool { return len(w.events.Events) > 0 })
			if reported := <-w.events.Events; !strings.Contains(reported, string(inuse.ReasonInUse)) {
				t.Fatalf("reported %q", reported)
			}
			// From here on, only the pod enqueues the claim.
			pods.Updated(web(v1.PodPending), web(v1.PodRunning)) // an irrelevant change
			end(pods)
			w.await(t, "RemoveFinalizer data")
			got := w.diaryNow()
			writes := slices.DeleteFunc(slices.Clone(got), func(did string) bool { return did == "list" })
			if got[0] != "list" || !slices.Equal(writes, []string{"RemoveFinalizer idle", "RemoveFinalizer data"}) {
				t.Errorf("diary %q", got)
			}
		})
	}
}

func TestFailedListMeansInUse(t *testing.T) {
	w := run(t, func(w *world) { w.fail = errors.New("forbidden") })
	w.delete("data")
	w.until(t, "three attempts", func(diary []string) bool { return len(diary) >= 3 })
	if got := w.diaryNow(); slices.Contains(got, "RemoveFinalizer data") {
		t.Errorf("released although nobody knows who uses it: %q", got)
	}
	w.mu.Lock()
	w.fail = nil
	w.mu.Unlock()
	w.await(t, "RemoveFinalizer data")
}

func TestPodSeenOnlyByList(t *testing.T) {
	w := run(t, func(w *world) { w.pods = []Pod{*web(v1.PodRunning)} })
	w.delete("data")
	w.delete("idle")
	w.await(t, "RemoveFinalizer idle")
	if slices.Contains(w.diaryNow(), "RemoveFinalizer data") {
		t.Error("released while a pod uses it")
	}
	// The watch shows the pod late, and then its deletion.
	pods := podChanges{w.Protector}
	pods.Added(web(v1.PodRunning))
	w.mu.Lock()
	w.pods = nil
	w.mu.Unlock()
	w.batches.forget("data")
	pods.Deleted(web(v1.PodRunning), true)
	w.await(t, "RemoveFinalizer data")
}

func TestManyClaimsShareLists(t *testing.T) {
	const many = 500
	w := run(t, func(w *world) { w.listed = make(chan struct{}) })
	for i := range many {
		w.delete(string(asks(i).uid))
	}
	w.await(t, "list")
	w.until(t, "all to have joined", func([]string) bool {
		w.batches.mu.Lock()
		defer w.batches.mu.Unlock()
		return len(w.batches.answers) == many
	})
	close(w.listed)
	for i := range many {
		w.await(t, "RemoveFinalizer "+string(asks(i).uid))
	}
	lists := 0
	for _, entry := range w.diaryNow() {
		if entry == "list" {
			lists++
		}
	}
	if lists > 5 || len(w.diaryNow())-lists != many {
		t.Errorf("%d lists, %d writes for %d claims", lists, len(w.diaryNow())-lists, many)
	}
}

// This also holds if only the next claim of the name is seen.
func TestDeletedClaimIsForgotten(t *testing.T) {
	w := run(t, func(*world) {})
	before, after := claim("before"), claim("after")
	for _, end := range []func(claimChanges){
		func(c claimChanges) { c.Updated(&before, &after) },
		func(c claimChanges) { c.Deleted(&before, true) },
	} {
		w.batches.join("ns", ask{before.UID, before.Key()})
		end(claimChanges{w.Protector})
		if _, kept := w.batches.answers[before.UID]; kept {
			t.Error("what was asked for a claim is kept though it is gone")
		}
	}
	w.batches.join("ns", ask{after.UID, after.Key()})
	claimChanges{w.Protector}.Updated(&after, &after)
	if _, kept := w.batches.answers[after.UID]; !kept {
		t.Error("what was asked for a claim is forgotten though it is there")
	}
}

// A pod enqueues its terminating claims when its use of them begins or ends, and no others, because a cluster may have
// many pods.
func TestPodEventsEnqueueClaims(t *testing.T) {
	pending, running, ended, without := web(v1.PodPending), web(v1.PodRunning), web(v1.PodSucceeded), web(v1.PodRunning)
	without.Claims, without.Ephemeral = nil, nil
	uses := Usage{By: "web-0"}
	for sentence, c := range map[string]struct {
		event func(podChanges)
		alive bool
		wakes bool
		by    Usage
	}{
		"it comes":                       {func(p podChanges) { p.Added(running) }, false, true, uses},
		"it comes, the claim is to stay": {func(p podChanges) { p.Added(running) }, true, false, uses},
		"it is given the claim":          {func(p podChanges) { p.Updated(without, running) }, false, true, uses},
		"it runs, which changes no use":  {func(p podChanges) { p.Updated(pending, running) }, false, false, uses},
		"it has ended": {func(p podChanges) { p.Updated(running, ended) }, false, true,
			Usage{ByEnded: "web-0"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			other := web(v1.PodRunning) // keeps the claim from the first moment
			other.Name, other.UID, other.Ephemeral = "other", "other", nil
			w := run(t, func(*world) {})
			w.delete("first")
			w.await(t, "RemoveFinalizer first") // the proof of being alone enqueues all claims
			pods, key := podChanges{w.Protector}, "ns/data"
			pods.Added(other)
			w.delete("data")
			w.until(t, "an Event", func([]string) bool { return len(w.events.Events) > 0 })
			if c.alive {
				stays := claim("data")
				stays.Name, stays.Terminating = "data", false
				w.mu.Lock()
				w.shown[key] = &stays
				w.mu.Unlock()
			}
			w.mu.Lock()
			w.decided = map[string]int{}
			w.mu.Unlock()
			c.event(pods)
			woken := func([]string) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.decided[key] > 0
			}
			if c.wakes {
				w.until(t, "decision on it", woken)
			} else {
				w.delete("idle")
				w.await(t, "RemoveFinalizer idle") // earlier keys are processed first
				if woken(nil) {
					t.Error("woken")
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			pods.users.remove(other)
			if by := w.users.usage(*w.shown[key]); by != c.by {
				t.Errorf("used by %+v, want %+v", by, c.by)
			}
		})
	}
}

// A worker may decide at any moment, also between two states of a pod that uses the claim.
func TestChangedPodKeepsItsClaimInUse(t *testing.T) {
	w := run(t, func(*world) {})
	pods, data := podChanges{w.Protector}, ClaimOf(apiClaim("data", ""))
	before, now := web(v1.PodRunning), web(v1.PodRunning)
	pods.Added(before)
	goroutines.Hold(t, "the claim is in use", func() bool { return w.users.usage(data).By != "" }, func() {
		pods.Updated(before, now)
		before, now = now, before
	})
}

// The report on a claim is repeated for the next one, because the guard knows of the deletion.
func TestGuardForgetsDeletedClaim(t *testing.T) {
	w := run(t, func(*world) {})
	podChanges{w.Protector}.Added(web(v1.PodRunning))
	for range 2 {
		w.delete("data")
		w.until(t, "an Event", func([]string) bool { return len(w.events.Events) > 0 })
		<-w.events.Events
		last := claim("data")
		claimChanges{w.Protector}.Deleted(&last, true)
	}
}

// A claim that is deleted while it is watched is released, not only one that was terminating from the start.
func TestChangedClaimIsReleased(t *testing.T) {
	w := run(t, func(*world) {})
	w.delete("first")
	w.await(t, "RemoveFinalizer first") // from here on, only the change enqueues the claim
	before, now := claim("changed"), claim("changed")
	before.Terminating = false
	w.mu.Lock()
	w.shown[now.Key()] = &now
	w.mu.Unlock()
	claimChanges{w.Protector}.Updated(&before, &now)
	w.await(t, "RemoveFinalizer "+now.Name)
}

// A cluster may have many pods.
func TestPodsEnqueueOnlyTerminatingClaims(t *testing.T) {
	w := run(t, func(w *world) {
		c := claim("u")
		c.Terminating = false
		w.shown[c.Key()] = &c
	})
	podChanges{w.Protector}.Added(web(v1.PodRunning))
	podChanges{w.Protector}.Deleted(web(v1.PodRunning), true)
	if len(w.users.of) != 0 {
		t.Errorf("%v is kept of pods that are gone", w.users.of)
	}
	if got := w.diaryNow(); len(got) != 0 {
		t.Errorf("diary %q", got)
	}
}

// A claim whose deletion the watch shows before a worker asks for its users leaves nothing behind.
func TestReadUsersOfDeletedClaim(t *testing.T) {
	w := run(t, func(*world) {})
	gone, there := claim("gone"), claim("there")
	there.Name = "there"
	w.Stop() // so that no list answers
	w.mu.Lock()
	w.shown[there.Key()] = &there
	w.mu.Unlock()
	for _, c := range []Claim{gone, there} {
		kind{w.Protector}.ReadUsers(c)
	}
	w.batches.mu.Lock()
	defer w.batches.mu.Unlock()
	if _, kept := w.batches.answers["gone"]; kept || len(w.batches.answers) != 1 {
		t.Errorf("answers of %v are awaited", w.batches.answers)
	}
}
