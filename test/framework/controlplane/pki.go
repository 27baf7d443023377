//go:build unix

package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"time"
)

const (
	// certificateLifetime suits a control plane that a user keeps for a while; tests need minutes.
	certificateLifetime = 30 * 24 * time.Hour
	// clockSkew is how far back certificates begin: the clock may be set back during a run.
	clockSkew = time.Hour
)

// authority signs the certificates of the API server and of all users.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// keyPair is a certificate and its key, PEM-encoded.
type keyPair struct{ cert, key []byte }

func newAuthority(now time.Time) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	template := certificateTemplate(now, pkix.Name{CommonName: "csi-reclaimer test control plane"})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	return &authority{certificate: certificate, key: key, pem: encodePEM("CERTIFICATE", der)}, nil
}

// forServer issues a certificate for servers on loopback, and for the API server as pods reach it.
func (a *authority) forServer(now time.Time) (keyPair, error) {
	template := certificateTemplate(now, pkix.Name{CommonName: "localhost"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(ServiceIP)}
	return a.issue(template)
}

// forUser issues a certificate that the API server takes as this user in these groups.
func (a *authority) forUser(now time.Time, user string, groups []string) (keyPair, error) {
	template := certificateTemplate(now, pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := newKey()
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %q: %w", template.Subject, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %q: %w", template.Subject, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %q: %w", template.Subject, err)
	}
	return keyPair{cert: encodePEM("CERTIFICATE", der), key: keyPEM}, nil
}

func certificateTemplate(now time.Time, subject pkix.Name) *x509.Certificate {
	// CreateCertificate picks a random serial number by default.
	return &x509.Certificate{
		Subject:   subject,
		NotBefore: now.Add(-clockSkew),
		NotAfter:  now.Add(certificateLifetime),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encodePEM("EC PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
