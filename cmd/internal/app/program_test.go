package app

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// An interrupted task has failed. The caller would otherwise remove the program before its finalizers.
func TestAtEnd(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	broken, start := errors.New("broken"), fmt.Errorf("start: %w", context.Canceled)
	for sentence, c := range map[string]struct {
		ctx      context.Context
		task     bool
		err      error
		fails    error
		succeeds bool
	}{
		"it runs to its end":                 {t.Context(), false, nil, nil, true},
		"it fails":                           {t.Context(), false, broken, broken, false},
		"a call is cancelled by another":     {t.Context(), false, start, context.Canceled, false},
		"it ends during its start":           {ended, false, start, nil, true},
		"it fails at its end":                {ended, false, broken, broken, false},
		"a task is done":                     {t.Context(), true, nil, nil, true},
		"a task fails":                       {t.Context(), true, broken, broken, false},
		"a task is interrupted":              {ended, true, start, errInterrupted, false},
		"a task is interrupted in a wait":    {ended, true, nil, errInterrupted, false},
		"a task is interrupted after errors": {ended, true, errors.Join(broken, start), broken, false},
	} {
		err := AtEnd(c.ctx, c.task, c.err)
		if c.succeeds != (err == nil) || !errors.Is(err, c.fails) {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}

func TestLogLevelLimit(t *testing.T) {
	cases := map[string]struct {
		args    []string
		limited bool
		v       uint32
		modules string
	}{
		"nothing said":           {nil, false, 0, ""},
		"the highest there is":   {[]string{"--v=7"}, false, 7, ""},
		"more":                   {[]string{"--v=10"}, true, 7, ""},
		"more for one file":      {[]string{"--v=2", "--vmodule=request=8"}, true, 2, "request=7"},
		"more for one of two":    {[]string{"--vmodule=request=99,main=3"}, true, 0, "request=7,main=3"},
		"less for all and a few": {[]string{"--v=1", "--vmodule=main=3"}, false, 1, "main=3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var l logging
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			l.flags(fs)
			must.OK(t, fs.Parse(c.args))
			limited, modules := l.limit(), logsapi.VModuleConfigurationPflag(&l.VModule).String()
			if limited != c.limited || uint32(l.Verbosity) != c.v || modules != c.modules {
				t.Errorf("limited %v, -v=%d --vmodule=%s", limited, l.Verbosity, modules)
			}
		})
	}
}
