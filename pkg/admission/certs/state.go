package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// Keys of the Secret; the first two are the keys of type kubernetes.io/tls.
const (
	keyCert     = "tls.crt"
	keyKey      = "tls.key"
	keyNextCert = "next.crt"
	keyNextKey  = "next.key"
	keyOldCAs   = "old-ca.crt"
)

// keyPair is a certificate with its key; each pair has its own authority, whose key is not stored.
type keyPair struct {
	// Chain and Key are the stored PEM; the last certificate of the chain is the authority.
	Chain, Key []byte
	// CA is the authority.
	CA issuer
	// TLS is the certificate that a server presents.
	TLS *tls.Certificate
	// Names are the DNS names of the certificate, which is valid from NotBefore until NotAfter.
	Names               []string
	NotBefore, NotAfter time.Time
}

// issuer is a trusted certificate (PEM), which expires together with the certificate that it signed.
type issuer struct {
	PEM      []byte
	NotAfter time.Time
}

var errNoAuthority = errors.New("the chain does not end with an authority")

// parsePair reads a pair, and returns an error unless certificate, key and authority match each other.
func parsePair(chain, key []byte) (*keyPair, error) {
	both, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("read a certificate: %w", err)
	}
	certificates, err := certutil.ParseCertsPEM(chain)
	if err != nil {
		return nil, fmt.Errorf("read a certificate: %w", err)
	}
	leaf, authority := certificates[0], certificates[len(certificates)-1]
	if !authority.IsCA || leaf.CheckSignatureFrom(authority) != nil {
		return nil, fmt.Errorf("read a certificate: %w", errNoAuthority)
	}
	ca, err := authorityOf(authority)
	if err != nil {
		return nil, err
	}
	return &keyPair{Chain: chain, Key: key, CA: ca, TLS: &both, Names: leaf.DNSNames, NotBefore: leaf.NotBefore,
		NotAfter: leaf.NotAfter}, nil
}

func authorityOf(c *x509.Certificate) (issuer, error) {
	text, err := certutil.EncodeCertificates(c)
	if err != nil {
		return issuer{}, fmt.Errorf("write an authority: %w", err)
	}
	return issuer{text, c.NotAfter}, nil
}

// issue generates a pair for these names.
func issue(names []string, lifetime time.Duration) (*keyPair, error) {
	// The certificate is valid from an hour ago, because clocks differ; that hour is part of its age.
	chain, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{
		Host: names[0], AlternateDNS: names[1:], MaxAge: lifetime + time.Hour,
	})
	if err != nil {
		return nil, fmt.Errorf("generate a certificate: %w", err)
	}
	return parsePair(chain, key)
}

// early reports whether the pair is not valid yet: a replica whose clock is ahead has issued it.
func (p *keyPair) early(now time.Time) bool { return p != nil && now.Before(p.NotBefore) }

// usable reports whether a server can present the pair under the names.
func (p *keyPair) usable(names []string, now time.Time) bool {
	if p == nil || !now.Before(p.NotAfter) {
		return false
	}
	for _, name := range names {
		if !slices.Contains(p.Names, name) {
			return false
		}
	}
	return true
}

// State is the content of the Secret; its zero value is an empty Secret.
type State struct {
	// Current is the pair that servers present.
	Current *keyPair
	// Next is the pair that servers present once it is trusted everywhere.
	Next *keyPair
	// Old are the authorities of earlier pairs, which replicas with an outdated read of the Secret may still present.
	Old []issuer
}

// stateOf reads the data of the Secret; unreadable data counts as absent.
func stateOf(data map[string][]byte) (s State) {
	s.Current, _ = parsePair(data[keyCert], data[keyKey])
	s.Next, _ = parsePair(data[keyNextCert], data[keyNextKey])
	old, _ := certutil.ParseCertsPEM(data[keyOldCAs])
	for _, c := range old {
		if authority, err := authorityOf(c); err == nil && c.IsCA {
			s.Old = append(s.Old, authority)
		}
	}
	return s
}

// data returns the data to store in the Secret.
func (s State) data() map[string][]byte {
	data := map[string][]byte{}
	if s.Current != nil {
		data[keyCert], data[keyKey] = s.Current.Chain, s.Current.Key
	}
	if s.Next != nil {
		data[keyNextCert], data[keyNextKey] = s.Next.Chain, s.Next.Key
	}
	for _, old := range s.Old {
		data[keyOldCAs] = append(data[keyOldCAs], old.PEM...)
	}
	return data
}

// bundle returns all authorities that the API server has to trust (PEM), in an order that does not depend on their
// roles.
func (s State) bundle() []byte {
	var all [][]byte
	for _, p := range []*keyPair{s.Current, s.Next} {
		if p != nil {
			all = append(all, p.CA.PEM)
		}
	}
	for _, old := range s.Old {
		all = append(all, old.PEM)
	}
	slices.SortFunc(all, bytes.Compare)
	return bytes.Join(all, nil)
}
