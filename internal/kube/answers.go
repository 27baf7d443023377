package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxAnswer bounds the body of an answer of the API server, in bytes. Users may fill their objects with values that
// take 16 times as much memory as on the wire. No single object has more than 3 MiB, and 500 usual pods have 4 MiB.
const maxAnswer = 16 << 20

// ErrTooLarge means that an answer of the API server is longer than maxAnswer. Its rest was not read.
var ErrTooLarge = fmt.Errorf("the answer of the API server has more than %d MiB", maxAnswer>>20)

// bounded returns a RoundTripper whose requests are checked as by [Checked], and whose answers fail with ErrTooLarge
// beyond maxAnswer. Watches are not bounded, because they are read object by object, and neither are the answers of
// other programs that the API server passes on.
func bounded(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} }

type checkKey struct{}

// Checked returns a context in which a client of this package sends a request only if check returns nil. It is called
// last, after every rate limit, and before each of client-go's retries, which may take a minute. A new connection may
// still delay the request, up to its timeout.
func Checked(ctx context.Context, check func() error) context.Context {
	return context.WithValue(ctx, checkKey{}, check)
}

// Check returns the error of the check that [Checked] has added to a context, for clients that fake the API server too.
func Check(ctx context.Context) error {
	if check, checked := ctx.Value(checkKey{}).(func() error); checked {
		return check()
	}
	return nil
}

type boundedTransport struct{ http.RoundTripper }

func (t boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := Check(request.Context()); err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // a RoundTripper always closes it
		}
		return nil, fmt.Errorf("not sent: %w", err)
	}
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") != "true" && !strings.Contains(request.URL.Path, "/proxy/") {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswer}
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (t boundedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// growAfter is the number of pages after which a page has twice as many objects. Each page that is too large costs an
// answer of maxAnswer.
const growAfter = 8

// pageSize is the number of objects that the next page of a list has. It is halved while pages are too large, and grows
// again after growAfter pages. The zero value is ready for use, by one goroutine at a time.
type pageSize struct {
	limit int64
	// fit counts the pages of this size.
	fit int
}

// read requests one page with the limit of the options, or a smaller one if the answer would be too large. The API
// server ignores limits with the resourceVersion "0", so then the latest state is read instead.
func (s *pageSize) read(options metav1.ListOptions, page func(metav1.ListOptions) error) error {
	most := options.Limit
	if s.fit == growAfter {
		s.limit, s.fit = 2*s.limit, 0
	}
	if s.limit == 0 || s.limit > most {
		s.limit = most
	}
	for {
		options.Limit = s.limit
		err := page(options)
		switch {
		case !errors.Is(err, ErrTooLarge):
			s.fit++
			return err
		case options.ResourceVersion == fromCache:
			options.ResourceVersion = ""
		case s.limit <= 1:
			return err
		default:
			s.limit, s.fit = s.limit/2, 0
		}
	}
}
