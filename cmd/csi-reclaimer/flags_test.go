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
	groups := o.Flags().FlagSets
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		known := false
		for _, group := range groups {
			if f := group.Lookup(name); f != nil {
				known = true
				err = errors.Join(err, f.Value.Set(value))
			}
		}
		if !known {
			t.Errorf("no flag --%s", name)
		}
	}
	return o, errors.Join(err, o.Validate())
}

func TestReclaimConfig(t *testing.T) {
	cases := map[string]struct {
		args  []string
		check func(reclaim.Config) bool
	}{
		"nothing: an owner that honours the policy": {nil, func(c reclaim.Config) bool {
			return c.Role == volume.RoleOwner && c.Mode == reclaim.ModeHonor && c.Scope == reclaim.ScopeBoundDelete &&
				!c.IgnoreStatic && c.ReclaimUnprotected == nil && !c.DryRun && c.Brake.Deletions == 0 && !c.NotFoundIsDeleted
		}},
		"a driver that answers NotFound": {[]string{"--not-found-is-deleted=true"},
			func(c reclaim.Config) bool { return c.NotFoundIsDeleted }},
		"a slow driver, and a long Lease": {[]string{"--timeout=1h", "--leader-election-lease-duration=7m"},
			func(c reclaim.Config) bool { return c.CallTimeout > time.Hour && c.TakeoverPeriod == 7*time.Minute }},
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
			func(c reclaim.Config) bool { return *c.ReclaimUnprotected }},
		"unprotected ones, said no": {[]string{"--reclaim-unprotected=false"},
			func(c reclaim.Config) bool { return !*c.ReclaimUnprotected }},
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
	const checks = "--leak-check-interval=1h"
	for _, args := range [][]string{
		{"--role=other"}, {"--finalizer-scope=all"}, {"--static-pvs=maybe"}, {"--reclaim-unprotected=perhaps"},
		{"--role=observer", "--honor-reclaim-policy=false"}, {"--role=observer", "--release-finalizers=true"},
		{"--dry-run=true", "--release-finalizers=true"}, {"--brake-deletions=-1"},
		{"--brake-deletions=1", "--brake-window=0s"},
		{"--http-endpoint=:1", "--metrics-address=:2"}, {"--tracing-endpoint=collector/traces"},

		{"--role=companion", "--provision=true"}, {"--node-deployment=true"},
		{"--snapshot-orphan-sweep-interval=-1s"}, {"--in-flight-quiet-period=-1s"}, {"--leader-election-labels=team"},
		{"--cloning-protection-threads=0"}, {"--volume-name-prefix=No_Name"}, {"--volume-name-uuid-length=33"},

		{"--leak-check-interval=-1s"}, {checks, "--leak-check-sightings=1"}, {checks, "--leak-check-grace=-1s"},
		{checks, "--leak-check-page-size=-1"},
	} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// An owner provisions by default, and the leak check runs in each role on request.
func TestTasks(t *testing.T) {
	const checks = "--leak-check-interval=1h"
	for name, c := range map[string]struct {
		args               []string
		provisions, checks bool
	}{
		"an owner provisions":                 {nil, true, false},
		"unless it is turned off":             {[]string{"--provision=false"}, false, false},
		"not beside a provisioner":            {[]string{"--role=companion"}, false, false},
		"and may say so":                      {[]string{"--role=observer", "--provision=false"}, false, false},
		"a dry run makes nothing":             {[]string{"--dry-run=true"}, false, false},
		"nor does a release":                  {[]string{"--release-finalizers=true"}, false, false},
		"every hour":                          {[]string{checks}, true, true},
		"in every role":                       {[]string{checks, "--role=observer"}, false, true},
		"also where nothing else is done":     {[]string{checks, "--dry-run=true"}, false, true},
		"not while finalizers are removed":    {[]string{checks, "--release-finalizers=true"}, false, false},
		"settings of nothing are not checked": {[]string{"--leak-check-sightings=0"}, true, false},
	} {
		o, err := parse(t, c.args...)
		if err != nil || o.provisions() != c.provisions || o.checksLeaks() != c.checks {
			t.Errorf("%s: %v, %+v", name, err, o)
		}
	}
}

func TestBuilderAndProvisionConfig(t *testing.T) {
	o, err := parse(t, "--volume-name-prefix=disk", "--volume-name-uuid-length=8", "--immediate-topology=false",
		"--prevent-volume-mode-conversion=false", "--controller-publish-readonly=true",
		"--feature-gates=Topology=false", "--in-flight-quiet-period=7s", "--worker-threads=7")
	if err != nil {
		t.Fatal(err)
	}
	c, p := o.builderConfig("me", nil), o.provisionConfig(nil)
	s := c.Settings
	if !c.IgnoreTopology || s.VolumeNamePrefix != "disk" || s.VolumeNameUUIDLength != 8 || !s.SkipImmediateTopology ||
		!s.AllowModeConversion || !s.ControllerPublishReadOnly || s.Identity != "me" {
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
		s.ControllerPublishReadOnly || p.Quiet != 105*time.Second {
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

func TestPublishes(t *testing.T) {
	inPod := map[string]string{"POD_NAME": "driver-0", "NAMESPACE": "csi", "POD_NAMESPACE": ""}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want bool
	}{
		"nothing, unless it is asked for": {nil, inPod, false},
		"as requested":                    {[]string{"--enable-capacity=true"}, inPod, true},
		"without provisioning too":        {[]string{"--enable-capacity=true", "--provision=false"}, inPod, true},
		"a dry run writes nothing":        {[]string{"--enable-capacity=true", "--dry-run=true"}, nil, false},
		"nor does a release":              {[]string{"--enable-capacity=true", "--release-finalizers=true"}, nil, false},
		"outside of a pod, without an owner": {[]string{"--enable-capacity=true", "--capacity-ownerref-level=-1"},
			map[string]string{"POD_NAME": "", "NAMESPACE": "", "POD_NAMESPACE": "csi"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, c.env)
			o, err := parse(t, c.args...)
			if err != nil || o.publishes() != c.want {
				t.Fatalf("%v, %v", err, err == nil && o.publishes())
			}
			if got := o.capacityConfig(); c.want && (got.Validate() != nil || got.Namespace != "csi" ||
				got.PollInterval != time.Minute || got.Workers != 1) {
				t.Errorf("%v: %+v", got.Validate(), got)
			}
		})
	}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
	}{
		"no namespace":               {nil, map[string]string{"POD_NAME": "driver-0", "NAMESPACE": "", "POD_NAMESPACE": ""}},
		"no pod":                     {nil, map[string]string{"POD_NAME": "", "NAMESPACE": "csi"}},
		"beside another provisioner": {[]string{"--role=companion"}, inPod},
		"no time between polls":      {[]string{"--capacity-poll-interval=0s"}, inPod},
		"no workers":                 {[]string{"--capacity-threads=0"}, inPod},
		"an owner below the pod":     {[]string{"--capacity-ownerref-level=-2"}, inPod},
		"a negative limit":           {[]string{"--kube-api-capacity-qps=-1"}, inPod},
		"a limit that lets none by":  {[]string{"--kube-api-capacity-burst=0"}, inPod},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, c.env)
			if _, err := parse(t, append(c.args, "--enable-capacity=true")...); err == nil {
				t.Error("it is taken")
			}
		})
	}
}

func set(t *testing.T, env map[string]string) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
}
