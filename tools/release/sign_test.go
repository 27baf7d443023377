package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

const password = "open sesame"

// newKey returns a key, and a file that has it as "cosign generate-key-pair" writes it.
func newKey(t *testing.T, curve elliptic.Curve) (key *ecdsa.PrivateKey, file string) {
	t.Helper()
	key = must(ecdsa.GenerateKey(curve, rand.Reader))(t)
	plain := must(x509.MarshalPKCS8PrivateKey(key))(t)
	secret := must(encrypted.Encrypt(plain, []byte(password)))(t)
	file = filepath.Join(t.TempDir(), "cosign.key")
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: secret})))
	return key, file
}

// gatherSigned runs the program with a key.
func gatherSigned(t *testing.T, flags []string, file, password string) error {
	t.Helper()
	o := must(parse(append(flags, "--cosign-key="+file), io.Discard, io.Discard))(t)
	o.cosignPassword = password
	return run(t.Context(), o)
}

func TestSignedRelease(t *testing.T) {
	key, file := newKey(t, elliptic.P256())
	t.Setenv("COSIGN_PASSWORD", password)
	// No step needs the password.
	const text = makefile + "\t@test -z \"$$COSIGN_PASSWORD\"\n"
	flags, output := flagsOf(t, newCheckout(t, map[string]string{"Makefile": text}))
	var signatures []string
	for range 2 {
		ok(t, gatherSigned(t, flags, file, password))
		signatures = append(signatures, read(t, output, testVersion, signatureFile))
	}
	signature := must(base64.StdEncoding.DecodeString(signatures[0]))(t)
	sums := []byte(read(t, output, testVersion, sumsFile))
	if digest := sha256.Sum256(sums); !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
		t.Error("the signature is not the key's")
	}
	if digest := sha256.Sum256(append(sums, '\n')); ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
		t.Error("the signature is valid for other checksums")
	}
	if signatures[0] != signatures[1] {
		t.Error("the same checksums have two signatures")
	}
	if err := checksums(t, filepath.Join(output, testVersion)); err != nil {
		t.Error(err)
	}
}

func TestUnusableKeyIsRefusedFirst(t *testing.T) {
	_, good := newKey(t, elliptic.P256())
	_, other := newKey(t, elliptic.P384())
	plain := filepath.Join(t.TempDir(), "plain.key")
	write(t, plain, "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n")
	for name, test := range map[string]struct{ file, password, want string }{
		"a wrong password":     {good, "guess", "COSIGN_PASSWORD has to be its password"},
		"no password":          {good, "", "COSIGN_PASSWORD has to be its password"},
		"a key of P-384":       {other, password, "no ECDSA key on the curve P-256"},
		"a key of openssl":     {plain, password, "no private key of cosign"},
		"a key in a service":   {"awskms:///alias/release", password, "no such file"},
		"a file that is empty": {os.DevNull, password, "no private key of cosign"},
	} {
		flags, output := flagsOf(t, newCheckout(t, nil))
		err := gatherSigned(t, flags, test.file, test.password)
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "COSIGN_KEY="+test.file) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if _, err := os.Stat(output); err == nil {
			t.Errorf("%s: something was made", name)
		}
	}
}
