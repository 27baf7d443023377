package objects

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestFailedWaitReportsLastState(t *testing.T) {
	type look struct {
		state string // of the object; it is gone where that is empty
		err   error
	}
	for name, c := range map[string]struct {
		looks []look
		want  string
	}{
		"an object that stays as it was": {looks: []look{{state: "Pending"}, {state: "Pending"}},
			want: "last seen: Pending"},
		"one that goes":           {looks: []look{{state: "Pending"}, {}}, want: "last seen: gone"},
		"one that cannot be read": {looks: []look{{err: errors.New("refused")}}, want: "last seen: refused"},
		"one that cannot be read anymore": {looks: []look{{state: "Pending"}, {err: errors.New("refused")}},
			want: "last seen: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			get := func(context.Context) (*string, error) {
				if len(c.looks) == 0 {
					cancel()
					return nil, ctx.Err() // as a client answers then; it says nothing of the object
				}
				now := c.looks[0]
				c.looks = c.looks[1:]
				if now.err != nil || now.state == "" {
					return nil, now.err
				}
				return &now.state, nil
			}
			describe := func(state *string) string {
				if state == nil {
					return "gone"
				}
				return *state
			}
			bound := func(state *string) bool { return state != nil && *state == "Bound" }
			err := wait(ctx, "claim to be bound", get, bound, describe)
			if !errors.Is(err, context.Canceled) || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestWaitEndsWithCondition(t *testing.T) {
	looks := 0
	get := func(context.Context) (*int, error) {
		if looks++; looks == 1 {
			return nil, errors.New("no API server yet")
		}
		return &looks, nil
	}
	err := wait(t.Context(), "the third look", get, func(n *int) bool { return *n == 3 }, func(*int) string { return "" })
	if err != nil || looks != 3 {
		t.Errorf("got %v after %d looks", err, looks)
	}
}
