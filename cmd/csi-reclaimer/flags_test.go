package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// -update writes the reference anew (make docs).
var update = flag.Bool("update", false, "write docs/csi-reclaimer-flags.md")

func TestTheFlagReferenceIsCurrent(t *testing.T) {
	o, err := newOptions()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "docs", "csi-reclaimer-flags.md")
	want := reference(o.flags())
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the program says; run make docs", file)
	}
}

// parse reads a command line.
func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	o, err := newOptions()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range o.flags().FlagSets {
		for _, arg := range args {
			name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if f := group.Lookup(name); f != nil {
				err = errors.Join(err, f.Value.Set(value))
			}
		}
	}
	return o, errors.Join(err, o.validate())
}

func TestWhatTheFlagsMean(t *testing.T) {
	yes, no := true, false
	cases := map[string]struct {
		args  []string
		check func(reclaim.Config) bool
	}{
		"nothing: an owner that honours the policy": {nil, func(c reclaim.Config) bool {
			return c.Role == reclaim.RoleOwner && c.Mode == reclaim.ModeHonor && c.Scope == reclaim.ScopeBoundDelete &&
				!c.IgnoreStatic && c.ReclaimUnprotected == nil && !c.DryRun && c.Brake.Deletions == 0 && !c.NotFoundIsDeleted
		}},
		"a role":                     {[]string{"--role=companion"}, func(c reclaim.Config) bool { return c.Role == reclaim.RoleCompanion }},
		"the way back":               {[]string{"--honor-reclaim-policy=false"}, func(c reclaim.Config) bool { return c.Mode == reclaim.ModeRollback }},
		"the stock gate off":         {[]string{"--feature-gates=HonorPVReclaimPolicy=false"}, func(c reclaim.Config) bool { return c.Mode == reclaim.ModeRollback }},
		"the way out":                {[]string{"--release-finalizers=true"}, func(c reclaim.Config) bool { return c.Mode == reclaim.ModeRelease }},
		"every policy":               {[]string{"--finalizer-scope=bound-any"}, func(c reclaim.Config) bool { return c.Scope == reclaim.ScopeBoundAny }},
		"no static PVs":              {[]string{"--static-pvs=ignore"}, func(c reclaim.Config) bool { return c.IgnoreStatic }},
		"unprotected ones, said yes": {[]string{"--reclaim-unprotected=true"}, func(c reclaim.Config) bool { return *c.ReclaimUnprotected == yes }},
		"unprotected ones, said no":  {[]string{"--reclaim-unprotected=false"}, func(c reclaim.Config) bool { return *c.ReclaimUnprotected == no }},
		"a brake, on the owner's Lease": {[]string{"--brake-deletions=7", "--leader-election-namespace=ns"}, func(c reclaim.Config) bool {
			return c.Brake.Deletions == 7 && c.Brake.Lease.String() == "ns/disk-example-com"
		}},
		"a brake, beside a peer": {[]string{"--brake-deletions=7", "--leader-election-namespace=ns", "--role=observer"}, func(c reclaim.Config) bool {
			return c.Brake.Lease.String() == "ns/disk-example-com-reclaimer"
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			got := o.reclaimConfig("disk.example.com")
			if err := got.Validate(); err != nil || !c.check(got) {
				t.Errorf("%v, %+v", err, got)
			}
		})
	}
}

func TestFlagsThatContradict(t *testing.T) {
	for _, args := range [][]string{
		{"--role=other"}, {"--finalizer-scope=all"}, {"--static-pvs=maybe"}, {"--reclaim-unprotected=perhaps"},
		{"--role=observer", "--honor-reclaim-policy=false"}, {"--role=observer", "--release-finalizers=true"},
		{"--dry-run=true", "--release-finalizers=true"}, {"--brake-deletions=-1"}, {"--brake-deletions=1", "--brake-window=0s"},
		{"--http-endpoint=:1", "--metrics-address=:2"},
	} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
