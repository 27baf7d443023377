package admission

import (
	"crypto/tls"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

// NewServer returns a server of the webhooks without an address: the caller gives it a listener (ServeTLS with no
// files). certificate returns the certificate to present for each new connection.
func NewServer(handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *http.Server {
	return &http.Server{
		Handler: handler,
		// Only the API server connects, and it waits no longer than this.
		ReadHeaderTimeout: timeoutSeconds * time.Second,
		ReadTimeout:       2 * timeoutSeconds * time.Second,
		WriteTimeout:      2 * timeoutSeconds * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          klog.NewStandardLogger("WARNING"),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate},
	}
}
