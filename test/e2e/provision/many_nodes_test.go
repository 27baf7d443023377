package provision

import (
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// Without --strict-topology each request lists all nodes. Still no claim waits for room in the in-flight log.
func TestTopologySegmentForEachNode(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	suite.Deep(t, suite.Load)
	t.Parallel()
	const nodes, claims = 1500, 30
	name := "nodes-" + rand.String(8) + ".csi-reclaimer.io"
	key := name + "/node"
	at := func(i int) string {
		return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i%4, i/7%256, i%251)
	}
	selected := []string{at(0), at(nodes / 2), at(nodes - 1)}
	options := mockdriver.Options{Name: name}
	for _, node := range selected {
		options.Args = append(options.Args, "--place="+key+"="+node)
	}
	env := newForRole(t, "owner", options)
	env.createNodes(nodes, key, at)
	env.StartSidecar()
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer)
	var all []*objects.Claim
	for i := range claims {
		all = append(all, env.CreateClaim(class, withSize("1Mi"), fixture.WithSelectedNode(selected[i%len(selected)])))
	}
	for _, claim := range all {
		env.WaitBound(claim)
	}
	for _, claim := range all {
		env.waitSettled(claim)
	}
	events, err := env.Client.CoreV1().Events(env.Namespace).List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	for _, e := range events.Items {
		switch e.Reason {
		case "InFlightLogFull", "InFlightLogShareUsed", "RequestTooLarge":
			t.Errorf("claim %s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// createNodes creates nodes with the driver, each with a topology segment of its own.
func (env *environment) createNodes(count int, key string, name func(int) string) {
	env.T.Helper()
	labels := map[string]string{"nodes-of": env.Driver}
	env.T.Cleanup(func() {
		of := metav1.ListOptions{LabelSelector: "nodes-of=" + env.Driver}
		_ = env.Client.CoreV1().Nodes().DeleteCollection(env.CleanupContext(), metav1.DeleteOptions{}, of)
		_ = env.Client.StorageV1().CSINodes().DeleteCollection(env.CleanupContext(), metav1.DeleteOptions{}, of)
	})
	create := func(i int) error {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i),
			Labels: map[string]string{"nodes-of": env.Driver, key: name(i)}}}
		if _, err := env.Client.CoreV1().Nodes().Create(env.Ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := env.Client.StorageV1().CSINodes().Create(env.Ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: labels},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: env.Driver, NodeID: name(i),
				TopologyKeys: []string{key}}}},
		}, metav1.CreateOptions{})
		return err
	}
	const workers = 16
	var each sync.WaitGroup
	failed := make([]error, workers)
	for w := range workers {
		each.Go(func() {
			for i := w; i < count && failed[w] == nil; i += workers {
				failed[w] = create(i)
			}
		})
	}
	each.Wait()
	for _, err := range failed {
		env.Must(err)
	}
}
