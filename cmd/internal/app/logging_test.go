package app

import (
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

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
			if err := fs.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			limited, modules := l.limit(), logsapi.VModuleConfigurationPflag(&l.VModule).String()
			if limited != c.limited || uint32(l.Verbosity) != c.v || modules != c.modules {
				t.Errorf("limited %v, -v=%d --vmodule=%s", limited, l.Verbosity, modules)
			}
		})
	}
}
