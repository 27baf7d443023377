package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxAnswer bounds the body of an answer of the API server, in bytes. Users may fill their objects with values that
// take 16 times as much memory as on the wire. No single object has more than 3 MiB, and 500 usual pods have 4 MiB.
const maxAnswer = 16 << 20

// ErrTooLarge means that an answer of the API server is longer than maxAnswer. Its rest was not read.
var ErrTooLarge = fmt.Errorf("the answer of the API server has more than %d MiB", maxAnswer>>20)

// bounded returns a RoundTripper whose answers fail with ErrTooLarge beyond maxAnswer, except watches, which are read
// object by object.
func bounded(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} }

type boundedTransport struct{ http.RoundTripper }

func (t boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") != "true" {
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

// pageSize is the number of objects that the next page of a list has. It becomes smaller while pages are too large, and
// then grows again. The zero value is ready for use, by one goroutine at a time.
type pageSize int64

// read requests one page with the limit of the options, or a smaller one if the answer would be too large. The API
// server ignores limits with the resourceVersion "0", so then the latest state is read instead.
func (s *pageSize) read(options metav1.ListOptions, page func(metav1.ListOptions) error) error {
	most := options.Limit
	if *s == 0 || int64(*s) > most {
		*s = pageSize(most)
	}
	for {
		options.Limit = int64(*s)
		err := page(options)
		switch {
		case !errors.Is(err, ErrTooLarge):
			*s = min(2**s, pageSize(most))
			return err
		case options.ResourceVersion == fromCache:
			options.ResourceVersion = ""
		case options.Limit <= 1:
			return err
		default:
			*s /= 2
		}
	}
}
