//go:build controlplane && unix

package admit

import (
	"context"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWhichDriversAreListedIsFollowed(t *testing.T) {
	ctx := t.Context()
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "listed-"}}, metav1.CreateOptions{})
	must(t, err)
	of := client.CoreV1().ConfigMaps(namespace.Name)
	other := Parameters(namespace.Name, map[string]string{"other": finalizer})
	other.Name = "another"
	_, err = of.Create(ctx, other, metav1.CreateOptions{})
	must(t, err)

	l, err := NewListed(admin, namespace.Name, prometheus.NewRegistry())
	must(t, err)
	following, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(following) }()
	t.Cleanup(func() { cancel(); <-ended })
	missing := func() bool { return l.missing() == 1 }
	until(t, "the first look", l.Synced)
	if len(l.Finalizers()) > 0 || !missing() {
		t.Errorf("without the ConfigMap: %v, missing %v", l.Finalizers(), missing())
	}
	_, err = of.Create(ctx, Parameters(namespace.Name, known), metav1.CreateOptions{})
	must(t, err)
	until(t, "what the ConfigMap says", func() bool { return maps.Equal(l.Finalizers(), known) && !missing() })
	_, err = of.Patch(ctx, PolicyName, types.MergePatchType, []byte(`{"data":{"`+driver+`":null}}`), metav1.PatchOptions{})
	must(t, err)
	until(t, "a key to be gone", func() bool { return l.Finalizers()[driver] == "" && !missing() })
	must(t, of.Delete(ctx, PolicyName, metav1.DeleteOptions{}))
	until(t, "the end of the ConfigMap", func() bool { return len(l.Finalizers()) == 0 && missing() })
}
