//go:build unix

package fenceadmission

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// The resources of the kinds.
var (
	fences    = v1alpha1.GroupVersion.WithResource("nodefences")
	policies  = v1alpha1.GroupVersion.WithResource("fencepolicies")
	templates = v1alpha1.GroupVersion.WithResource("nodefencetemplates")
)

// cluster is the control plane that all tests share; client is its administrator's.
var (
	cluster *controlplane.ControlPlane
	client  *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	// The controller manager aggregates roles.
	os.Exit(suite.Suite{Options: controlplane.Options{Progress: os.Stderr}, Install: install}.Main(m))
}

func install(ctx context.Context, c *controlplane.ControlPlane, admin *kubernetes.Clientset) error {
	cluster, client = c, admin
	return manifests.Apply(ctx, c.Admin(), manifests.NodeFencing()...)
}

// as returns the client of a user, the administrator for "".
func as(t *testing.T, user string) dynamic.Interface {
	t.Helper()
	config := cluster.Admin()
	if user != "" {
		var err error
		config, err = cluster.ConfigFor(user)
		must(t, err)
	}
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := dynamic.NewForConfig(config)
	must(t, err)
	return c
}

var must, until = suite.Must, suite.Until

// fields are the fields of an object or of a part of one.
type fields = map[string]any

// job is an agent that the schema takes.
func job() fields {
	return fields{"name": "power-off", "covers": "UntilUnfenced",
		"job": fields{"namespace": "node-fencing", "podTemplateName": "power-off"}}
}

// manual is another.
func manual() fields { return fields{"name": "by-hand", "covers": "UntilUnfenced", "manual": fields{}} }

// networkFence is another, which only others of its kind may follow.
func networkFence() fields {
	return fields{"name": "network", "covers": "Volumes",
		"networkFence": fields{"driver": "disk.csi.example.com", "networkFenceClassName": "disk"}}
}

// clustered is one of the volumes of one cluster.
func clustered(name, cluster string) fields {
	a := networkFence()
	a["name"], a["networkFence"].(fields)["volumeAttributes"] = name, fields{"clusterID": cluster}
	return a
}

// remediation is another.
func remediation() fields {
	return fields{"name": "reboot", "covers": "Reboot", "remediation": fields{"apiVersion": "example.com/v1",
		"kind": "RebootTemplate", "namespace": "node-fencing", "name": "reboot"}}
}

// with returns fields with others added or in place of its own. A nil value removes a field.
func with(base fields, others fields) fields {
	all := fields{}
	for _, from := range []fields{base, others} {
		for key, value := range from {
			if value == nil {
				delete(all, key)
			} else {
				all[key] = value
			}
		}
	}
	return all
}

func agents(all ...fields) []any {
	list := make([]any, len(all))
	for i, one := range all {
		list[i] = one
	}
	return list
}

// object returns an object of a kind.
func object(kind, name string, spec fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetName(name)
	return o
}

// fence returns a NodeFence that is accepted, with these fields of its spec.
func fence(name string, spec fields) *unstructured.Unstructured {
	return object("NodeFence", name, with(fields{"reason": "a test", "agents": agents(job())}, spec))
}

// create creates a NodeFence, which the test's end deletes.
func create(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	admin := as(t, "").Resource(fences)
	made, err := admin.Create(t.Context(), o, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = admin.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}) })
	return made
}
