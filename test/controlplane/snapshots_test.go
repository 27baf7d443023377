//go:build unix

package controlplane

import (
	"testing"

	"k8s.io/client-go/discovery"
)

func TestSnapshotsAreServedWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version Version
		options Options
		want    []string
	}{
		"not by default":                {version: V1_36, options: Options{NoControllerManager: true}},
		"on the newest version":         {version: V1_36, options: Options{NoControllerManager: true, Snapshots: true}, want: snapshotResources()},
		"on the oldest, with all there": {version: V1_30, options: Options{Snapshots: true}, want: snapshotResources()},
	} {
		t.Run(name, func(t *testing.T) {
			cp := start(t, tc.version, tc.options)
			wantSnapshots(t, clientFor(t, cp.Admin()).Discovery(), tc.want)
			if err := cp.InstallSnapshots(t.Context()); err != nil {
				t.Errorf("later, or again: %v", err)
			}
			wantSnapshots(t, clientFor(t, cp.Admin()).Discovery(), snapshotResources())
		})
	}
}

// wantSnapshots checks which kinds of the snapshot API there are, leaving their subresources aside.
func wantSnapshots(t *testing.T, api discovery.DiscoveryInterface, want []string) {
	t.Helper()
	_, groups, err := api.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, group := range groups {
		for _, resource := range group.APIResources {
			if group.GroupVersion == snapshotGroup+"/v1" {
				got[resource.Name] = true
			}
		}
	}
	for _, resource := range want {
		if !got[resource] {
			t.Errorf("%s is not served: %v", resource, got)
		}
	}
	if len(want) == 0 && len(got) > 0 {
		t.Errorf("served, and not asked for: %v", got)
	}
}
