package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// keyCA has the authorities of a certificate that others issue, as cert-manager writes it.
const keyCA = "ca.crt"

var (
	errNoSecret = errors.New("it does not exist, or is empty")
	errNotOurs  = errors.New("it has " + keyCA + ", and is not overwritten: issue no certificate " +
		"(--webhook-issue-certificate=false), or name another Secret (--webhook-secret)")
)

// stateIn reads the data of the Secret. It returns an error for a Secret of others unless they issue the certificate,
// because a write would replace a key that may exist nowhere else.
func (c Config) stateIn(data map[string][]byte, now time.Time) (State, error) {
	if c.External {
		pair, err := externalPair(data, c.Names, now)
		return State{Current: pair}, err
	}
	if _, others := data[keyCA]; others {
		return State{}, errNotOurs
	}
	return stateOf(data), nil
}

// externalPair reads a pair that others have issued. It returns an error unless the authorities verify the certificate
// for all names, because the API server would refuse to connect.
func externalPair(data map[string][]byte, names []string, now time.Time) (*keyPair, error) {
	if len(data) == 0 {
		return nil, errNoSecret
	}
	both, err := tls.X509KeyPair(data[keyCert], data[keyKey])
	if err != nil {
		return nil, fmt.Errorf("read %s and %s: %w", keyCert, keyKey, err)
	}
	authorities, err := certutil.ParseCertsPEM(data[keyCA])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", keyCA, err)
	}
	how := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
	for _, authority := range authorities {
		how.Roots.AddCert(authority)
	}
	how.Intermediates.AppendCertsFromPEM(data[keyCert])
	for _, name := range names {
		how.DNSName = name
		if _, err := both.Leaf.Verify(how); err != nil {
			return nil, fmt.Errorf("verify %s by %s: %w", keyCert, keyCA, err)
		}
	}
	bundle, err := certutil.EncodeCertificates(authorities...)
	if err != nil {
		return nil, fmt.Errorf("write the authorities: %w", err)
	}
	return &keyPair{Chain: data[keyCert], Key: data[keyKey], CA: issuer{bundle, both.Leaf.NotAfter}, TLS: &both,
		Names: names, NotBefore: both.Leaf.NotBefore, NotAfter: both.Leaf.NotAfter}, nil
}
