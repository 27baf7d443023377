package main

import (
	"testing"
	"time"
)

func TestChecksLeaks(t *testing.T) {
	for sentence, c := range map[string]struct {
		args []string
		want bool
	}{
		"nothing, by default":                 {nil, false},
		"every hour":                          {[]string{"--leak-check-interval=1h"}, true},
		"in every role":                       {[]string{"--leak-check-interval=1h", "--role=observer"}, true},
		"also where nothing else is done":     {[]string{"--leak-check-interval=1h", "--dry-run=true"}, true},
		"not while finalizers are removed":    {[]string{"--leak-check-interval=1h", "--release-finalizers=true"}, false},
		"settings of nothing are not checked": {[]string{"--leak-check-sightings=0"}, false},
	} {
		o, err := parse(t, c.args...)
		if err != nil || o.checksLeaks() != c.want {
			t.Errorf("%s: %v, %v", sentence, err == nil && o.checksLeaks(), err)
		}
	}
	for _, args := range [][]string{
		{"--leak-check-interval=-1s"}, {"--leak-check-interval=1h", "--leak-check-sightings=1"},
		{"--leak-check-interval=1h", "--leak-check-grace=-1s"}, {"--leak-check-interval=1h", "--leak-check-page-size=-1"},
	} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestLeakConfig(t *testing.T) {
	o, err := parse(t, "--leak-check-interval=2h", "--leak-check-sightings=5", "--leak-check-grace=0s",
		"--leak-check-page-size=0", "--leader-election-namespace=ns")
	if err != nil {
		t.Fatal(err)
	}
	c := o.leakConfig("disk.example.com")
	if c.Interval != 2*time.Hour || c.Sightings != 5 || c.Grace >= 0 || c.PageSize >= 0 ||
		c.On.String() != "ns/disk-example-com" || c.Validate() != nil {
		t.Errorf("%+v, %v", c, c.Validate())
	}
	if o, err = parse(t, "--leak-check-interval=2h"); err != nil {
		t.Fatal(err)
	}
	if c = o.leakConfig("d"); c.Sightings != 3 || c.Grace != time.Hour || c.PageSize != 500 {
		t.Errorf("by default: %+v", c)
	}
}
