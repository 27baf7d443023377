package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// sumsFile is written last, so that a folder without it is not a release.
const sumsFile = "SHA256SUMS"

// sums writes the checksums of all files of a folder, sorted by name, in the format of sha256sum.
func sums(folder string) error {
	var lines strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		sum, err := sumOf(path)
		fmt.Fprintf(&lines, "%s  %s\n", sum, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, sumsFile), []byte(lines.String()), 0o644)
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

// signatureFile is not among the checksums, which it signs.
const signatureFile = sumsFile + ".sig"

// readKey returns the private key of a file that "cosign generate-key-pair" wrote.
func readKey(file, password string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "ENCRYPTED SIGSTORE PRIVATE KEY" && block.Type != "ENCRYPTED COSIGN PRIVATE KEY" {
		return nil, errors.New("it is no private key of cosign; with other keys, sign with cosign itself")
	}
	plain, err := encrypted.Decrypt(block.Bytes, []byte(password))
	if err != nil {
		return nil, fmt.Errorf("%w; COSIGN_PASSWORD has to be its password, and the file undamaged", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("it is no ECDSA key on the curve P-256; with other keys, sign with cosign itself")
	}
	return key, nil
}

// sign writes the signature of the checksums of a folder, as "cosign sign-blob" does. Without random numbers, the same
// checksums have the same signature (RFC 6979).
func sign(folder string, key *ecdsa.PrivateKey) error {
	text, err := os.ReadFile(filepath.Join(folder, sumsFile))
	if err != nil {
		return err
	}
	digest := sha256.Sum256(text)
	signature, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, signatureFile), []byte(base64.StdEncoding.EncodeToString(signature)), 0o644)
}
