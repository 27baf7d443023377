// Package authorization protects the HTTP port of a program. A request passes if the API server authenticates its
// sender (TokenReview), and authorizes the sender to get the path as a non-resource URL (SubjectAccessReview).
// Without an answer of the API server no request passes.
package authorization

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Filter authorizes requests. It is safe for concurrent use.
//
// The token of a request is taken from "Authorization: Bearer TOKEN", or, for browsers, from the password of HTTP
// Basic with any user name. It is neither logged nor stored: decisions are cached by its hash, positive ones for a
// minute and negative ones for 10 seconds. A revoked permission hence remains effective for a minute at most.
type Filter struct {
	permission.Checker
	reviews *reviews
}

// Permissions returns the permissions that a Filter needs.
func Permissions() []permission.Permission {
	const without = "every request that needs a token is answered with 503"
	return []permission.Permission{
		{Group: authenticationv1.GroupName, Resource: "tokenreviews", Verb: "create", Without: without},
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews", Verb: "create", Without: without},
	}
}

// New returns a Filter that uses the API server of config, which New copies. It sends no request by itself.
func New(config *rest.Config) (*Filter, error) {
	own := rest.CopyConfig(config)
	own.QPS = -1 // reviews has its own limit
	tokens, err := authentication.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("create a client for TokenReviews: %w", err)
	}
	access, err := authorization.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("create a client for SubjectAccessReviews: %w", err)
	}
	ask := &api{tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews()}
	return &Filter{permission.NewChecker(access, Permissions()), newReviews(ask, clock.RealClock{})}, nil
}

// Handler returns next for authorized requests. The permission for path covers all paths below it, which Handler does
// not distinguish.
func (f *Filter) Handler(path string, next http.Handler) http.Handler {
	allows := f.For(path)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allows(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// For returns a function that reports whether the sender of a request may get the path. If not, the function has
// answered the request: with 401 without a valid token, 403 without the permission, 429 while too many tokens are
// new, and 503 without the API server.
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

// maxToken bounds the length of a token in bytes. Tokens of OpenID Connect with many groups have some 10,000.
const maxToken = 1 << 16

// tokenOf returns the token of a request, or "".
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

// unauthenticated answers 401. A browser that is offered Basic asks the person for user name and password. The offer
// is made only when a page is opened, and not for requests of an open page, which would ask again and again.
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
