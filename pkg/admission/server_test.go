package admission

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

func TestServer(t *testing.T) {
	chain, key, err := certutil.GenerateSelfSignedCertKey("guard.ns.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(handler(cluster{}), func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil })
	for what, limit := range map[string]time.Duration{"a header": server.ReadHeaderTimeout,
		"a request": server.ReadTimeout, "an answer": server.WriteTimeout, "silence": server.IdleTimeout} {
		if limit <= 0 || limit > 2*time.Minute {
			t.Errorf("%s may take %v", what, limit)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	post := func(scheme string, version uint16) (int, error) {
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: roots, ServerName: "guard.ns.svc", MinVersion: tls.VersionTLS10, MaxVersion: version,
		}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			scheme+"://"+listener.Addr().String()+pathPods, bytes.NewReader(nil))
		if err != nil {
			return 0, err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		answer, err := io.ReadAll(response.Body)
		if scheme == "https" && !bytes.Contains(answer, []byte(errMalformed.Error())) {
			t.Errorf("answered %s", answer)
		}
		return response.StatusCode, err
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if code, err := post("https", version); err != nil || code != http.StatusBadRequest {
			t.Errorf("%s: %d, %v", tls.VersionName(version), code, err)
		}
	}
	if _, err := post("https", tls.VersionTLS11); err == nil {
		t.Error("an old version of TLS is taken")
	}
	if code, err := post("http", 0); err == nil && code == http.StatusOK {
		t.Error("answers without TLS")
	}
}
