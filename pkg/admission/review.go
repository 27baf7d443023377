package admission

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// Bounds of the memory that reviews take, because any pod may be able to send them.
const (
	// maxBody bounds a request, in bytes: twice the API server's limit for one object (3 MiB) and some more, because a
	// review holds the object before and after the write.
	maxBody = 7 << 20
	// maxCommas bounds the values of a request. A pod of 1.5 MiB, as much as etcd stores, has fewer, unless most of its
	// values are empty.
	maxCommas = 1 << 18
	// smallBody is the size up to which a request is small, as nearly all are. It then takes no more than 3 MiB of
	// memory, and a larger one up to 120 MiB.
	smallBody = 32 << 10
	// smallReviews bounds the small requests of one webhook that are decoded at once, largeReviews the large ones of all
	// webhooks, and readingReviews the answers that read the API server.
	smallReviews, largeReviews, readingReviews = 8, 2, 16
	// maxUID and maxName bound the parts of a request that its answer keeps, and maxError bounds its error, in bytes.
	maxUID, maxName, maxError = 128, 253, 1 << 10
	// maxClaims is the number of claims of a pod that are read for one answer. No node mounts as many volumes.
	maxClaims = 500
	// waitTimeout bounds the wait of a request for its turn, and bodyTimeout the time that its body then takes.
	waitTimeout, bodyTimeout = time.Second, time.Second
)

// errMalformed means that the request is not an AdmissionReview that can be answered. The API server treats the answer
// as a failure of the webhook, and applies its failurePolicy.
var errMalformed = errors.New("malformed admission review")

// errTooMany means that a request has more values than maxCommas admits.
var errTooMany = fmt.Errorf("the admission review has more than %d values", maxCommas)

// turns bounds the requests in progress: a request puts one element into the channel and takes it out at its end.
type turns chan struct{}

// begin waits for a turn, and reports whether it got one. The caller then has to call end.
func (t turns) begin(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turns) end() { <-t }

// errBusy means that a request got no turn in time. The API server tries again within its timeout.
var errBusy = errors.New("too many admission reviews are in progress")

// reviewFunc reads one request and returns the function that answers it. Only the first needs the memory of the
// request. An error of either is answered as a failure of the webhook.
type reviewFunc func(request *admissionv1.AdmissionRequest) (answerFunc, error)

type answerFunc func(ctx context.Context) (*admissionv1.AdmissionResponse, error)

// atOnce returns the reviewFunc of a webhook that reads nothing for its answer.
func atOnce(by func(*admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)) reviewFunc {
	return func(request *admissionv1.AdmissionRequest) (answerFunc, error) {
		response, err := by(request)
		return func(context.Context) (*admissionv1.AdmissionResponse, error) { return response, err }, nil
	}
}

// review returns a handler of AdmissionReviews (v1). large are the turns of large requests.
func review(by reviewFunc, large turns) http.Handler {
	small := make(turns, smallReviews)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := statusOf(r); code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		answer, err := answerTo(w, r, by, small, large)
		_, tooLong := errors.AsType[*http.MaxBytesError](err)
		var words string
		if err != nil {
			words = text.Truncate(err.Error(), maxError) // it may quote the request
		}
		switch {
		case errors.Is(err, errBusy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, words, http.StatusTooManyRequests)
		case tooLong, errors.Is(err, errTooMany):
			http.Error(w, words, http.StatusRequestEntityTooLarge)
		case errors.Is(err, errMalformed):
			http.Error(w, words, http.StatusBadRequest)
		case err != nil:
			klog.FromContext(r.Context()).Error(errors.New(words), "Admitting a write that could not be reviewed", "path",
				r.URL.Path)
			http.Error(w, words, http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			// A write error means that the API server has gone.
			_, _ = w.Write(answer) //nolint:gosec // no browser reads this JSON
		}
	})
}

func statusOf(r *http.Request) int {
	if r.Method != http.MethodPost {
		return http.StatusMethodNotAllowed
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType
	}
	return http.StatusOK
}

// read returns the body of a request. The deadline ends with the body, because the reads for the answer may take
// longer. It stays after an error, because the server then reads the rest.
func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	// The recorder of a test has no deadline.
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) //nolint:forbidigo // the network goes by the time of day
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read an admission review: %w", err)
	}
	_ = connection.SetReadDeadline(time.Time{})
	return data, nil
}

// answerTo reads a review and returns the answer to it.
func answerTo(w http.ResponseWriter, r *http.Request, by reviewFunc, small, large turns) ([]byte, error) {
	about, answer, err := understand(w, r, by, small, large)
	if err != nil {
		return nil, err
	}
	response, err := answer(r.Context())
	if err != nil {
		return nil, err
	}
	response.UID = about.Response.UID
	about.Response = response
	data, err := json.Marshal(about)
	if err != nil {
		return nil, fmt.Errorf("write the answer to an admission review: %w", err)
	}
	return data, nil
}

// understand reads a review in its turn, and returns the frame of its response and the function that answers it. A
// small body is read before the turn, so that a slow one delays no other.
func understand(w http.ResponseWriter, r *http.Request, by reviewFunc, small, large turns) (
	about admissionv1.AdmissionReview, answer answerFunc, err error) {
	var data []byte
	turn, isSmall := large, r.ContentLength >= 0 && r.ContentLength <= smallBody
	if isSmall {
		turn = small
		if data, err = read(w, r); err != nil {
			return about, nil, err
		}
	}
	if !turn.begin(r.Context()) {
		return about, nil, errBusy
	}
	defer turn.end()
	if !isSmall {
		if data, err = read(w, r); err != nil {
			return about, nil, err
		}
	}
	if text.Commas(data) > maxCommas {
		return about, nil, errTooMany
	}
	var asked admissionv1.AdmissionReview
	if err := json.Unmarshal(data, &asked); err != nil {
		return about, nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if asked.APIVersion != "admission.k8s.io/v1" || asked.Kind != "AdmissionReview" || asked.Request == nil ||
		asked.Request.UID == "" {
		return about, nil, fmt.Errorf("%w: it is not a request of admission.k8s.io/v1", errMalformed)
	}
	if q := asked.Request; max(len(q.Name), len(q.Namespace)) > maxName || len(q.UID) > maxUID {
		return about, nil, fmt.Errorf("%w: its name or UID is too long", errMalformed)
	}
	about = admissionv1.AdmissionReview{TypeMeta: asked.TypeMeta,
		Response: &admissionv1.AdmissionResponse{UID: asked.Request.UID}}
	answer, err = by(asked.Request)
	return about, answer, err
}

// decode reads an object of a review.
func decode(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

// NewServer returns a server of the webhooks without an address: the caller gives it a listener (ServeTLS with no
// files). certificate returns the certificate to present for each new connection.
func NewServer(handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *http.Server {
	return &http.Server{
		Handler: handler,
		// Only the API server connects, and it waits no longer than this.
		ReadHeaderTimeout: timeoutSeconds * time.Second,
		ReadTimeout:       2 * timeoutSeconds * time.Second,
		WriteTimeout:      2 * timeoutSeconds * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// Bodies that wait for their turn take no more memory.
		HTTP2:     &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
		ErrorLog:  klog.NewStandardLogger("WARNING"),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate},
	}
}
