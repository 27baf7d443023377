package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// webhookServer is a server with a certificate that the client trusts, and its listener.
func webhookServer(t *testing.T) (*http.Server, net.Listener, *http.Client) {
	t.Helper()
	trusted := httptest.NewTLSServer(nil)
	t.Cleanup(trusted.Close)
	client := trusted.Client()
	client.Timeout = time.Minute
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	on := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = on.Close() })
	return &http.Server{Handler: answer, TLSConfig: trusted.TLS, ReadHeaderTimeout: time.Minute}, on, client
}

// The Service sends requests until Kubernetes has taken the pod out of it.
func TestWebhooksAnswerAfterTheEnd(t *testing.T) {
	t.Parallel()
	server, on, client := webhookServer(t)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, server, on, time.Hour) }()
	end()
	for range 3 { // each over a new connection
		answer, err := client.Get("https://" + on.Addr().String())
		must.OK(t, err)
		must.OK(t, answer.Body.Close())
		client.CloseIdleConnections()
		if answer.StatusCode != http.StatusTeapot {
			t.Errorf("status %d", answer.StatusCode)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("serving ended: %v", err)
	default:
	}
	must.OK(t, server.Close())
	must.OK(t, <-ended) // the rest of the hour is not waited for
}

func TestWebhooksEnd(t *testing.T) {
	t.Parallel()
	server, on, client := webhookServer(t)
	ctx, end := context.WithCancel(t.Context())
	end()
	must.OK(t, serve(ctx, server, on, time.Nanosecond))
	if answer, err := client.Get("https://" + on.Addr().String()); err == nil {
		_ = answer.Body.Close()
		t.Error("answered after the end")
	}

	server, on, _ = webhookServer(t)
	must.OK(t, on.Close())
	if err := serve(t.Context(), server, on, time.Hour); err == nil || !strings.Contains(err.Error(), "serve webhooks") {
		t.Errorf("a closed port: %v", err)
	}
}
