package health

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

func TestServer(t *testing.T) {
	fine := func() error { return nil }
	broken := func() error { return errors.New("the lease is old") }
	mux := http.NewServeMux()
	mux.Handle("/fine", Health(fine, fine))
	mux.Handle("/broken", Health(fine, broken))
	s, err := Listen("127.0.0.1:0", mux)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()

	if code, body := get(t, "http://"+s.Address()+"/fine"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("well: %d %q", code, body)
	}
	if code, body := get(t, "http://"+s.Address()+"/broken"); code != http.StatusInternalServerError ||
		!strings.Contains(body, "the lease is old") {
		t.Errorf("not well: %d %q", code, body)
	}
	if _, err := Listen(s.Address(), mux); err == nil || !strings.Contains(err.Error(), s.Address()) {
		t.Errorf("a port that is taken: %v, want an error that names it", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}
