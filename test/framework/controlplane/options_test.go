//go:build unix

package controlplane

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
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
		must.OK(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
		if _, err := openFolder(dir, false); err == nil {
			t.Error("taken over")
		}
	})
	t.Run("a kept folder survives the next run", func(t *testing.T) {
		kept := must.Get(openFolder("", true))(t)
		must.OK(t, kept.close())
		if removeOrphans(os.TempDir()); !exists(kept.path) {
			t.Error("removed")
		}
	})
	t.Run("an owned folder is removed with its owner", func(t *testing.T) {
		owned := must.Get(openFolder("", false))(t)
		if removeOrphans(os.TempDir()); !exists(owned.path) {
			t.Error("removed before its owner closed it")
		}
		must.OK(t, owned.close())
		if exists(owned.path) {
			t.Error("still there")
		}
	})
}

func TestFreePortsAreDistinctAndNotEphemeral(t *testing.T) {
	ports := must.Get(FreePorts(20))(t)
	for range 50 { // by chance, one of so many would be among them
		more := must.Get(FreePorts(20))(t)
		if slices.ContainsFunc(more, func(port int) bool { return slices.Contains(ports, port) }) {
			t.Fatalf("ports %v are given again: %v", ports, more)
		}
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 20 || ports[0] < lowestPort || ports[len(ports)-1] > highestPort {
		t.Errorf("ports %v", ports)
	}
}

// Each version has a module of its name with a Kubernetes of that minor version, and each module is a version.
func TestEachVersionHasItsModule(t *testing.T) {
	folders := must.Get(filepath.Glob("v*.*"))(t)
	modules := slices.DeleteFunc(folders, func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || !info.IsDir()
	})
	slices.Reverse(modules) // sorted by name, newest first until there is a 1.100
	var versions []string
	for _, v := range Versions() {
		versions = append(versions, string(v))
		dir := must.Get(v.moduleDir())(t)
		if kubernetes, err := kubernetesVersion(dir); err != nil || !strings.HasPrefix(kubernetes, string(v)+".") {
			t.Errorf("module of %s: Kubernetes %q, error %v", v, kubernetes, err)
		}
	}
	if !slices.Equal(modules, versions) {
		t.Errorf("modules %q, versions %q", modules, versions)
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	all := Versions()
	for i, v := range all {
		for j, other := range all {
			if got := v.Before(other); got != (i > j) {
				t.Errorf("%s before %s: %t", v, other, got)
			}
		}
	}
	if V1_30.Before(V1_30) || !V1_30.Before(V1_31) || !V1_31.Before(V1_32) || !V1_32.Before(V1_33) {
		t.Error("versions without a module are in another order")
	}
	if want := []Version{all[0], all[len(all)-1]}; !slices.Equal(Edges(), want) {
		t.Errorf("edges %q, want %q", Edges(), want)
	}
}

// Suites share a machine, and each write would wait for its disk. So etcd syncs only while it creates its log.
func TestEtcdDoesNotWaitForDisk(t *testing.T) {
	for _, version := range Edges() {
		t.Run(string(version), func(t *testing.T) {
			cp := start(t, version, Options{NoControllerManager: true})
			maps := clientFor(t, cp.Admin()).CoreV1().ConfigMaps(metav1.NamespaceDefault)
			before := syncs(t, cp)
			for i := range 10 {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", i)}}
				if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if after := syncs(t, cp); after != before {
				t.Errorf("etcd synced its log: %s times before 10 writes, %s after", before, after)
			}
		})
	}
}

// syncs is how often etcd has waited for the disk to write its log, as its metrics have it.
func syncs(t *testing.T, cp *ControlPlane) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+cp.EtcdAddress()+"/metrics",
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	metrics := must.Get(io.ReadAll(response.Body))(t)
	found := regexp.MustCompile(`(?m)^etcd_disk_wal_fsync_duration_seconds_count (\d+)$`).FindSubmatch(metrics)
	if found == nil {
		t.Fatal("etcd's metrics do not say how often it has synced its log")
	}
	return string(found[1])
}
