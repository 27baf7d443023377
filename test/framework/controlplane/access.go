//go:build unix

package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime is the lifetime of a service account's token, which is not renewed.
const tokenLifetime = 24 * time.Hour

// Admin returns a copy of the configuration for a user with all permissions (group system:masters), without a limit on
// requests.
func (cp *ControlPlane) Admin() *rest.Config { return rest.CopyConfig(cp.admin) }

// ConfigFor returns a configuration for a user in groups, known to the API server by a certificate signed here. The
// user has only the permissions that RBAC grants. Requests are not limited.
func (cp *ControlPlane) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	pair, err := cp.authority.forUser(time.Now(), user, groups)
	if err != nil {
		return nil, err
	}
	config := cp.anonymous()
	config.CertData, config.KeyData = pair.cert, pair.key
	return config, nil
}

// ServiceAccount returns a configuration with a token of a service account, which is created if it is missing. Its
// namespace must exist. The token is valid for 24 hours. Requests are not limited.
func (cp *ControlPlane) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", namespace, name, err)
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	lifetime := int64(tokenLifetime.Seconds())
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token of service account %s/%s: %w", namespace, name, err)
	}
	config := cp.anonymous()
	config.BearerToken = token.Status.Token
	return config, nil
}

// anonymous returns a configuration that trusts the API server and has no credentials.
func (cp *ControlPlane) anonymous() *rest.Config {
	return &rest.Config{
		Host:            cp.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.authority.pem},
		QPS:             -1,
		// Tests often use deprecated APIs, and hundreds of warnings would bury the failures.
		WarningHandler: rest.NoWarnings{},
	}
}

// Kubeconfig writes a configuration of this control plane as a kubeconfig file that only this user can read,
// for programs under test and kubectl. The file goes with the control plane's folder.
func (cp *ControlPlane) Kubeconfig(config *rest.Config) (path string, err error) {
	file, err := os.CreateTemp(cp.folder.path, "kubeconfig-") // mode 0600
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := WriteKubeconfig(file.Name(), config); err != nil {
		return "", err
	}
	return file.Name(), nil
}

// WriteKubeconfig writes a configuration with credentials in memory, as this package makes them, to a kubeconfig file
// of mode 0600.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "controlplane"
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: config.Host, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	content, err := clientcmd.Write(kubeconfig)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// componentKubeconfig writes the kubeconfig of one of the components.
func (cp *ControlPlane) componentKubeconfig(component, user string) (path string, err error) {
	config, err := cp.ConfigFor(user)
	if err != nil {
		return "", err
	}
	path = cp.folder.file(component + ".kubeconfig")
	return path, WriteKubeconfig(path, config)
}

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
