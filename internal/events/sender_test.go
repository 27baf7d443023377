package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// api is an API server that keeps Events as "namespace object reason message", where a count above 1 follows.
type api struct {
	corev1.EventsGetter
	corev1.EventInterface
	events []string
	// calls are all writes, of which answer answers.
	calls  int
	answer func(call int) error
}

func (a *api) Events(string) corev1.EventInterface { return a }

func (a *api) Create(_ context.Context, event *v1.Event, _ metav1.CreateOptions) (*v1.Event, error) {
	return a.write(event, fmt.Sprintln(event.Namespace, event.InvolvedObject.Name, event.Reason, event.Message))
}

func (a *api) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	_ ...string) (*v1.Event, error) {
	return a.write(&v1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintln("patched", len(data) > 0))
}

func (a *api) write(event *v1.Event, as string) (*v1.Event, error) {
	a.calls++
	if a.answer != nil {
		if err := a.answer(a.calls); err != nil {
			return nil, err
		}
	}
	a.events = append(a.events, as[:len(as)-1])
	return event, nil
}

func (a *api) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(a.events, want) {
		t.Errorf("recorded %q, want %q", a.events, want)
	}
}

func sender(t *testing.T, a *api) (s *Sender, run func()) {
	t.Helper()
	s = must.Get(NewSender(SenderConfig{Component: "test", Events: a, Metrics: prometheus.NewRegistry()}))(t)
	return s, func() { go s.Run(t.Context()) }
}

func wantDropped(t *testing.T, s *Sender, cause string, want float64) {
	t.Helper()
	for _, of := range []string{queueFull, objectLimit, refused, noSuccess} {
		var metric dto.Metric
		must.OK(t, s.dropped.WithLabelValues(of).Write(&metric))
		if got := metric.GetCounter().GetValue(); of == cause && got != want || of != cause && got != 0 {
			t.Errorf("%v Events were dropped because of %s; want %v because of %s", got, of, want, cause)
		}
	}
}

func podOf(namespace, name string) *v1.ObjectReference {
	on := Pod(namespace, name, types.UID(name), "1").ObjectReference
	return &on
}

// A burst of reports, as from an outage, is recorded to the last one.
func TestBurstIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		s, run := sender(t, a)
		const burst = 16670
		for i := range burst {
			s.Event(podOf("ns", fmt.Sprint("pod-", i)), v1.EventTypeWarning, "Lost", "It is lost.")
		}
		run()
		synctest.Wait()
		if len(a.events) != burst {
			t.Errorf("%d Events, want %d", len(a.events), burst)
		}
		wantDropped(t, s, queueFull, 0)
	})
}

func TestNamespacesAndKindsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		s, run := sender(t, a)
		for i := range 4 {
			s.Event(podOf("flood", fmt.Sprint("pod-", i)), v1.EventTypeNormal, "InUse", "-")
		}
		s.Event(podOf("calm", "a"), v1.EventTypeNormal, "InUse", "-")
		fence := v1.ObjectReference{APIVersion: "v1", Kind: "NodeFence", Name: "n1"}
		s.Eventf(&fence, v1.EventTypeWarning, "Contradicted", "By %s.", "n1")
		s.Event(podOf("calm", "b"), v1.EventTypeNormal, "InUse", "-")
		node := Node("n1")
		s.AnnotatedEventf(&node, nil, v1.EventTypeWarning, "Contradicted", "By %s.", "n1")
		run()
		a.want(t, "flood pod-0 InUse -", "calm a InUse -", "default n1 Contradicted By n1.",
			"default n1 Contradicted By n1.", "flood pod-1 InUse -", "calm b InUse -", "flood pod-2 InUse -",
			"flood pod-3 InUse -")
	})
}

// A full queue drops the oldest report of the share that has the most.
func TestFullQueueDropsFromTheLargestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		s, run := sender(t, a)
		s.queued = newQueue(3)
		s.Event(podOf("calm", "a"), v1.EventTypeNormal, "InUse", "-")
		for i := range 4 {
			s.Event(podOf("flood", fmt.Sprint("pod-", i)), v1.EventTypeNormal, "InUse", "-")
		}
		s.Event(podOf("late", "b"), v1.EventTypeNormal, "InUse", "-")
		run()
		a.want(t, "calm a InUse -", "flood pod-3 InUse -", "late b InUse -")
		wantDropped(t, s, queueFull, 3)
	})
}

// A queue of as many shares as it has room drops one of them with its only report.
func TestFullQueueOfSmallShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		s, run := sender(t, a)
		s.queued = newQueue(2)
		for _, namespace := range []string{"a", "b", "c", "a"} {
			s.Event(podOf(namespace, "pod"), v1.EventTypeNormal, "InUse", "-")
		}
		run()
		a.want(t, "c pod InUse -", "a pod InUse -")
		wantDropped(t, s, queueFull, 2)
	})
}

// The newest report of a reason replaces the unsent one, unless they have different subjects.
func TestNewestReportReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		s, run := sender(t, a)
		s.Event(podOf("ns", "a"), v1.EventTypeNormal, "InUse", "By b.")
		s.Event(podOf("ns", "a"), v1.EventTypeWarning, "Lost", "-")
		newer := podOf("ns", "a")
		newer.ResourceVersion = "2"
		s.Event(newer, v1.EventTypeNormal, "InUse", "By c.")
		lease := Lease(types.NamespacedName{Namespace: "of", Name: "log"})
		r := NewRecorder(Config[word]{Events: s})
		for _, volume := range []types.UID{"v1", "v2", "v1"} {
			lease.Key, lease.Prefix = volume, string(volume)+": "
			r.Event(t.Context(), lease, "Lost", "")
		}
		run()
		a.want(t, "ns a InUse By c.", "of log Lost v1: It is lost.", "ns a Lost -", "of log Lost v2: It is lost.")
		s.Event(podOf("ns", "a"), v1.EventTypeNormal, "InUse", "By d.")
		synctest.Wait()
		if last := a.events[len(a.events)-1]; last != "ns a InUse By d." {
			t.Errorf("the last Event is %q", last)
		}
	})
}

func TestOnlyLeaderSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, leads := &api{}, false
		s, run := sender(t, a)
		s.cfg.Leads = func() bool { return leads }
		s.Event(podOf("ns", "a"), v1.EventTypeNormal, "InUse", "-")
		leads = true
		s.Event(podOf("ns", "b"), v1.EventTypeNormal, "InUse", "-")
		run()
		a.want(t, "ns b InUse -")
	})
}

func statusError(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}}
}

func TestFailedWrites(t *testing.T) {
	exists := apierrors.NewAlreadyExists(v1.Resource("events"), "a")
	for name, c := range map[string]struct {
		answer func(call int) error
		cause  string
		writes int
	}{
		"refused": {func(int) error { return statusError(http.StatusForbidden) }, refused, 1},
		"written by the first try": {func(call int) error {
			return map[int]error{1: errNoAnswer, 2: exists}[call]
		}, "", 2},
		"busy": {func(call int) error {
			return map[int]error{1: statusError(http.StatusTooManyRequests),
				2: statusError(http.StatusInternalServerError)}[call]
		}, "", 3},
		"busy for long": {func(int) error { return statusError(http.StatusServiceUnavailable) }, noSuccess, mostTries},
		"away for long": {func(call int) error {
			if call <= 10*mostTries {
				return errNoAnswer
			}
			return nil
		}, "", 10*mostTries + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{answer: func(call int) error {
					if call > c.writes { // the second Event
						return nil
					}
					return c.answer(call)
				}}
				s, run := sender(t, a)
				s.Event(podOf("ns", "a"), v1.EventTypeNormal, "InUse", "-")
				s.Event(podOf("ns", "b"), v1.EventTypeNormal, "InUse", "-")
				run()
				time.Sleep(time.Hour)
				synctest.Wait()
				if a.calls != c.writes+1 || a.events[len(a.events)-1] != "ns b InUse -" {
					t.Errorf("%d writes, want %d and that of the second Event; recorded %q", a.calls, c.writes, a.events)
				}
				wantDropped(t, s, c.cause, 1)
			})
		})
	}
}

// An admission plugin may limit the Events of a namespace, and a webhook of one may be away.
func TestFailedWriteDelaysItsShareOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 100
		a := &api{}
		s, run := sender(t, a)
		s.cfg.Events = limited{a, "flood"}
		for i := range others {
			s.Event(podOf("flood", fmt.Sprint("pod-", i)), v1.EventTypeNormal, "InUse", "-")
			s.Event(podOf("calm", fmt.Sprint("pod-", i)), v1.EventTypeNormal, "InUse", "-")
		}
		run()
		time.Sleep(3*retryAfter - 1)
		synctest.Wait()
		if len(a.events) != others || a.calls > others {
			t.Errorf("%d Events of others, want %d", len(a.events), others)
		}
		s.cfg.Events = a
		s.Event(podOf("flood", "pod-0"), v1.EventTypeWarning, "InUse", "newer")
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(a.events) != 2*others ||
			!slices.Contains(a.events, "flood pod-0 InUse newer") || slices.Contains(a.events, "flood pod-0 InUse -") {
			t.Errorf("%d Events, want %d: %q", len(a.events), 2*others, a.events[others:])
		}
		wantDropped(t, s, noSuccess, 0)
	})
}

// While an API server answers no write at all, no Event of many namespaces is dropped.
func TestOutageDropsNoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 50
		begun := time.Now()
		a := &api{answer: func(int) error {
			if time.Since(begun) < 10*time.Minute {
				return statusError(http.StatusServiceUnavailable)
			}
			return nil
		}}
		s, run := sender(t, a)
		for n := range namespaces {
			s.Event(podOf(fmt.Sprint("ns-", n), "pod"), v1.EventTypeNormal, "InUse", "-")
		}
		run()
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if len(a.events) != namespaces {
			t.Errorf("%d Events, want %d", len(a.events), namespaces)
		}
		wantDropped(t, s, noSuccess, 0)
	})
}

// limited answers 429 for the Events of a namespace.
type limited struct {
	*api
	namespace string
}

func (l limited) Events(namespace string) corev1.EventInterface {
	if namespace == l.namespace {
		return &api{answer: func(int) error { return statusError(http.StatusTooManyRequests) }}
	}
	return l.api
}

// The claimRef of a PV may have a namespace and name that no request can have.
func TestImpossibleObjectIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		s, run := sender(t, a)
		s.Event(podOf("a/b", "a"), v1.EventTypeNormal, "InUse", "-")
		s.Event(podOf("ns", "a/b"), v1.EventTypeNormal, "InUse", "-")
		s.Event(podOf("ns", "b"), v1.EventTypeNormal, "InUse", "-")
		run()
		synctest.Wait()
		if !slices.Equal(a.events, []string{"ns b InUse -"}) {
			t.Errorf("recorded %q", a.events)
		}
		wantDropped(t, s, refused, 2)
	})
}

// An Event that repeats is patched, and one that the API server has removed is created again.
func TestRepeatedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(call int) error {
			return map[int]error{3: apierrors.NewNotFound(v1.Resource("events"), "a")}[call]
		}}
		s, run := sender(t, a)
		run()
		for range 3 {
			s.Event(podOf("ns", "a"), v1.EventTypeNormal, "InUse", "-")
			synctest.Wait()
		}
		a.want(t, "ns a InUse -", "patched true", "ns a InUse -")
	})
}

// client-go limits the Events of one object; those above are counted.
func TestObjectLimitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		s, run := sender(t, a)
		run()
		for range 30 {
			s.Event(podOf("ns", "a"), v1.EventTypeNormal, "InUse", "-")
			synctest.Wait()
		}
		if len(a.events) != 25 {
			t.Errorf("%d writes", len(a.events))
		}
		wantDropped(t, s, objectLimit, 5)
	})
}

// A Sender ends at once, also while it waits to try again, and sends nothing after its end.
func TestSenderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(int) error { return errors.New("no route") }}
		s, _ := sender(t, a)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		s.Event(podOf("ns", "a"), v1.EventTypeNormal, "InUse", "-")
		s.Event(podOf("ns", "b"), v1.EventTypeNormal, "InUse", "-")
		synctest.Wait()
		start := time.Now()
		end()
		<-ended
		if time.Since(start) > 0 {
			t.Errorf("it ended after %v", time.Since(start))
		}
		a.answer = nil
		time.Sleep(time.Hour)
		synctest.Wait()
		a.want(t)
	})
}
