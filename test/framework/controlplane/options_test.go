//go:build unix

package controlplane

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestContradictoryOptionsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		options Options
		valid   bool
	}{
		"none":                            {valid: true},
		"no controller manager":           {options: Options{NoControllerManager: true}, valid: true},
		"no controller manager, a limit":  {options: Options{NoControllerManager: true, ControllerManagerQPS: 1}},
		"no controller manager, hostpath": {options: Options{NoControllerManager: true, HostPathProvisioner: true}},
		"no controller manager, a set":    {options: Options{NoControllerManager: true, Controllers: []string{"*"}}},
		"a limit below none":              {options: Options{ControllerManagerQPS: -1}},
		"a limit, a set, hostpath together": {options: Options{ControllerManagerQPS: 1, HostPathProvisioner: true,
			Controllers: []string{"*"}}, valid: true},
		"lean":                    {options: Options{Lean: true, ControllerManagerQPS: 1}, valid: true},
		"lean, a scheduler":       {options: Options{Lean: true, Scheduler: true}},
		"lean, without it":        {options: Options{Lean: true, NoControllerManager: true}},
		"lean, a set":             {options: Options{Lean: true, Controllers: []string{"*"}}},
		"lean, an in-tree plugin": {options: Options{Lean: true, HostPathProvisioner: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.options.Validate(); (err == nil) != tc.valid {
				t.Errorf("Validate: %v, want valid %t", err, tc.valid)
			}
		})
	}
}

func TestRunningControllersOfOptions(t *testing.T) {
	const other = "persistentvolume-binder-controller"
	for name, tc := range map[string]struct {
		options Options
		want    bool
	}{
		"all by default":  {want: true},
		"all but another": {options: Options{Controllers: []string{"*", "-" + other}}, want: true},
		"all but this":    {options: Options{Controllers: []string{"*", "-" + serviceAccountController}}},
		"this alone":      {options: Options{Controllers: []string{serviceAccountController}}, want: true},
		"another alone":   {options: Options{Controllers: []string{other}}},
		"joined by the caller": {options: Options{Controllers: []string{other + "," + serviceAccountController}},
			want: true},
		"no controller manager": {options: Options{NoControllerManager: true}},
		"the first mention decides": {options: Options{Controllers: []string{"-" + serviceAccountController,
			serviceAccountController}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.options.runs(serviceAccountController); got != tc.want {
				t.Errorf("runs: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Run("a folder in use is refused", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openFolder(dir, false); err == nil {
			t.Error("taken over")
		}
	})
	t.Run("a kept folder survives the next run", func(t *testing.T) {
		kept, err := openFolder("", true)
		if err != nil {
			t.Fatal(err)
		}
		if err := kept.close(); err != nil {
			t.Fatal(err)
		}
		if removeOrphans(os.TempDir()); !exists(kept.path) {
			t.Error("removed")
		}
	})
	t.Run("an owned folder is removed with its owner", func(t *testing.T) {
		owned, err := openFolder("", false)
		if err != nil {
			t.Fatal(err)
		}
		if removeOrphans(os.TempDir()); !exists(owned.path) {
			t.Error("removed before its owner closed it")
		}
		if err := owned.close(); err != nil {
			t.Fatal(err)
		}
		if exists(owned.path) {
			t.Error("still there")
		}
	})
}

func TestFreePortsAreDistinctAndNotEphemeral(t *testing.T) {
	ports, err := FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 { // by chance, one of so many would be among them
		more, err := FreePorts(20)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(more, func(port int) bool { return slices.Contains(ports, port) }) {
			t.Fatalf("ports %v are given again: %v", ports, more)
		}
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 20 || ports[0] < lowestPort || ports[len(ports)-1] > highestPort {
		t.Errorf("ports %v", ports)
	}
}
