package main

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

func TestNodeDeploymentFlags(t *testing.T) {
	const on = "--node-deployment=true"
	cases := map[string]struct {
		node string
		args []string
		fine bool
	}{
		"on, with its defaults": {"n1", []string{on}, true},
		"off, despite other flags": {"", []string{"--node-deployment=false", "--node-deployment-base-delay=-1s"},
			true},
		"without the name of the node":         {"", []string{on}, false},
		"volumes without a topology":           {"n1", []string{on, "--feature-gates=Topology=false"}, false},
		"no delay at all":                      {"n1", []string{on, "--node-deployment-base-delay=0"}, false},
		"a delay that does not grow":           {"n1", []string{on, "--node-deployment-max-delay=1s"}, false},
		"in another role":                      {"n1", []string{on, "--role=observer"}, true},
		"without claims that bind immediately": {"n1", []string{on, "--node-deployment-immediate-binding=false"}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(nodeVariable, c.node)
			if _, err := parse(t, c.args...); (err == nil) != c.fine {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestLeasePerNode(t *testing.T) {
	long := strings.Repeat("long.", 49) + "node"
	names := map[string]bool{}
	for _, o := range []nodeOptions{{}, {on: true, name: "n1"}, {on: true, name: "n2"}, {on: true, name: long + "1"},
		{on: true, name: long + "2"}} {
		name := o.lease("disk-csi-example-com")
		if len(name) > maxName || names[name] || !strings.HasPrefix(name, "disk-csi-example-com") {
			t.Errorf("lease %q", name)
		}
		names[name] = true
	}
	if !names["disk-csi-example-com"] || !names["disk-csi-example-com-n1"] {
		t.Errorf("leases %v", names)
	}
}

// Each length of a node's name gives a log whose Leases the API server accepts.
func TestLogNamePerNode(t *testing.T) {
	const cluster = "disk-csi-example-com-in-flight"
	for length := 200; length <= 253; length++ {
		o := nodeOptions{on: true, name: strings.Repeat("n", length)}
		_, err := inflight.New(inflight.Config{Leases: fake.NewClientset().CoordinationV1(), Namespace: "ns",
			Name: o.logName(cluster), Driver: "disk.csi.example.com", Shards: 1})
		if err != nil {
			t.Errorf("a node's name of %d characters: %v", length, err)
		}
	}
	if name := (&nodeOptions{on: true, name: "n1"}).logName(cluster); name != cluster+"-n1" {
		t.Errorf("log %q", name)
	}
}

func TestNodeOwnsInFlightLog(t *testing.T) {
	node := func(name string, uid types.UID) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	client := fake.NewClientset(node("n1", "1"), node("n2", "2"), node("n3", ""))
	nodes := client.CoreV1().Nodes()
	got := nodeOwner(nodes, "n2")(t.Context())
	if want := (metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n2", UID: "2"}); got == nil || *got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, name := range []string{"n3", "gone"} {
		if got := nodeOwner(nodes, name)(t.Context()); got != nil {
			t.Errorf("node %s: %v", name, got)
		}
	}
	client.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1.Resource("nodes"), "", errors.New("no"))
	})
	if got := nodeOwner(nodes, "n1")(t.Context()); got != nil {
		t.Errorf("nodes that may not be listed: %v", got)
	}
}

func TestManagedByPerNode(t *testing.T) {
	if by := (&nodeOptions{name: "n1"}).managedBy(); by != "" {
		t.Errorf("for the whole cluster: %q", by)
	}
	names := map[string]bool{}
	for _, c := range []struct{ node, begins, ends string }{
		{"n1", "external-provisioner-n1", "-n1"},
		{strings.Repeat("n", 42), "external-provisioner-n", "n"},
		{strings.Repeat("n", 43), "external-p-", strings.Repeat("n", 43)},
		{strings.Repeat("n", 52), "e-", strings.Repeat("n", 52)},
		{strings.Repeat("n", 53), "external-provisioner-", ""},
		{strings.Repeat("m", 253), "external-provisioner-", ""},
	} {
		by := (&nodeOptions{on: true, name: c.node}).managedBy()
		if names[by] || !strings.HasPrefix(by, c.begins) || !strings.HasSuffix(by, c.ends) ||
			len(validation.IsValidLabelValue(by)) > 0 {
			t.Errorf("node %s: %q", c.node, by)
		}
		names[by] = true
	}
}
