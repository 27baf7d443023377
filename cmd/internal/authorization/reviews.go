package authorization

import (
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
)

const (
	// allowedFor and refusedFor are how long a decision counts.
	allowedFor = time.Minute
	refusedFor = 10 * time.Second
	// knownFor is how long a token that was allowed is reviewed again without regard to the limit: tokens that nobody
	// knows, however many, do not lock out those who were let in before.
	knownFor = 10 * time.Minute
	// maxDecisions bounds how many decisions are kept.
	maxDecisions = 4096
	// newPerSecond and newBurst bound how many unknown tokens and paths the API server is asked about.
	newPerSecond, newBurst = 20, 50
	// askTimeout bounds both reviews of a request together.
	askTimeout = 10 * time.Second
)

// errBusy: the limit is reached.
var errBusy = errors.New("too many unknown tokens")

// key is what decisions are kept by.
type key struct {
	token [sha256.Size]byte
	path  string
}

// decision is what the API server said.
type decision struct {
	// user is empty for a token that is not valid.
	user    string
	allowed bool
}

// asker asks the API server.
type asker interface {
	ask(ctx context.Context, token, path string) (decision, error)
}

// reviews keeps the decisions of the API server. It is safe for concurrent use.
type reviews struct {
	api   asker
	clock clock.PassiveClock
	kept  *cache.LRUExpireCache
	limit flowcontrol.PassiveRateLimiter
	// asking has the requests of a page wait for one review.
	asking singleflight.Group
}

// kept is a decision, and how long it counts.
type kept struct {
	decision
	until time.Time
}

func newReviews(api asker, clock clock.PassiveClock) *reviews {
	return &reviews{api: api, clock: clock, kept: cache.NewLRUExpireCacheWithClock(maxDecisions, clock),
		limit: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(newPerSecond, newBurst, clock)}
}

// decide returns what the API server says, or said a short time ago. ctx bounds the wait, not the reviews, whose answer
// counts for others, too.
func (r *reviews) decide(ctx context.Context, token, path string) (decision, error) {
	k := key{token: sha256.Sum256([]byte(token)), path: path}
	if last, counts := r.get(k); counts {
		return last.decision, nil
	}
	answered := r.asking.DoChan(string(k.token[:])+path, func() (any, error) {
		// Another request's review may have ended since.
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
	})
	select {
	case <-ctx.Done():
		return decision{}, ctx.Err()
	case answer := <-answered:
		now, _ := answer.Val.(decision)
		return now, answer.Err
	}
}

// get returns the last decision, and whether it still counts.
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

// api asks a real API server.
type api struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
}

// ask asks who has the token, for the audiences of the API server itself, and whether they may get the path.
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
