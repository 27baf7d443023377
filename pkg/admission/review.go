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
)

// maxBody bounds a request, in bytes: twice the API server's limit for one object (3 MiB) and some more, because a
// review holds the object before and after the write.
const maxBody = 7 << 20

// errMalformed means that the request is not an AdmissionReview that can be answered. The API server treats the answer
// as a failure of the webhook, and applies its failurePolicy.
var errMalformed = errors.New("malformed admission review")

// reviewFunc answers one request; an error is answered as a failure of the webhook.
type reviewFunc func(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// review returns a handler of AdmissionReviews (v1).
func review(by reviewFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := statusOf(r); code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		answer, err := answerTo(r.Context(), http.MaxBytesReader(w, r.Body, maxBody), by)
		_, tooLong := errors.AsType[*http.MaxBytesError](err)
		switch {
		case tooLong:
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		case errors.Is(err, errMalformed):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			klog.FromContext(r.Context()).Error(err, "Admitting a write that could not be reviewed", "path", r.URL.Path)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer) // a write error means that the API server has gone
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

// answerTo reads a review and returns the answer to it.
func answerTo(ctx context.Context, body io.Reader, by reviewFunc) ([]byte, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read an admission review: %w", err)
	}
	var asked admissionv1.AdmissionReview
	if err := json.Unmarshal(data, &asked); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if asked.APIVersion != "admission.k8s.io/v1" || asked.Kind != "AdmissionReview" || asked.Request == nil ||
		asked.Request.UID == "" {
		return nil, fmt.Errorf("%w: it is not a request of admission.k8s.io/v1", errMalformed)
	}
	response, err := by(ctx, asked.Request)
	if err != nil {
		return nil, err
	}
	response.UID = asked.Request.UID
	answer, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: asked.TypeMeta, Response: response})
	if err != nil {
		return nil, fmt.Errorf("write the answer to an admission review: %w", err)
	}
	return answer, nil
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
		ErrorLog:          klog.NewStandardLogger("WARNING"),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate},
	}
}
