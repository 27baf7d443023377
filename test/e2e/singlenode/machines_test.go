//go:build unix

package singlenode

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// machine is a node of one scenario, which goes away and comes back. Only pods that select it run there.
type machine struct {
	*environment
	name    string
	silence func()
}

// machine starts a node.
func (env *environment) machine() *machine {
	env.T.Helper()
	m := &machine{environment: env, name: "machine-" + rand.String(5)}
	m.resume()
	m.Eventually("pods can be scheduled to node "+m.name, func() bool { return len(m.node().Spec.Taints) == 0 })
	return m
}

// resume brings the node back unchanged, like a node that was cut off.
func (m *machine) resume() {
	m.T.Helper()
	_, m.silence = fakenode.ForTest(m.T, m.Plane, m.name, fakenode.Config{})
}

// lose has the node fall silent, and be found unreachable at once, which takes the controller manager 40 s.
func (m *machine) lose() {
	m.T.Helper()
	m.silence()
	_, err := m.Client.CoreV1().Nodes().PatchStatus(m.Ctx, m.name,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, v1.ConditionUnknown))
	m.Must(err)
}

func (m *machine) node() *v1.Node {
	m.T.Helper()
	node, err := m.Client.CoreV1().Nodes().Get(m.Ctx, m.name, metav1.GetOptions{})
	m.Must(err)
	return node
}
