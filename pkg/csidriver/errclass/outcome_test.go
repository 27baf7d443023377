package errclass

import (
	"errors"
	"fmt"
	"testing"
)

func TestOf(t *testing.T) {
	cause := errors.New("quota exceeded")
	cases := map[string]struct {
		err  error
		want Class
	}{
		"no error is done": {nil, Done},
		"an unmarked error leaves the outcome uncertain": {cause, Uncertain},
		"a mark is found through wrapping":               {fmt.Errorf("delete volume: %w", Mark(Refused, cause)), Refused},
		"the outermost mark counts": {Mark(InProgress,
			fmt.Errorf("again: %w", Mark(Refused, cause))), InProgress},
		"an error marked done is still an error": {Mark(Done, cause), Uncertain},
		"marking no error leaves no error":       {Mark(Refused, nil), Done},
		"not found differs from late":            {Mark(NotFound, cause), NotFound},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Of(c.err); got != c.want {
				t.Errorf("Of(%v) = %v, want %v", c.err, got, c.want)
			}
		})
	}
	if err := Mark(Refused, cause); !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("Mark(Refused, %v) = %v: the cause or its words are lost", cause, err)
	}
}
