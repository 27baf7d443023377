package events

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// MaxMessage bounds the message of an Event, in bytes: the limit of events.k8s.io for a note. Volume handles and
// messages of a driver may be megabytes long.
const MaxMessage = 1024

// shortest is the smallest length to which a text is cut, in bytes.
const shortest = len("…")

// Config holds the settings of a Recorder; the zero value is usable.
type Config[R reasons.Reason] struct {
	// Events records the Events. Default none.
	Events record.EventRecorder
	// Counter counts the reports that have an Event, by their reason; see NewCounter. Default none.
	Counter *prometheus.CounterVec
	// Leads reports whether this replica may still report, because another replica may have changed the reported state.
	// Default always.
	Leads func() bool
	// Pace limits the frequency of reports on one object. By default, each change is reported at once, and nothing is
	// repeated.
	Pace Pace
	// Clock is replaced in tests. Default the real clock.
	Clock clock.PassiveClock
	// Observe is called with each reason that is news, including silent ones. Default none.
	Observe func(ctx context.Context, reason R)
}

// Recorder reports the reasons of objects, each once until it changes, and is safe for concurrent use.
type Recorder[R reasons.Reason] struct {
	cfg     Config[R]
	reports lastReports[R]
}

// NewRecorder returns a Recorder that has reported nothing yet.
func NewRecorder[R reasons.Reason](cfg Config[R]) *Recorder[R] {
	if cfg.Events == nil {
		cfg.Events = Discard{}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Recorder[R]{cfg: cfg, reports: lastReports[R]{pace: cfg.Pace, clock: cfg.Clock}}
}

func (r *Recorder[R]) leads() bool { return r.cfg.Leads == nil || r.cfg.Leads() }

// Report reports why nothing is done for the object. The same reason is reported once, with the detail of that time,
// and a silent reason ends the previous report.
func (r *Recorder[R]) Report(ctx context.Context, o Object, reason R, detail string) {
	r.report(ctx, o, reason, detail, "", 0)
}

// Count counts the object as waiting for a reason that has no Event yet. A later Report has one.
func (r *Recorder[R]) Count(o Object, reason R) {
	if r.leads() {
		r.reports.Count(o.key(), reason)
	}
}

// repeated is the log level of a report that differs only in its detail. The detail of many objects can change at once
// and often, as when a claim passes from pod to pod.
const repeated = 2

// ReportEach is Report, except that the same reason is reported again with each new detail.
func (r *Recorder[R]) ReportEach(ctx context.Context, o Object, reason R, detail string) {
	detail = text.Truncate(detail, MaxMessage)
	r.report(ctx, o, reason, detail, detail, repeated)
}

// ReportFailure reports that a step failed with err and is tried again. With each, every new message is reported, for
// failures that a person has to fix; otherwise only a new reason is, because messages differ from try to try.
func (r *Recorder[R]) ReportFailure(ctx context.Context, o Object, reason R, err error, each bool) {
	message := text.Truncate(err.Error(), MaxMessage)
	klog.FromContext(ctx).V(2).Info("A step failed; retrying", append(o.logged(), "reason", reason, "err",
		message)...)
	same := ""
	if each {
		same = message
	}
	r.report(ctx, o, reason, message, same, 0)
}

// ReportAside reports an additional reason, once until Forget.
func (r *Recorder[R]) ReportAside(ctx context.Context, o Object, reason R, detail string) {
	if r.leads() && r.reports.Aside(o.key(), reason) {
		r.Event(ctx, o, reason, detail)
	}
}

// report reports a reason that is news. Two reports with one reason differ by same, and the level is that of the log
// lines after the first one.
func (r *Recorder[R]) report(ctx context.Context, o Object, reason R, detail, same string, level int) {
	if !r.leads() {
		return
	}
	news, again := r.reports.Now(o.key(), reason, same, reason.About().Severity.Waits())
	if !again {
		level = 0
	}
	if news {
		r.event(ctx, o, reason, detail, level)
	}
}

// Ended is a session that has ended, such as a [session.State].
type Ended[R reasons.Reason] interface {
	Ended() session.End
	// Reason returns the reason to report, or "".
	Reason() R
	// Would returns the report of a dry run.
	Would() string
}

// ReportEnd reports how a session about an object has ended. detail is about its reason, and err is the error of its
// last call. With each, the reason of a wait is reported again with each new detail.
func (r *Recorder[R]) ReportEnd(ctx context.Context, o Object, s Ended[R], detail string, err error, each bool) {
	switch end, reason := s.Ended(), s.Reason(); {
	case end == session.ObjectGone:
		r.Forget(o.UID)
	case reason == "":
	case end == session.Written:
		// A written object no longer waits.
		r.Event(ctx, o, reason, detail)
		r.Forget(o.UID)
	case end == session.Skipped:
		r.ReportEach(ctx, o, reason, s.Would())
	case err != nil:
		r.ReportFailure(ctx, o, reason, err, false)
	case each:
		r.ReportEach(ctx, o, reason, detail)
	default:
		r.Report(ctx, o, reason, detail)
	}
}

// Event reports a reason regardless of earlier reports.
func (r *Recorder[R]) Event(ctx context.Context, o Object, reason R, detail string) {
	r.event(ctx, o, reason, detail, 0)
}

// event records an Event, counts it, and logs it at a level.
func (r *Recorder[R]) event(ctx context.Context, o Object, reason R, detail string, level int) {
	about := reason.About()
	message := text.Truncate(o.Prefix+messageOf(about, detail, MaxMessage-len(o.Prefix)), MaxMessage)
	if r.cfg.Observe != nil {
		r.cfg.Observe(ctx, reason)
	}
	logger, keys := klog.FromContext(ctx), append(o.logged(), "reason", reason)
	kind := about.Severity.EventType()
	if kind == "" {
		logger.V(4).Info("Nothing to do", keys...)
		return
	}
	logger.V(level).Info(message, keys...)
	if r.cfg.Counter != nil {
		r.cfg.Counter.WithLabelValues(string(reason)).Inc()
	}
	record := func(on *v1.ObjectReference, message string) { r.record(on, o.key(), kind, string(reason), message) }
	record(&o.ObjectReference, message)
	if about.OnClaim && o.Claim.Name != "" {
		record(&o.Claim, message)
	}
	if o.Node.Name != "" {
		record(&o.Node, message)
	}
	if about.OnSet && o.Set.Name != "" {
		record(&o.Set, text.Truncate("Claim "+o.Name+": "+message, MaxMessage))
	}
}

// record records an Event. A Sender distinguishes Events on one object by their subject.
func (r *Recorder[R]) record(on *v1.ObjectReference, subject types.UID, kind, reason, message string) {
	if to, ok := r.cfg.Events.(*Sender); ok {
		to.report(on, subject, nil, kind, reason, message)
		return
	}
	r.cfg.Events.Event(on, kind, reason, message)
}

// messageOf returns the message of an Event, with the detail shortened to keep it within limit bytes. A detail that
// comes first leaves room for the sentence.
func messageOf(about reasons.About, detail string, limit int) string {
	switch {
	case detail == "" || detail == about.Sentence:
		return about.Sentence
	case about.DetailFirst:
		return text.Truncate(detail, max(shortest, limit-len(about.Sentence)-len(". "))) + ". " + about.Sentence
	}
	return text.Truncate(about.Sentence+" "+detail, max(shortest, limit))
}

// Forget drops the reports on an object that is gone.
func (r *Recorder[R]) Forget(uid types.UID) { r.reports.Forget(uid) }

// Waiting counts the waiting objects by reason, and returns none while this replica may not report.
func (r *Recorder[R]) Waiting() map[R]int {
	count := map[R]int{}
	for reason, of := range r.waiting() {
		count[reason] = of.objects
	}
	return count
}

// waiting returns the waiting objects by reason, and none while this replica may not report.
func (r *Recorder[R]) waiting() map[R]waiting {
	if !r.leads() {
		return nil
	}
	return r.reports.Waiting()
}
