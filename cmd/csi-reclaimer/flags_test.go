package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
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

func TestWhatIsProvisioned(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want bool
	}{
		"an owner provisions":               {nil, true},
		"unless it is told not to":          {[]string{"--provision=false"}, false},
		"beside a provisioner nobody does":  {[]string{"--role=companion"}, false},
		"and may say so":                    {[]string{"--role=observer", "--provision=false"}, false},
		"a dry run makes nothing":           {[]string{"--dry-run=true"}, false},
		"nor does a release":                {[]string{"--release-finalizers=true"}, false},
		"what is off need not be supported": {[]string{"--enable-capacity=false", "--node-deployment=false"}, true},
	} {
		o, err := parse(t, c.args...)
		if err != nil || o.provisions() != c.want {
			t.Errorf("%s: %v, %v", name, err == nil && o.provisions(), err)
		}
	}
	for _, args := range [][]string{
		{"--role=companion", "--provision=true"}, {"--node-deployment=true"}, {"--node-deployment-base-delay=1m"},
		{"--feature-gates=CrossNamespaceVolumeDataSource=true"}, {"--feature-gates=VolumeAttributesClass=false"},
		{"--cloning-protection-threads=0"}, {"--volume-name-prefix=No_Name"}, {"--volume-name-uuid-length=33"},
	} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestWhatVolumesAreToBeLike(t *testing.T) {
	o, err := parse(t, "--volume-name-prefix=disk", "--volume-name-uuid-length=8", "--immediate-topology=false", "--prevent-volume-mode-conversion=false",
		"--feature-gates=Topology=false", "--provisioning-finalizer=false", "--worker-threads=7")
	if err != nil {
		t.Fatal(err)
	}
	c, p := o.composerConfig("me"), o.provisionConfig()
	s := c.Settings
	if !c.IgnoreTopology || s.VolumeNamePrefix != "disk" || s.VolumeNameUUIDLength != 8 || !s.SkipImmediateTopology || !s.AllowModeConversion || s.Identity != "me" {
		t.Errorf("composer: %+v", c)
	}
	if !p.NoFinalizer || p.Workers != 7 || p.Validate() != nil {
		t.Errorf("provisioner: %+v", p)
	}
	if o, err = parse(t); err != nil {
		t.Fatal(err)
	}
	c, p = o.composerConfig(""), o.provisionConfig()
	if s := c.Settings; c.IgnoreTopology || s.SkipImmediateTopology || s.AllowModeConversion || s.StrictTopology || p.NoFinalizer {
		t.Errorf("by default: %+v, %+v", c, p)
	}
}

func TestTheLogIsKeptBelowTheLevelOfSecrets(t *testing.T) {
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
			o, err := parse(t, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			limited, modules := o.limitVerbosity(), logsapi.VModuleConfigurationPflag(&o.logging.VModule).String()
			if limited != c.limited || uint32(o.logging.Verbosity) != c.v || modules != c.modules {
				t.Errorf("limited %v, -v=%d --vmodule=%s", limited, o.logging.Verbosity, modules)
			}
		})
	}
}

// FuzzLeaseName: whatever name a driver may have, the API server takes the Lease's.
func FuzzLeaseName(f *testing.F) {
	for _, driver := range []string{"disk.csi.example.com", "Disk.CSI", "a", "a-b.c", strings.Repeat("a", 63), "0.0"} {
		f.Add(driver)
	}
	f.Fuzz(func(t *testing.T, driver string) {
		if csidriver.CheckName(driver) != nil {
			return
		}
		for _, role := range []reclaim.Role{reclaim.RoleOwner, reclaim.RoleCompanion, reclaim.RoleObserver} {
			if problems := validation.IsDNS1123Subdomain(leaseName(driver, role)); len(problems) > 0 {
				t.Errorf("the Lease %q of driver %q: %v", leaseName(driver, role), driver, problems)
			}
		}
	})
}
