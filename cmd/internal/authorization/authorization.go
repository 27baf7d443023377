// Package authorization lets requests to the HTTP port of a program pass if the API server says who sends them
// (TokenReview), and that they may get the path as a non-resource URL (SubjectAccessReview). Without an answer of the
// API server nothing passes.
package authorization

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Filter decides on requests. It is safe for concurrent use.
//
// The token of a request is that of "Authorization: Bearer TOKEN", or, for browsers, the password of HTTP Basic with
// any user name. It is neither logged nor kept: decisions are kept by its hash, allowed ones for a minute, others for
// 10 seconds. So a permission that was taken away lasts a minute at most.
type Filter struct {
	reviews *reviews
	// own is for the program's own permissions.
	own authorization.AuthorizationV1Interface
}

// New returns a Filter that asks the API server of config, which is copied. It asks nothing before a request.
func New(config *rest.Config) (*Filter, error) {
	own := rest.CopyConfig(config)
	own.QPS = -1 // reviews has a limit
	tokens, err := authentication.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("create a client for TokenReviews: %w", err)
	}
	access, err := authorization.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("create a client for SubjectAccessReviews: %w", err)
	}
	ask := &api{tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews()}
	return &Filter{reviews: newReviews(ask, clock.RealClock{}), own: access}, nil
}

// Handler returns next for those who may get the path. What is below the path has to be the same to them: it is not
// looked at.
func (f *Filter) Handler(path string, next http.Handler) http.Handler {
	allows := f.For(path)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allows(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// For returns what reports whether the sender of a request may get the path. If not, it has answered the request: 401
// without a valid token, 403 without the permission, 429 while too many tokens are new, 503 without the API server.
func (f *Filter) For(path string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		token := tokenOf(r)
		if token == "" || len(token) > maxToken {
			unauthenticated(w, r, "a token is required: send it as \"Authorization: Bearer TOKEN\", or type it as the "+
				"password, with any user name")
			return false
		}
		decision, err := f.reviews.decide(r.Context(), token, path)
		switch {
		case errors.Is(err, errBusy):
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests, "too many tokens are new: try again")
		case err != nil:
			klog.FromContext(r.Context()).Info("The API server did not say whether a request is authorized", "path", path,
				"err", strings.ReplaceAll(err.Error(), token, "***"))
			w.Header().Set("Retry-After", "5")
			refuse(w, http.StatusServiceUnavailable, "the API server did not say whether the token is valid and suffices: "+
				"try again. If it lasts, the log of this program says why; it may lack the permission to create tokenreviews "+
				"or subjectaccessreviews (ClusterRole system:auth-delegator)")
		case decision.user == "":
			unauthenticated(w, r, "the token is not valid, or no longer: create another one")
		case !decision.allowed:
			klog.FromContext(r.Context()).V(2).Info("A request is not authorized", "user", decision.user, "path", path)
			refuse(w, http.StatusForbidden, fmt.Sprintf("user %q may not get %s: bind to it a ClusterRole with the rule "+
				"{nonResourceURLs: [%q], verbs: [\"get\"]}", decision.user, path, path))
		default:
			return true
		}
		return false
	}
}

// maxToken bounds the length of a token in bytes. Those of OpenID Connect with many groups have some 10,000.
const maxToken = 1 << 16

// tokenOf returns the token of a request, empty if there is none.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// unauthenticated answers 401. Where the answer offers Basic, a browser asks the person for user name and password. It
// does so when a page is opened, and not for what an open page requests by itself: it would ask again and again.
func unauthenticated(w http.ResponseWriter, r *http.Request, why string) {
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode == "" || mode == "navigate" {
		w.Header().Add("WWW-Authenticate", `Basic realm="the token is the password", charset="UTF-8"`)
	}
	w.Header().Add("WWW-Authenticate", `Bearer realm="csi-reclaimer"`)
	refuse(w, http.StatusUnauthorized, why)
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, strings.ToLower(http.StatusText(status))+": "+why, status)
}
