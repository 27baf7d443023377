package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
)

func TestFlagReference(t *testing.T) {
	docs.CheckFlags(t, name, app.Flags(&options{}))
}

// parse parses and validates a command line.
func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	o := &options{}
	groups := o.Flags()
	var err error
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		for _, group := range groups.FlagSets {
			if group.Lookup(name) != nil {
				err = errors.Join(err, group.Set(name, value))
			}
		}
	}
	return o, errors.Join(err, o.Validate())
}

func TestControllerSelection(t *testing.T) {
	cases := map[string]struct {
		list string
		want []string
	}{
		"the default": {"*", []string{inTree}},
		"one more":    {"*,pvc-protection", []string{inTree, pvcProtection}},
		"all": {"*,pvc-protection,pv-protection",
			[]string{inTree, pvcProtection, pvProtection}},
		"pods are held":                        {"*,pod-safety", []string{inTree, podSafety}},
		"one node at a time":                   {"pod-safety,single-node", []string{podSafety, singleNode}},
		"claims of StatefulSets":               {"statefulset-claims", []string{setClaims}},
		"nodes are fenced":                     {"*,node-fencing", []string{inTree, nodeFencing}},
		"one less":                             {"*,-intree,pv-protection", []string{pvProtection}},
		"one alone":                            {"pvc-protection", []string{pvcProtection}},
		"a name overrides the asterisk":        {"-intree,intree", []string{inTree}},
		"switched off although off by default": {"*,-pv-protection", []string{inTree}},
		"the order of the list does not count": {"pv-protection,*", []string{inTree, pvProtection}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, "--controllers="+c.list)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, controller := range []string{inTree, pvcProtection, pvProtection, podSafety, singleNode,
				setClaims, nodeFencing} {
				if o.controllers.has(controller) {
					got = append(got, controller)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("--controllers=%s runs %q, want %q", c.list, got, c.want)
			}
		})
	}
}

func TestControllerConfigs(t *testing.T) {
	o, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	s := o.settings(nil, nil)
	if c := o.intreeConfig(s); c.DryRun || c.Workers != 10 || c.Validate() != nil {
		t.Errorf("by default: %+v", c)
	}
	if c := o.claimConfig(s); c.DryRun || c.Mode != inuse.ModeFull || c.TerminatedPods != pvc.ReleaseTerminated ||
		c.Patience != 30*time.Second || c.Validate() != nil {
		t.Errorf("by default: %+v", c)
	}
	if c := o.podSafetyConfig(s); c.DryRun || c.DeleteOrphans || !c.VolumeLocks || !c.NodeCondition ||
		c.UnmountGrace != podsafety.DefaultUnmountGrace || c.Validate() != nil {
		t.Errorf("by default: %+v", c)
	}
	if c := o.singleNodeConfig(s); c.DryRun || c.Fences || c.UnmountGrace != podsafety.DefaultUnmountGrace ||
		c.Workers != 10 || c.Validate() != nil {
		t.Errorf("by default: %+v", c)
	}
	if c := o.statefulSetConfig(s); c.DryRun || c.Grace != statefulset.DefaultGrace || c.Workers != 10 ||
		c.Validate() != nil {
		t.Errorf("by default: %+v", c)
	}
	if c := o.fencingConfig(s); c.DryRun || c.KeepReturned != fencing.DefaultKeepReturned || c.Workers != 10 ||
		c.Validate() != nil {
		t.Errorf("by default: %+v", c)
	}
	if !o.leader.On {
		t.Error("by default two replicas would act at once")
	}
	o, err = parse(t, "--dry-run=true", "--worker-threads=3", "--terminated-pods=hold", "--protection-patience=1s",
		"--retry-interval-start=2s", "--retry-interval-max=3s", "--unmount-grace=4s", "--delete-orphaned-pods=true",
		"--volume-locks=false", "--node-unreachable-condition=false", "--scale-down-grace=5m",
		"--keep-returned-fences=7m", "--controllers=pod-safety,single-node,node-fencing")
	if err != nil {
		t.Fatal(err)
	}
	s = o.settings(nil, nil)
	if c := o.intreeConfig(s); !c.DryRun || c.Workers != 3 || c.RetryStart != 2*time.Second ||
		c.RetryMax != 3*time.Second {
		t.Errorf("as was said: %+v", c)
	}
	if c := o.claimConfig(s); !c.DryRun || c.Workers != 3 || c.TerminatedPods != pvc.HoldTerminated ||
		c.Patience != time.Second || c.RetryStart != 2*time.Second {
		t.Errorf("as was said: %+v", c)
	}
	if c := o.podSafetyConfig(s); !c.DryRun || !c.DeleteOrphans || c.VolumeLocks || c.NodeCondition ||
		c.UnmountGrace != 4*time.Second || c.Workers != 3 || c.RetryMax != 3*time.Second {
		t.Errorf("as was said: %+v", c)
	}
	if c := o.singleNodeConfig(s); !c.DryRun || !c.Fences || c.UnmountGrace != 4*time.Second || c.Workers != 3 ||
		c.RetryStart != 2*time.Second || c.RetryMax != 3*time.Second {
		t.Errorf("as was said: %+v", c)
	}
	if c := o.statefulSetConfig(s); !c.DryRun || c.Grace != 5*time.Minute || c.Workers != 3 ||
		c.RetryStart != 2*time.Second || c.RetryMax != 3*time.Second {
		t.Errorf("as was said: %+v", c)
	}
	if c := o.fencingConfig(s); !c.DryRun || c.KeepReturned != 7*time.Minute || c.Workers != 3 ||
		c.RetryStart != 2*time.Second || c.RetryMax != 3*time.Second {
		t.Errorf("as was said: %+v", c)
	}
}

// The page also requires the port.
func TestPageIsOffByDefault(t *testing.T) {
	if o, err := parse(t, "--http-endpoint=:8080"); err != nil || o.web.serve || o.http.Authorizes() {
		t.Errorf("by default: page %v, authorization %v, %v", o.web.serve, o.http.Authorizes(), err)
	}
	if o, err := parse(t, "--http-endpoint=:8080", "--web=true", "--http-authorization=true"); err != nil ||
		!o.web.serve || !o.http.Authorizes() {
		t.Errorf("as was said: page %v, authorization %v, %v", o.web.serve, o.http.Authorizes(), err)
	}
	if _, err := parse(t, "--web=true"); err == nil ||
		!strings.Contains(err.Error(), "--web: nothing is served; set --http-endpoint") {
		t.Errorf("without the port: %v", err)
	}
}

// The Lease of a guessed namespace stops no replica.
func TestReleaseNeedsNamespaceOfLease(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	o, err := parse(t, "--release-finalizers=true")
	if known := o.leader.KnowsNamespace(); (err == nil) != known { // known where the test runs in a pod
		t.Errorf("namespace known: %v, %v", known, err)
	}
	for _, more := range []string{"--leader-election-namespace=ns", "--leader-election=false"} {
		if _, err := parse(t, "--release-finalizers=true", more); err != nil {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// A release of single-node needs no other controller.
func TestReleaseSingleNodeAlone(t *testing.T) {
	if _, err := parse(t, "--controllers=single-node", "--release-finalizers=true",
		"--leader-election-namespace=ns"); err != nil {
		t.Error(err)
	}
}

func TestInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--controllers=nobody"},
		{"--controllers=*,-nobody"},
		{"--controllers=-intree"},
		{"--controllers=*,single-node"},
		{"--controllers=*,single-node,-pod-safety"},
		{"--terminated-pods=forget"},
		{"--release-finalizers=true", "--dry-run=true", "--leader-election-namespace=ns"},
		{"--release-drivers=*"},
		{"--worker-threads=0"},
		{"--retry-interval-start=0s"},
		{"--retry-interval-max=1ms"},
		{"--protection-patience=0s"},
		{"--unmount-grace=0s"},
		{"--scale-down-grace=0s"},
		{"--keep-returned-fences=0s"},
		{"--shutdown-grace=-1s"},
		{"--leader-election-lease-duration=1s"},
		{"--http-endpoint=:1", "--metrics-address=:2"},
		{"--metrics-path=metrics"},
		{"--http-authorization=true"},
		{"--web=true"},
	} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
