//go:build linux

package nodes

import "testing"

func TestOptions(t *testing.T) {
	for sentence, c := range map[string]struct {
		names []string
		valid bool
	}{
		"one":                        {[]string{"node"}, true},
		"two":                        {[]string{"node-1", "node-2"}, true},
		"none":                       {nil, false},
		"one of no name":             {[]string{""}, false},
		"a name that is no label":    {[]string{"Node"}, false},
		"a path":                     {[]string{"../node"}, false},
		"a name that ends in a dash": {[]string{"node-"}, false},
		"a name that is too long":    {[]string{"a-very-long-name"}, false},
		"one name twice":             {[]string{"node", "node"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if err := (Options{Names: c.names}).validate(); (err == nil) != c.valid {
				t.Errorf("got %v, want valid: %v", err, c.valid)
			}
		})
	}
}
