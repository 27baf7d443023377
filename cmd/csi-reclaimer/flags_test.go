package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
)

func TestFlagReference(t *testing.T) {
	o, err := newOptions()
	if err != nil {
		t.Fatal(err)
	}
	docs.CheckFlags(t, "csi-reclaimer", app.Flags(o))
}

// parse parses and validates a command line.
func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	o, err := newOptions()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range o.Flags().FlagSets {
		for _, arg := range args {
			name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if f := group.Lookup(name); f != nil {
				err = errors.Join(err, f.Value.Set(value))
			}
		}
	}
	return o, errors.Join(err, o.Validate())
}

func TestReclaimConfig(t *testing.T) {
	yes, no := true, false
	cases := map[string]struct {
		args  []string
		check func(reclaim.Config) bool
	}{
		"nothing: an owner that honours the policy": {nil, func(c reclaim.Config) bool {
			return c.Role == volume.RoleOwner && c.Mode == reclaim.ModeHonor && c.Scope == reclaim.ScopeBoundDelete &&
				!c.IgnoreStatic && c.ReclaimUnprotected == nil && !c.DryRun && c.Brake.Deletions == 0 && !c.NotFoundIsDeleted
		}},
		"a role": {[]string{"--role=companion"},
			func(c reclaim.Config) bool { return c.Role == volume.RoleCompanion }},
		"the way back": {[]string{"--honor-reclaim-policy=false"},
			func(c reclaim.Config) bool { return c.Mode == reclaim.ModeRollback }},
		"the stock gate off": {[]string{"--feature-gates=HonorPVReclaimPolicy=false"},
			func(c reclaim.Config) bool { return c.Mode == reclaim.ModeRollback }},
		"the way out": {[]string{"--release-finalizers=true"},
			func(c reclaim.Config) bool { return c.Mode == reclaim.ModeRelease }},
		"every policy": {[]string{"--finalizer-scope=bound-any"},
			func(c reclaim.Config) bool { return c.Scope == reclaim.ScopeBoundAny }},
		"no static PVs": {[]string{"--static-pvs=ignore"},
			func(c reclaim.Config) bool { return c.IgnoreStatic }},
		"unprotected ones, said yes": {[]string{"--reclaim-unprotected=true"},
			func(c reclaim.Config) bool { return *c.ReclaimUnprotected == yes }},
		"unprotected ones, said no": {[]string{"--reclaim-unprotected=false"},
			func(c reclaim.Config) bool { return *c.ReclaimUnprotected == no }},
		"a brake, on the owner's Lease": {[]string{"--brake-deletions=7", "--leader-election-namespace=ns"},
			func(c reclaim.Config) bool {
				return c.Brake.Deletions == 7 && c.Brake.Lease.String() == "ns/disk-example-com"
			}},
		"a brake, beside a peer": {[]string{"--brake-deletions=7", "--leader-election-namespace=ns", "--role=observer"},
			func(c reclaim.Config) bool {
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

func TestInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--role=other"}, {"--finalizer-scope=all"}, {"--static-pvs=maybe"}, {"--reclaim-unprotected=perhaps"},
		{"--role=observer", "--honor-reclaim-policy=false"}, {"--role=observer", "--release-finalizers=true"},
		{"--dry-run=true", "--release-finalizers=true"}, {"--brake-deletions=-1"},
		{"--brake-deletions=1", "--brake-window=0s"},
		{"--http-endpoint=:1", "--metrics-address=:2"}, {"--tracing-endpoint=collector/traces"},
	} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestProvisions(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want bool
	}{
		"an owner provisions":      {nil, true},
		"unless it is turned off":  {[]string{"--provision=false"}, false},
		"not beside a provisioner": {[]string{"--role=companion"}, false},
		"and may say so":           {[]string{"--role=observer", "--provision=false"}, false},
		"a dry run makes nothing":  {[]string{"--dry-run=true"}, false},
		"nor does a release":       {[]string{"--release-finalizers=true"}, false},
	} {
		o, err := parse(t, c.args...)
		if err != nil || o.provisions() != c.want {
			t.Errorf("%s: %v, %v", name, err == nil && o.provisions(), err)
		}
	}
	for _, args := range [][]string{
		{"--role=companion", "--provision=true"}, {"--node-deployment=true"},
		{"--snapshot-orphan-sweep-interval=-1s"}, {"--in-flight-quiet-period=-1s"}, {"--leader-election-labels=team"},
		{"--cloning-protection-threads=0"}, {"--volume-name-prefix=No_Name"}, {"--volume-name-uuid-length=33"},
	} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestBuilderAndProvisionConfig(t *testing.T) {
	o, err := parse(t, "--volume-name-prefix=disk", "--volume-name-uuid-length=8", "--immediate-topology=false",
		"--prevent-volume-mode-conversion=false",
		"--feature-gates=Topology=false", "--in-flight-quiet-period=7s", "--worker-threads=7")
	if err != nil {
		t.Fatal(err)
	}
	c, p := o.builderConfig("me", nil), o.provisionConfig(nil)
	s := c.Settings
	if !c.IgnoreTopology || s.VolumeNamePrefix != "disk" || s.VolumeNameUUIDLength != 8 || !s.SkipImmediateTopology ||
		!s.AllowModeConversion || s.Identity != "me" {
		t.Errorf("composer: %+v", c)
	}
	p.Log = &inflight.Log{}
	if p.Quiet != 7*time.Second || p.FinishOnly || p.Workers != 7 || p.Validate() != nil {
		t.Errorf("provisioner: %+v", p)
	}
	if o, err = parse(t); err != nil {
		t.Fatal(err)
	}
	c, p = o.builderConfig("", nil), o.provisionConfig(nil)
	if s := c.Settings; c.IgnoreTopology || s.SkipImmediateTopology || s.AllowModeConversion || s.StrictTopology ||
		p.Quiet != 105*time.Second {
		t.Errorf("by default: %+v, %+v", c, p)
	}
}

func TestOwnLabels(t *testing.T) {
	set := map[string]string{"team": "storage", objects.DriverLabel: "other"}
	for _, set := range []map[string]string{nil, set} {
		labels := ownLabels(set, "disk.csi.example.com")
		if labels[objects.DriverLabel] != "disk.csi.example.com" || labels["team"] != set["team"] {
			t.Errorf("labels are %v", labels)
		}
	}
	if set[objects.DriverLabel] != "other" {
		t.Error("the flag's own labels are changed")
	}
}

// FuzzLeaseName checks that the API server accepts the Lease's name and label for every valid driver name.
func FuzzLeaseName(f *testing.F) {
	for _, driver := range []string{"disk.csi.example.com", "Disk.CSI", "a", "a-b.c", strings.Repeat("a", 63), "0.0"} {
		f.Add(driver)
	}
	f.Fuzz(func(t *testing.T, driver string) {
		if csidriver.CheckName(driver) != nil {
			return
		}
		for _, role := range []volume.Role{volume.RoleOwner, volume.RoleCompanion, volume.RoleObserver} {
			if problems := validation.IsDNS1123Subdomain(leaseName(driver, role)); len(problems) > 0 {
				t.Errorf("the Lease %q of driver %q: %v", leaseName(driver, role), driver, problems)
			}
		}
		if problems := validation.IsValidLabelValue(driver); len(problems) > 0 {
			t.Errorf("the label of driver %q: %v", driver, problems)
		}
	})
}
