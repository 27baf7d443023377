package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// The clients of all API groups, and further clients of the same Limited config, share one limit.
func TestClientsShareLimit(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1"}`))
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the limit fails at once where it would wait for longer
	defer cancel()
	config := Limited(&rest.Config{Host: server.URL, QPS: 0.001, Burst: 2})
	clients, others := must.Get(NewClients(config))(t), must.Get(NewClients(config))(t)
	requests := map[string]func() error{
		"Node": func() error { return clients.Core.Nodes().Delete(ctx, "a", metav1.DeleteOptions{}) },
		"StorageClass": func() error {
			return clients.Storage.StorageClasses().Delete(ctx, "a", metav1.DeleteOptions{})
		},
		"Lease": func() error { return others.Coordination.Leases("a").Delete(ctx, "a", metav1.DeleteOptions{}) },
	}
	sent := 0
	for _, send := range requests {
		if send() == nil {
			sent++
		}
	}
	if sent != 2 {
		t.Errorf("%d of 3 requests are sent, want 2", sent)
	}
}
