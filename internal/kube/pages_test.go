package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each page has its own timeout.
func TestEachPage(t *testing.T) {
	const limit = time.Minute
	next := map[string]string{"": "a", "a": "b", "b": ""}
	var asked []string
	read := func(ctx context.Context, o metav1.ListOptions) (string, error) {
		asked = append(asked, o.Continue)
		if ends, limited := ctx.Deadline(); !limited || time.Until(ends) > limit {
			t.Errorf("page %q may take until %v", o.Continue, ends)
		}
		if o.Limit != 7 {
			t.Errorf("page %q is asked for with %+v", o.Continue, o)
		}
		return next[o.Continue], nil
	}
	if err := EachPage(t.Context(), metav1.ListOptions{Limit: 7}, limit, read); err != nil ||
		!slices.Equal(asked, []string{"", "a", "b"}) {
		t.Errorf("asked for %q, %v", asked, err)
	}
}

func TestEachPageEndsWithFirstError(t *testing.T) {
	broken := errors.New("expired")
	calls := 0
	err := EachPage(t.Context(), metav1.ListOptions{}, time.Minute, func(context.Context, metav1.ListOptions) (string,
		error) {
		calls++
		if calls == 2 {
			return "", broken
		}
		return "more", nil
	})
	if !errors.Is(err, broken) || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
