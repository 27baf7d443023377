//go:build unix

package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
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

// AuditEvent is one request to the API server, as its audit log has it (audit.k8s.io/v1).
type AuditEvent struct {
	// ID is the request's own.
	ID string
	// Stage is ResponseComplete, ResponseStarted for a watch, or Panic.
	Stage string

	Verb string
	// User and Groups are those as whom it was made, where the client impersonates others.
	User      string
	Groups    []string
	UserAgent string
	URI       string

	// The request's target; empty for non-resource URLs. Name may be empty for an object that is being created.
	APIGroup, Resource, Subresource, Namespace, Name string

	// Code is the HTTP status of the answer, 0 without an answer.
	Code int
	// Received and Answered are the times of the request and of its stage.
	Received, Answered time.Time
}

// Writes reports whether a request is no read.
func (e AuditEvent) Writes() bool { return !slices.Contains([]string{"get", "list", "watch"}, e.Verb) }

// AuditLog is the path of the audit log. It exists once the API server has logged a request, and only with
// Options.AuditLog.
func (cp *ControlPlane) AuditLog() string { return cp.folder.file("audit.log") }

// AuditEvents returns the requests that keep chooses, all for a nil keep, in the order in which they were logged.
// See [ReadAuditLog].
//
// All requests are logged except for reads and leases of the components and nodes themselves. A request's
// event is written while its answer is being sent: a client may have the answer a moment before the log has the event.
func (cp *ControlPlane) AuditEvents(keep func(AuditEvent) bool) ([]AuditEvent, error) {
	return cp.auditEvents("", keep)
}

// AuditEventsOf returns the requests of one user that keep chooses, as AuditEvents does; a log of many users is
// read much faster so.
func (cp *ControlPlane) AuditEventsOf(user string, keep func(AuditEvent) bool) ([]AuditEvent, error) {
	return cp.auditEvents(user, func(e AuditEvent) bool { return e.User == user && (keep == nil || keep(e)) })
}

// auditEvents reads on from where the log was left when it was last read for the text.
func (cp *ControlPlane) auditEvents(text string, keep func(AuditEvent) bool) ([]AuditEvent, error) {
	if !cp.options.AuditLog {
		return nil, errors.New("read audit log: Options.AuditLog is not set")
	}
	cp.audit.mu.Lock()
	defer cp.audit.mu.Unlock()
	if cp.audit.of == nil {
		cp.audit.of = map[string]*auditTail{}
	}
	tail, found := cp.audit.of[text]
	if !found {
		tail = newAuditTail(cp.AuditLog(), text)
		cp.audit.of[text] = tail
	}
	if err := tail.read(); err != nil {
		return nil, err
	}
	return tail.chosen(keep), nil
}

// auditTails are the parts of the audit log that were read, by the text that their lines contain.
type auditTails struct {
	mu sync.Mutex
	of map[string]*auditTail
}

// ReadAuditLog reads the audit log at path. Each request appears once, with the first of its stages
// that was logged: a watch when it began, everything else when it was answered. A last line that is still being
// written is left for the next reading.
func ReadAuditLog(path string, keep func(AuditEvent) bool) ([]AuditEvent, error) {
	tail := newAuditTail(path, "")
	if err := tail.read(); err != nil {
		return nil, err
	}
	return tail.chosen(keep), nil
}

// auditTail holds the requests read so far from the audit log's lines that contain a text.
type auditTail struct {
	path   string
	text   []byte
	offset int64
	lines  int
	seen   map[string]bool
	events []AuditEvent
}

func newAuditTail(path, text string) *auditTail {
	return &auditTail{path: path, text: []byte(text), seen: map[string]bool{}}
}

// chosen returns the requests that keep chooses.
func (a *auditTail) chosen(keep func(AuditEvent) bool) (events []AuditEvent) {
	for _, e := range a.events {
		if keep == nil || keep(e) {
			events = append(events, e)
		}
	}
	return events
}

// read reads on to the end of the log.
func (a *auditTail) read() error {
	file, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	for lines := bufio.NewReaderSize(file, 64<<10); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.take(line)
		}
		if err != nil {
			return fmt.Errorf("read audit log: line %d: %w", a.lines+1, err)
		}
		a.offset += int64(len(line))
		a.lines++
	}
}

// take keeps the request of a whole line, unless it is known.
func (a *auditTail) take(line []byte) error {
	if !bytes.Contains(line, a.text) {
		return nil
	}
	event, err := decodeAuditLine(line)
	if err != nil || a.seen[event.ID] {
		return err
	}
	a.seen[event.ID] = true
	a.events = append(a.events, event)
	return nil
}

// auditLineStart begins each event. An API server that was killed while it wrote one leaves a part of it, which the
// first line of the next run then continues.
var auditLineStart = []byte(`{"kind":"Event"`)

func decodeAuditLine(line []byte) (AuditEvent, error) {
	var raw struct {
		AuditID    string
		Stage      string
		RequestURI string
		Verb       string
		// The authenticated and the impersonated user.
		User, ImpersonatedUser struct {
			Username string
			Groups   []string
		}
		UserAgent string
		ObjectRef struct {
			APIGroup, Resource, Subresource, Namespace, Name string
		}
		ResponseStatus struct {
			Code int
		}
		RequestReceivedTimestamp, StageTimestamp time.Time
	}
	if whole := bytes.LastIndex(line, auditLineStart); whole > 0 && !json.Valid(line) {
		line = line[whole:]
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return AuditEvent{}, err
	}
	if raw.ImpersonatedUser.Username != "" {
		raw.User = raw.ImpersonatedUser
	}
	return AuditEvent{
		ID: raw.AuditID, Stage: raw.Stage,
		Verb: raw.Verb, User: raw.User.Username, Groups: raw.User.Groups, UserAgent: raw.UserAgent, URI: raw.RequestURI,
		APIGroup: raw.ObjectRef.APIGroup, Resource: raw.ObjectRef.Resource, Subresource: raw.ObjectRef.Subresource,
		Namespace: raw.ObjectRef.Namespace, Name: raw.ObjectRef.Name,
		Code: raw.ResponseStatus.Code, Received: raw.RequestReceivedTimestamp, Answered: raw.StageTimestamp,
	}, nil
}
