package leader

import (
	"maps"
	"testing"

	"github.com/spf13/pflag"
)

func TestLeaseLabelsFlag(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"team:storage":                    {"team": "storage"},
		"team:storage,example.com/tier:1": {"team": "storage", "example.com/tier": "1"},
		"empty:":                          {"empty": ""},
		"team":                            nil,
		"a:b:c":                           nil,
		"no key:value":                    nil,
		"key:no value":                    nil,
		"":                                nil,
		"team:storage,":                   nil,
		"team:storage --leader-election-labels=a:": nil,
	} {
		var o Options
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Flags(fs, "a Lease", "")
		err := fs.Parse([]string{"--leader-election-labels=" + text})
		if (err == nil) != (want != nil) || err == nil && !maps.Equal(o.Settings.Labels, want) {
			t.Errorf("%q: %v, %v", text, o.Settings.Labels, err)
		}
	}
}
