package main

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	fencingengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	podsafetyengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	setengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
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
		known := false
		for _, group := range groups.FlagSets {
			if group.Lookup(name) != nil {
				known = true
				err = errors.Join(err, group.Set(name, value))
			}
		}
		if !known {
			t.Errorf("no flag --%s", name)
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
			o := must.Get(parse(t, "--controllers="+c.list))(t)
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
	for name, c := range map[string]struct {
		args             []string
		settings         controllers.Settings
		patience         time.Duration
		ended            pvc.TerminatedPods
		podSafety        podsafety.Config
		singleNode       singlenode.Config
		grace, retention time.Duration
	}{
		"by default": {nil, controllers.Settings{Workers: 10, RetryStart: time.Second, RetryMax: 5 * time.Minute},
			30 * time.Second, pvc.ReleaseTerminated,
			podsafety.Config{UnmountGrace: podsafetyengine.DefaultUnmountGrace, VolumeLocks: true, NodeCondition: true},
			singlenode.Config{UnmountGrace: podsafetyengine.DefaultUnmountGrace},
			setengine.DefaultGrace, fencingengine.DefaultKeepReturned},
		"as the flags say": {[]string{"--dry-run=true", "--worker-threads=3", "--terminated-pods=hold",
			"--protection-patience=1s", "--retry-interval-start=2s", "--retry-interval-max=3s", "--unmount-grace=4s",
			"--delete-orphaned-pods=true", "--volume-locks=false", "--node-unreachable-condition=false",
			"--scale-down-grace=5m", "--keep-returned-fences=7m", "--controllers=pod-safety,single-node,node-fencing"},
			controllers.Settings{DryRun: true, Workers: 3, RetryStart: 2 * time.Second, RetryMax: 3 * time.Second},
			time.Second, pvc.HoldTerminated,
			podsafety.Config{UnmountGrace: 4 * time.Second, DeleteOrphans: true, Fences: true},
			singlenode.Config{UnmountGrace: 4 * time.Second, Fences: true}, 5 * time.Minute, 7 * time.Minute},
	} {
		o := must.Get(parse(t, c.args...))(t)
		got := o.configs(nil, nil)
		c.settings.Watches = got.inTree.Watches
		c.podSafety.Settings, c.singleNode.Settings = c.settings, c.settings
		pvs := inuse.Config{Settings: c.settings, Mode: inuse.ModeFull, Patience: c.patience}
		want := configs{inTree: intree.Config{Settings: c.settings}, pvs: pvs, claims: pvc.Config{Config: pvs,
			TerminatedPods: c.ended}, podSafety: c.podSafety, singleNode: c.singleNode,
			statefulSet: statefulset.Config{Settings: c.settings, Grace: c.grace},
			nodeFencing: fencing.Config{Settings: c.settings, KeepReturned: c.retention}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if err := errors.Join(got.inTree.Validate(), got.claims.Validate(), got.podSafety.Validate(),
			got.singleNode.Validate(), got.statefulSet.Validate(), got.nodeFencing.Validate()); err != nil || !o.leader.On {
			t.Errorf("%s: %v, two replicas act at once: %v", name, err, !o.leader.On)
		}
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
	o, err := parse(t, "--release-finalizers=true", "--controllers=*")
	if known := o.leader.KnowsNamespace(); (err == nil) != known { // known where the test runs in a pod
		t.Errorf("namespace known: %v, %v", known, err)
	}
	for _, more := range []string{"--leader-election-namespace=ns", "--leader-election=false"} {
		if _, err := parse(t, "--release-finalizers=true", "--controllers=*", more); err != nil {
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

// The default of --controllers stands for one controller, and others may have run. A release of drivers needs none.
func TestReleaseNamesControllers(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "ns")
	_, err := parse(t, "--release-finalizers=true")
	if err == nil || !strings.Contains(err.Error(), "name all controllers") {
		t.Errorf("without --controllers: %v", err)
	}
	for _, more := range []string{"--controllers=*", "--release-drivers=*"} {
		if _, err := parse(t, "--release-finalizers=true", more); err != nil {
			t.Errorf("%s: %v", more, err)
		}
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
		{"--leader-election-lease-duration=900ms", "--leader-election-renew-deadline=600ms",
			"--leader-election-retry-period=200ms"},
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
