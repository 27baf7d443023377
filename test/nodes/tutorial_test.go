//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"
)

const (
	tutorialPage = "docs/tutorial.md"
	// tutorialPause is the image of the tutorial's pod.
	tutorialPause = "registry.k8s.io/pause:3.10"
	// stepTimeout bounds one block of the page. The page's own waits are shorter.
	stepTimeout = 8 * time.Minute
)

// TestTutorial types docs/tutorial.md, word for word, compares the page's output with the printed one, and expects no
// remains in the cluster.
func TestTutorial(t *testing.T) {
	c := newCluster(t)
	c.Must(c.pool.ImportPause(c.Ctx, tutorialPause))
	c.Must(c.pool.ImportProvisioner(c.Ctx))
	root := process.RootForTest(c.T)
	page, err := os.ReadFile(filepath.Join(root, tutorialPage))
	c.Must(err)
	steps, err := terminal.Steps(string(page))
	c.Must(err)
	before := c.objects()
	session, err := terminal.NewSession(root, c.env)
	c.Must(err)
	t.Cleanup(func() { _ = session.Close() })
	for i, step := range steps {
		if i > 0 && steps[i-1].Section != step.Section {
			c.expectVolumesOfPVs(steps[i-1].Section)
		}
		begun := time.Now()
		printed, err := c.typed(session, step)
		t.Logf("%s:%d took %s", tutorialPage, step.Line, time.Since(begun).Round(100*time.Millisecond))
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s%s", tutorialPage, step.Line, err, step.Typed, printed)
		}
		if step.Printed == "" {
			continue
		}
		if err := terminal.Match(step.Printed, printed); err != nil {
			t.Errorf("%s:%d: %s%v", tutorialPage, step.Line, step.Typed, err)
		}
	}
	c.expectNothingLeft(before)
}

// expectVolumesOfPVs expects that the driver has the volumes of all PVs, and no others.
func (c *cluster) expectVolumesOfPVs(after string) {
	c.T.Helper()
	pvs, err := c.Client.CoreV1().PersistentVolumes().List(c.Ctx, metav1.ListOptions{})
	c.Must(err)
	var want, got []string
	for _, pv := range pvs.Items {
		want = append(want, pv.Spec.CSI.VolumeHandle)
	}
	for _, n := range c.pool.Nodes() {
		volumes, err := filepath.Glob(filepath.Join(n.KubeletDir(), "plugins", mockDriver, "volumes", "*"))
		c.Must(err)
		for _, volume := range volumes {
			got = append(got, filepath.Base(volume))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		c.T.Errorf("after %q, the driver has the volumes %q, and PVs are of %q", after, got, want)
	}
}

func (c *cluster) typed(session *terminal.Session, step terminal.Step) (string, error) {
	ctx, cancel := context.WithTimeout(c.Ctx, stepTimeout)
	defer cancel()
	return session.Type(ctx, step.Typed)
}

// expectNothingLeft waits until the cluster has only the objects of before. Then it expects that none of them names an
// installed object, and that the driver has left no volume on the node.
func (c *cluster) expectNothingLeft(before map[string]string) {
	c.T.Helper()
	var left map[string]string
	deadline := time.Now().Add(podsTimeout)
	for {
		left = c.objects()
		maps.DeleteFunc(left, func(name, text string) bool {
			_, was := before[name]
			return was && !strings.Contains(text, "csi-reclaimer") && !strings.Contains(text, "external-provisioner")
		})
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Second)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		c.T.Errorf("LEFT: %s: %s", name, left[name])
	}
	c.expectVolumesOfPVs("the end")
}

// objects returns all objects of the API by kind, namespace and name, as text: without Events, which expire by
// themselves, managed fields, and the list of images that a node has downloaded.
func (c *cluster) objects() map[string]string {
	c.T.Helper()
	client, err := dynamic.NewForConfig(c.Plane.Admin())
	c.Must(err)
	finder, err := discovery.NewDiscoveryClientForConfig(c.Plane.Admin())
	c.Must(err)
	lists, err := finder.ServerPreferredResources()
	c.Must(err)
	all := map[string]string{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		c.Must(err)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
				continue
			}
			found, err := client.Resource(group.WithResource(resource.Name)).List(c.Ctx, metav1.ListOptions{})
			c.Must(err)
			for _, object := range found.Items {
				name := fmt.Sprintf("%s %s/%s", resource.Kind, object.GetNamespace(), object.GetName())
				object.SetManagedFields(nil)
				unstructured.RemoveNestedField(object.Object, "status", "images")
				text, err := json.Marshal(object.Object)
				c.Must(err)
				all[name] = string(text)
			}
		}
	}
	return all
}
