//go:build unix

package fencing

import (
	"encoding/json"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// machine is a node that a test turns off and on again.
type machine struct {
	*environment
	name string
	// boots counts its boots, from 1.
	boots   int
	silence func()
}

// machine starts a node with these labels. prefix begins its name.
func (env *environment) machine(prefix string, labels map[string]string) *machine {
	env.T.Helper()
	m := &machine{environment: env, name: prefix + "-" + rand.String(5)}
	m.boot()
	m.Eventually("pods can be scheduled to node "+m.name, func() bool { return len(m.node().Spec.Taints) == 0 })
	if len(labels) == 0 {
		return m
	}
	// A node may not say of itself that it is one of the control plane.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	env.Must(err)
	_, err = env.Client.CoreV1().Nodes().Patch(env.Ctx, m.name, types.MergePatchType, patch, metav1.PatchOptions{})
	env.Must(err)
	return m
}

// boot has the node come up with another boot ID, and waits until it is registered.
func (m *machine) boot() {
	m.T.Helper()
	m.boots++
	m.resume()
}

// resume brings the node back unchanged, like a node that was cut off.
func (m *machine) resume() {
	m.T.Helper()
	_, m.silence = fakenode.ForTest(m.T, m.Plane, m.name,
		fakenode.Config{Heartbeat: heartbeat, BootID: m.bootID()})
}

func (m *machine) bootID() string { return m.name + "-boot-" + strconv.Itoa(m.boots) }

// lose has the node fall silent, and waits until the controller manager has found it unreachable.
func (m *machine) lose() {
	m.T.Helper()
	m.silence()
	m.waitReady(v1.ConditionUnknown)
}

func (m *machine) waitReady(status v1.ConditionStatus) {
	m.T.Helper()
	m.Eventually("condition Ready of node "+m.name+" is "+string(status), func() bool {
		return readiness(m.node()) == status
	})
}

func readiness(node *v1.Node) v1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func (m *machine) node() *v1.Node {
	m.T.Helper()
	node, err := m.Client.CoreV1().Nodes().Get(m.Ctx, m.name, metav1.GetOptions{})
	m.Must(err)
	return node
}

// isTainted reports whether a node has the taint of volume-guard.
func isTainted(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeOutOfService && t.Value == ownTaint
	})
}

// isShunned reports whether a node has the taint that keeps new pods away.
func isShunned(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == "csi-reclaimer.io/volumes-fenced" && t.Effect == v1.TaintEffectNoSchedule
	})
}

func (m *machine) waitTainted(want bool) {
	m.T.Helper()
	m.Eventually("the taint of node "+m.name+" is there: "+strconv.FormatBool(want),
		func() bool { return isTainted(m.node()) == want })
}
