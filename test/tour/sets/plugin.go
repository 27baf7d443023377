//go:build unix

package sets

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// forecast is the plugin's preview for one claim before a change.
type forecast struct {
	UID     types.UID
	Deleted bool
}

// reclaim runs kubectl reclaim, and returns the claims of its answer.
func (act *act) reclaim(ctx context.Context, args ...string) (claims []pluginClaim, err error) {
	var answer struct{ Claims []pluginClaim }
	err = act.AskPlugin(ctx, &answer, args...)
	return answer.Claims, err
}

// pluginClaim is a claim in an answer of the plugin. A preview names it in Claim, a list in Name.
type pluginClaim struct{ Claim, Fate, Name, Size string }

// preview asks the plugin for the effect of the scale-down of cache.
func (act *act) preview(ctx context.Context) error {
	act.t.User("kubectl reclaim preview sts/cache --replicas=1")
	claims, err := act.reclaim(ctx, "preview", "sts/"+cacheSet, "--replicas=1", "-n="+act.Maker.Namespace)
	if err != nil {
		return err
	}
	act.forecasts = map[string]forecast{}
	var words []string
	for _, c := range claims {
		claim, err := act.claims().Get(ctx, c.Claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		act.forecasts[c.Claim] = forecast{claim.UID, c.Fate == "deleted"}
		words = append(words, c.Claim+" is "+c.Fate)
	}
	act.t.Plugin(strings.Join(words, ", "))
	return nil
}

// listRetained asks the plugin for the claims that StatefulSets have left behind.
func (act *act) listRetained(ctx context.Context) error {
	act.t.User("kubectl reclaim status --retained")
	claims, err := act.reclaim(ctx, "status", "--retained", "-n="+act.Maker.Namespace)
	if err != nil {
		return err
	}
	var words []string
	for _, c := range claims {
		act.retainedClaims = append(act.retainedClaims, c.Name)
		words = append(words, c.Name+", "+c.Size)
	}
	act.t.Plugin(strings.Join(words, "; "))
	return nil
}

// judgePlugin compares the plugin's answers with the API server's objects.
func (act *act) judgePlugin(ctx context.Context) (string, error) {
	if act.forecasts == nil {
		return notAsked, nil
	}
	if !slices.Equal(act.retainedClaims, []string{"data-" + retainedSet + "-1"}) {
		return unlisted, nil
	}
	for name, f := range act.forecasts {
		claim, err := act.claims().Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
		if deleted := err != nil || claim.UID != f.UID; deleted != f.Deleted {
			return mistaken, nil
		}
	}
	return foreseen, nil
}
