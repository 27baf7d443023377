//go:build unix

package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestConclude(t *testing.T) {
	untidy := fmt.Errorf("%w: folder not empty", errUntidy)
	cases := map[string]struct {
		err         error
		interrupted bool
		status      int
		line        string
	}{
		"all right":                            {nil, false, 0, ""},
		"Ctrl-C ends a kept cluster":           {nil, true, 0, ""},
		"something does not start":             {errors.New("no etcd"), false, 1, "no etcd"},
		"something is left behind":             {untidy, false, 1, "folder not empty"},
		"Ctrl-C in the middle":                 {context.Canceled, true, 130, "has ended"},
		"Ctrl-C, and something is left":        {errors.Join(context.Canceled, untidy), true, 130, "folder not empty"},
		"a wrong verdict, kept until Ctrl-C":   {errWrong, true, 1, "wrong verdict"},
		"a wrong verdict and something left":   {errors.Join(errWrong, untidy), false, 1, "folder not empty"},
		"a wrong verdict":                      {errWrong, false, 1, "wrong verdict"},
		"a deadline is not taken for a Ctrl-C": {context.DeadlineExceeded, false, 1, "deadline"},
	}
	for name, c := range cases {
		status, line := conclude(c.err, c.interrupted)
		if status != c.status || !strings.Contains(line, c.line) || (line == "") != (c.line == "") {
			t.Errorf("%s: %d %q, want %d with %q", name, status, line, c.status, c.line)
		}
	}
}
