package leadership

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// Holder reports how long a replica may still act; see [Clock.Left]. Clock implements it.
type Holder interface {
	Left() time.Duration
}

// ErrExpired reports that this replica must not act, because it does not hold its Lease or did not renew it in time.
// The requested action was not begun.
var ErrExpired = errors.New("the leader election lease is not held")

// Check returns ErrExpired if the holder must not act; a nil holder always may.
func Check(holder Holder) error {
	if holder == nil || holder.Left() > 0 {
		return nil
	}
	return ErrExpired
}

// reviews returns the API groups whose objects are queries that the API server answers without storing them. A replica
// that waits to lead sends them, too.
func reviews() []string {
	return []string{"/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"}
}

// Transport returns a wrapper (rest.Config.Wrap) for a client that writes as the leader. A write that is due to be sent
// while the holder must not act is refused with an error that wraps ErrExpired. That is checked after every rate limit
// and retry; only a new connection may delay the request further. Reads are always sent, as are requests that store
// nothing (SubjectAccessReview, TokenReview and their like).
//
// Requests in flight are cut off by their contexts, which must end with the lease.
func Transport(holder Holder) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if writes(request) {
				if err := Check(holder); err != nil {
					if request.Body != nil {
						_ = request.Body.Close() // a RoundTripper always closes it
					}
					return nil, fmt.Errorf("not sent: %w", err)
				}
			}
			return next.RoundTrip(request)
		})
	}
}

func writes(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	for _, review := range reviews() {
		// The address of an API server may have a path of its own before it.
		if strings.Contains(request.URL.Path, review) {
			return false
		}
	}
	return true
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// Recorder returns a recorder that drops Events while the holder must not act. Goroutines of client-go send Events
// later, so their client needs Transport as well.
func Recorder(holder Holder, events record.EventRecorder) record.EventRecorder {
	return recorder{holder, events}
}

type recorder struct {
	holder Holder
	events record.EventRecorder
}

func (r recorder) Event(object runtime.Object, eventType, reason, message string) {
	if Check(r.holder) == nil {
		r.events.Event(object, eventType, reason, message)
	}
}

func (r recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	if Check(r.holder) == nil {
		r.events.Eventf(object, eventType, reason, format, args...)
	}
}

func (r recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason,
	format string, args ...any) {
	if Check(r.holder) == nil {
		r.events.AnnotatedEventf(object, annotations, eventType, reason, format, args...)
	}
}
