package events

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// The bounds of a Sender. A client with 10 calls a second sends a full queue in half an hour.
const (
	mostQueued = 20000
	mostTries  = 12
	retryAfter = 5 * time.Second
)

// Causes of a dropped Event, the values of the label "cause".
const (
	queueFull   = "QueueFull"
	objectLimit = "ObjectLimit"
	refused     = "Refused"
	noSuccess   = "NoSuccess"
)

// SenderConfig holds the settings of a Sender.
type SenderConfig struct {
	// Component is the source of the Events. Required.
	Component string
	// Events is a client whose limit is the rate of the Events. Required.
	Events corev1.EventsGetter
	// Leads reports whether this replica may report. Default always.
	Leads func() bool
	// Metrics is the registerer of the metric, which by default is not registered.
	Metrics prometheus.Registerer
	// Logger logs dropped Events.
	Logger klog.Logger
}

// Sender is an EventRecorder that sends Events one at a time, round-robin by namespace. The broadcaster of client-go
// drops Events above 1,000 without a trace, no matter whose they are. A Sender counts and logs each Event that it
// drops. It is safe for concurrent use.
type Sender struct {
	cfg        SenderConfig
	correlator *record.EventCorrelator
	dropped    *prometheus.CounterVec
	// ready has an item if the queue may have a report.
	ready chan struct{}

	// written is the number of Events. Only the goroutine of Run uses it.
	written int

	mu     sync.Mutex
	queued queue
}

// NewSender returns a Sender, which sends nothing before Run.
func NewSender(cfg SenderConfig) (*Sender, error) {
	s := &Sender{
		cfg:        cfg,
		correlator: record.NewEventCorrelator(clock.RealClock{}),
		dropped: NewCounterBy(prometheus.CounterOpts{
			Name: "csi_reclaimer_events_dropped_total",
			Help: "Events that were reported and not recorded, by cause: QueueFull and ObjectLimit for too many, Refused and " +
				"NoSuccess for errors of the API server.",
		}, "cause", queueFull, objectLimit, refused, noSuccess),
		ready:  make(chan struct{}, 1),
		queued: newQueue(mostQueued),
	}
	return s, Register(cfg.Metrics, s.dropped)
}

// Event implements record.EventRecorder.
func (s *Sender) Event(object runtime.Object, eventType, reason, message string) {
	s.report(object, "", nil, eventType, reason, message)
}

// Eventf implements record.EventRecorder.
func (s *Sender) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	s.report(object, "", nil, eventType, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (s *Sender) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason,
	format string, args ...any) {
	s.report(object, "", annotations, eventType, reason, fmt.Sprintf(format, args...))
}

// report queues an Event. It replaces an unsent one on the same object with the same reason and subject.
func (s *Sender) report(object runtime.Object, subject types.UID, annotations map[string]string, eventType, reason,
	message string) {
	if s.cfg.Leads != nil && !s.cfg.Leads() {
		return
	}
	on, err := reference.GetReference(scheme.Scheme, object)
	if err != nil {
		s.cfg.Logger.Error(err, "An Event has no object", "reason", reason, "message", message)
		return
	}
	r := &report{slot: slot{object: *on, reason: reason, subject: subject}, resourceVersion: on.ResourceVersion,
		eventType: eventType, message: message, annotations: annotations, at: clock.RealClock{}.Now()}
	r.object.ResourceVersion = ""
	// No request has such a namespace or name, which the claimRef of a PV may have. Without an answer, the Event would
	// keep all later ones from being sent.
	wrong := slices.Concat(rest.IsValidPathSegmentName(on.Namespace), rest.IsValidPathSegmentName(on.Name))
	if len(wrong) > 0 {
		s.drop(r, refused, fmt.Errorf("a namespace or name %s", strings.Join(wrong, ", ")))
		return
	}
	s.mu.Lock()
	dropped := s.queued.add(r)
	s.mu.Unlock()
	if dropped != nil {
		s.drop(dropped, queueFull, nil)
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// drop counts and logs an Event that is not recorded.
func (s *Sender) drop(r *report, cause string, err error) {
	s.dropped.WithLabelValues(cause).Inc()
	s.cfg.Logger.Info("Dropped an Event", "cause", cause, r.object.Kind, klog.KRef(r.object.Namespace, r.object.Name),
		"reason", r.reason, "err", err)
}

// Run sends Events until ctx ends. Events that are left are not sent: a leader that ends holds no Lease any more, and
// the next leader reports the state anew.
func (s *Sender) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		r, left := s.queued.take(clock.RealClock{}.Now())
		s.mu.Unlock()
		if r != nil {
			s.send(ctx, r)
			continue
		}
		await(ctx, s.ready, left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := len(s.queued.slots); left > 0 {
		s.cfg.Logger.Info("Events are not sent, because the program ends", "count", left)
	}
}

// await waits for an item, at most for this time, or without a limit for 0.
func await(ctx context.Context, item <-chan struct{}, most time.Duration) {
	var due <-chan time.Time
	if most > 0 {
		timer := clock.RealClock{}.NewTimer(most)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-item:
	case <-due:
	case <-ctx.Done():
	}
}

// send sends an Event. It waits for an API server that does not answer. After an answer of failure, the Event's share
// waits, because the cause may be its namespace: its rate limit, or a webhook that is away. Such a try counts, unless
// other shares wait as well and none of their Events was written meanwhile: then the cause is the API server.
func (s *Sender) send(ctx context.Context, r *report) {
	if r.result == nil {
		var err error
		if r.result, err = s.correlator.EventCorrelate(s.event(r)); err != nil {
			s.cfg.Logger.Error(err, "An Event was not compared with earlier ones", "reason", r.reason)
		}
	}
	if r.result.Skip {
		s.drop(r, objectLimit, nil)
		return
	}
	for {
		began := clock.RealClock{}.Now()
		err := s.write(ctx, r.result)
		if err == nil {
			s.written++
			return
		}
		code := kube.Answer(err)
		switch {
		case ctx.Err() != nil:
			s.cfg.Logger.Info("An Event may not be sent, because the program ends", "reason", r.reason)
			return
		case code == 0:
		case code != http.StatusTooManyRequests && code < http.StatusInternalServerError:
			s.drop(r, refused, err)
			return
		case r.tries+1 == mostTries:
			s.drop(r, noSuccess, err)
			return
		}
		s.cfg.Logger.V(2).Info("An Event was not sent; retrying", "reason", r.reason, "err", err)
		pause := wait.Jitter(retryAfter, 1)
		if code != 0 {
			now := clock.RealClock{}.Now()
			s.again(r, now.Add(max(pause, 2*now.Sub(began)))) // a slow webhook does not take most of the time
			return
		}
		await(ctx, nil, pause)
	}
}

// again puts a report back after a failed try.
func (s *Sender) again(r *report, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written > r.others || s.queued.only(r) {
		r.tries++
	}
	r.others = s.written
	s.queued.again(r, due)
}

// event returns the Event of a report, with a name of its own.
func (s *Sender) event(r *report) *v1.Event {
	object, at := r.object, metav1.NewTime(r.at)
	object.ResourceVersion = r.resourceVersion
	namespace := object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: util.GenerateEventName(object.Name, clock.RealClock{}.Now().UnixNano()),
			Namespace: namespace, Annotations: r.annotations},
		InvolvedObject: object, Reason: r.reason, Message: r.message, Type: r.eventType,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: v1.EventSource{Component: s.cfg.Component}, ReportingController: s.cfg.Component,
	}
}

// write creates an Event, or counts one that exists and has the same message.
func (s *Sender) write(ctx context.Context, result *record.EventCorrelateResult) (err error) {
	event := result.Event
	client, written := s.cfg.Events.Events(event.Namespace), event
	repeats := event.Count > 1
	if repeats {
		written, err = client.Patch(ctx, event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
	}
	if !repeats || apierrors.IsNotFound(err) {
		event.ResourceVersion = "" // the API server has removed the earlier one
		written, err = client.Create(ctx, event, metav1.CreateOptions{})
	}
	switch {
	case apierrors.IsAlreadyExists(err): // the answer to an earlier try was lost
		return nil
	case err != nil:
		return fmt.Errorf("write an Event: %w", err)
	}
	s.correlator.UpdateState(written)
	return nil
}
