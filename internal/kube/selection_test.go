package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// nothing is a handler that ignores its calls.
type nothing struct{}

func (nothing) Added(string)           {}
func (nothing) Updated(string, string) {}
func (nothing) Deleted(string, bool)   {}

// TestSelection checks the list and watch requests that the API server receives.
func TestSelection(t *testing.T) {
	const path = "/apis/storage.k8s.io/v1/"
	for name, c := range map[string]struct {
		some                   Selection
		path, selector, fields string
	}{
		"all of a kind": {Selection{}, path + "csistoragecapacities", "", ""},
		"some of one namespace": {Selection{Namespace: "ns", Labels: "a=b,c=d"},
			path + "namespaces/ns/csistoragecapacities", "a=b,c=d", ""},
		"those with a label": {Selection{Labels: "a=b"}, path + "csistoragecapacities", "a=b", ""},
		"those with a field": {Selection{Fields: "involvedObject.uid=u"}, path + "csistoragecapacities", "",
			"involvedObject.uid=u"},
		"one by its name": {Selection{Namespace: "ns", Name: "it"}, path + "namespaces/ns/csistoragecapacities", "",
			"metadata.name=it"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan *http.Request, 2)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- r
				w.WriteHeader(http.StatusNotFound)
			}))
			defer server.Close()
			clients := must.Get(NewClients(&rest.Config{Host: server.URL}))(t)
			cache := NewCacheOf(c.some, clients.Storage.RESTClient(), "csistoragecapacities", &storagev1.CSIStorageCapacity{},
				func(runtime.Object, bool) (string, bool, error) { return "", true, nil }, nothing{})
			from := cache.source
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for what, ask := range map[string]func() error{
				"list":  func() error { _, err := from.ListWithContext(ctx, metav1.ListOptions{}); return err },
				"watch": func() error { _, err := from.WatchWithContext(ctx, metav1.ListOptions{}); return err },
			} {
				if ask() == nil {
					t.Errorf("%s: no error", what)
				}
				r := <-asked
				if r.URL.Path != c.path || r.URL.Query().Get("labelSelector") != c.selector ||
					r.URL.Query().Get("fieldSelector") != c.fields || (r.URL.Query().Get("watch") != "") != (what == "watch") {
					t.Errorf("%s asked for %s", what, r.URL)
				}
			}
		})
	}
}
