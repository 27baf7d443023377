package authorization

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
)

const (
	// allowedFor and refusedFor are the lifetimes of positive and negative decisions.
	allowedFor = time.Minute
	refusedFor = 10 * time.Second
	// knownFor is how long an allowed token bypasses the limit when it is reviewed again, so that any number of unknown
	// tokens cannot lock out its sender.
	knownFor = 10 * time.Minute
	// maxDecisions bounds the number of cached decisions.
	maxDecisions = 4096
	// newPerSecond and newBurst limit the reviews of unknown tokens and paths.
	newPerSecond, newBurst = 20, 50
	// askTimeout is the total timeout of both reviews of a request.
	askTimeout = 10 * time.Second
)

// errBusy means that the limit for unknown tokens is reached.
var errBusy = errors.New("too many unknown tokens")

// key is the cache key of a decision.
type key struct {
	token [sha256.Size]byte
	path  string
}

// decision is the API server's answer about a request.
type decision struct {
	// user is empty for an invalid token.
	user    string
	allowed bool
}

// asker is the API server's part of a decision, replaced in tests.
type asker interface {
	ask(ctx context.Context, token, path string) (decision, error)
}

// reviews caches the API server's decisions, and is safe for concurrent use.
type reviews struct {
	api   asker
	clock clock.PassiveClock
	kept  *cache.LRUExpireCache
	limit flowcontrol.PassiveRateLimiter
	// asking merges concurrent requests, such as the requests of one page, into one review.
	asking singleflight.Group
}

type kept struct {
	decision
	until time.Time
}

func newReviews(api asker, clock clock.PassiveClock) *reviews {
	return &reviews{api: api, clock: clock, kept: cache.NewLRUExpireCacheWithClock(maxDecisions, clock),
		limit: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(newPerSecond, newBurst, clock)}
}

// decide returns the API server's decision, or a cached one. ctx bounds only the wait, not the review itself, because
// its answer is for other requests, too.
func (r *reviews) decide(ctx context.Context, token, path string) (decision, error) {
	k := key{token: sha256.Sum256([]byte(token)), path: path}
	if last, counts := r.get(k); counts {
		return last.decision, nil
	}
	review := func() (decision, error) {
		// The review of another request may have ended since the first look into the cache.
		last, counts := r.get(k)
		if counts {
			return last.decision, nil
		}
		if !last.allowed && !r.limit.TryAccept() {
			return decision{}, errBusy
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		now, err := r.api.ask(ctx, token, path)
		if err == nil {
			r.keep(k, now)
		}
		return now, err
	}
	// singleflight ends the program if its function panics.
	answered := r.asking.DoChan(string(k.token[:])+path, func() (now any, err error) {
		failed := panics.Contain(ctx, func() { now, err = review() }, "part", "authorization")
		return now, cmp.Or(failed, err)
	})
	select {
	case <-ctx.Done():
		return decision{}, ctx.Err()
	case answer := <-answered:
		now, _ := answer.Val.(decision)
		return now, answer.Err
	}
}

// get returns the last decision, and whether it is still valid.
func (r *reviews) get(k key) (last kept, counts bool) {
	value, _ := r.kept.Get(k)
	last, known := value.(kept)
	return last, known && r.clock.Now().Before(last.until)
}

func (r *reviews) keep(k key, d decision) {
	if d.allowed {
		r.kept.Add(k, kept{d, r.clock.Now().Add(allowedFor)}, knownFor)
		return
	}
	r.kept.Add(k, kept{d, r.clock.Now().Add(refusedFor)}, refusedFor)
}

type api struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
}

// ask reviews the token, for the audiences of the API server itself, and then the sender's access to the path.
func (a *api) ask(ctx context.Context, token, path string) (decision, error) {
	who, err := a.tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("review a token: %w", err)
	}
	user := who.Status.User
	if !who.Status.Authenticated || user.Username == "" {
		return decision{}, nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	may, err := a.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("review the access of user %q to %s: %w", user.Username, path, err)
	}
	return decision{user: user.Username, allowed: may.Status.Allowed && !may.Status.Denied}, nil
}
