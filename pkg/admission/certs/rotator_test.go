package certs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

const host = "guard.ns.svc"

// world is an API server with a Secret and webhook configurations, and a diary.
type world struct {
	mu       sync.Mutex
	secret   map[string][]byte
	version  int
	webhooks map[string]webhookConfig
	writes   int
	diary    []string
	fail     map[string]error
}

func newWorld() *world {
	return &world{fail: map[string]error{}, webhooks: map[string]webhookConfig{
		"m": {mutating: true, name: "m", version: "1", bundles: map[string][]byte{"pvs": nil}},
		"v": {name: "v", version: "1", bundles: map[string][]byte{"pods": nil, "bindings": nil}},
	}}
}

func (w *world) note(what string) error {
	w.diary = append(w.diary, what)
	return w.fail[what]
}

func (w *world) read(context.Context) (clusterState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fail["look"]; err != nil {
		return clusterState{}, err
	}
	seen := clusterState{secret: w.secret}
	if w.secret != nil {
		seen.version = fmt.Sprint(w.version)
	}
	for _, h := range w.webhooks {
		seen.configs = append(seen.configs, h)
	}
	return seen, nil
}

func (w *world) writeSecret(_ context.Context, data map[string][]byte, version string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := fmt.Sprint(w.version); (w.secret != nil && version != now) || (w.secret == nil && version != "") {
		return fmt.Errorf("store: %w", kube.ErrChanged)
	}
	if err := w.note("store"); err != nil {
		return err
	}
	w.secret = data
	w.version++
	return nil
}

func (w *world) writeBundle(_ context.Context, h webhookConfig, bundle []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := w.webhooks[h.name]
	if there.version != h.version {
		return fmt.Errorf("trust: %w", kube.ErrChanged)
	}
	if err := w.note("trust " + h.name); err != nil {
		return err
	}
	w.writes++
	after := webhookConfig{mutating: there.mutating, name: h.name, version: fmt.Sprint(1 + w.writes),
		bundles: map[string][]byte{}}
	for name := range there.bundles {
		after.bundles[name] = bundle
	}
	w.webhooks[h.name] = after
	return nil
}

// roots returns the authorities that the API server trusts for a webhook.
func (w *world) roots(config, webhook string) *x509.CertPool {
	w.mu.Lock()
	defer w.mu.Unlock()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.webhooks[config].bundles[webhook])
	return pool
}

func keeper(t *testing.T, w *world, change func(*Config)) *Rotator {
	t.Helper()
	cfg := Config{Namespace: "ns", Secret: "certificate", Names: []string{host, "guard.ns.svc.cluster.local"},
		Webhooks: []string{"m", "v"}}
	if change != nil {
		change(&cfg)
	}
	k := must.Get(newRotator(w, cfg))(t)
	t.Cleanup(k.loop.Stop)
	k.issue = issueFast
	return k
}

// issueFast generates pairs like issue, with keys that cost almost no time.
func issueFast(names []string, lifetime time.Duration) (*keyPair, error) {
	sign := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey, of *ecdsa.PrivateKey) []byte {
		template.SerialNumber, template.Subject.CommonName = big.NewInt(rand.Int64()), fmt.Sprint(rand.Int64())
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(lifetime)
		der, err := x509.CreateCertificate(crand.Reader, template, parent, of.Public(), by)
		if err != nil {
			panic(err)
		}
		return der
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER := sign(ca, ca, caKey, caKey)
	leafDER := sign(&x509.Certificate{DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca,
		caKey, key)
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return parsePair(append(block("CERTIFICATE", leafDER), block("CERTIFICATE", caDER)...),
		block("EC PRIVATE KEY", keyDER))
}

func TestIssue(t *testing.T) {
	names := []string{host, "guard.ns.svc.cluster.local"}
	made := must.Get(issue(names, time.Hour))(t)
	if left := time.Until(made.NotAfter); left > time.Hour || left < 50*time.Minute {
		t.Errorf("it is valid for %v, want an hour", left)
	}
	if !made.usable(names, time.Now()) || made.usable(append(names, "another"), time.Now()) ||
		made.usable(names, made.NotAfter) {
		t.Error("it is not for what it was made for, or for more")
	}
	other := must.Get(issueFast(names, time.Hour))(t)
	leaf := made.Chain[:bytes.LastIndex(made.Chain, []byte("-----BEGIN"))]
	if old := stateOf(map[string][]byte{keyOldCAs: append(bytes.Clone(leaf), other.CA.PEM...)}).Old; len(old) != 1 ||
		!bytes.Equal(old[0].PEM, other.CA.PEM) {
		t.Errorf("what is no authority is trusted: %+v", old)
	}
	if data := (State{}).data(); len(data) > 0 {
		t.Errorf("nothing is stored as %v", data)
	}
	all := State{Current: made, Next: other, Old: []issuer{other.CA, made.CA}}
	if got := stateOf(all.data()); !bytes.Equal(got.bundle(), all.bundle()) || len(got.Old) != 2 ||
		!got.Next.NotAfter.Equal(other.NotAfter) {
		t.Errorf("read back as %+v", got)
	}
	for sentence, wrong := range map[string][2][]byte{
		"nothing":                  {},
		"another's key":            {made.Chain, other.Key},
		"without its authority":    {made.Chain[:bytes.LastIndex(made.Chain, []byte("-----BEGIN"))], made.Key},
		"with another's authority": {append(bytes.Clone(made.Chain), other.CA.PEM...), made.Key},
	} {
		if p, err := parsePair(wrong[0], wrong[1]); err == nil {
			t.Errorf("%s: read as %+v", sentence, p)
		}
	}
}

func TestFirstCertificate(t *testing.T) {
	w := newWorld()
	k := keeper(t, w, func(c *Config) { c.Metrics = prometheus.NewRegistry() })
	if _, err := k.Certificate(nil); !errors.Is(err, errNoCertificate) || k.Ready() || k.expires() != 0 {
		t.Errorf("before the first look: %v, ready %v", err, k.Ready())
	}
	k.work(t.Context(), "")
	pair, err := k.Certificate(nil)
	if err != nil || !k.Ready() {
		t.Fatal(err)
	}
	if days := time.Until(time.Unix(int64(k.expires()), 0)).Hours() / 24; days < 360 || days > 366 {
		t.Errorf("it is valid for %v days", days)
	}
	for _, at := range [][2]string{{"m", "pvs"}, {"v", "pods"}, {"v", "bindings"}} {
		for _, name := range k.cfg.Names {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: w.roots(at[0], at[1])}); err != nil {
				t.Errorf("%s of %s does not trust it for %s: %v", at[1], at[0], name, err)
			}
		}
	}
	// Another replica presents the same certificate, and nothing more is written.
	entries := len(w.diary)
	other := keeper(t, w, nil)
	other.work(t.Context(), "")
	k.work(t.Context(), "")
	if got, err := other.Certificate(nil); err != nil || !got.Leaf.Equal(pair.Leaf) {
		t.Errorf("another replica presents something else: %v", err)
	}
	if len(w.diary) != entries {
		t.Errorf("diary %q", w.diary)
	}
}

func TestRemovedObjectsAreRestored(t *testing.T) {
	w := newWorld()
	k := keeper(t, w, nil)
	k.work(t.Context(), "")
	before, _ := k.Certificate(nil)
	for sentence, take := range map[string]func(){
		"the Secret":  func() { w.secret = nil },
		"its content": func() { w.secret, w.version = map[string][]byte{keyCert: []byte("no certificate")}, w.version+1 },
		"the trust": func() {
			w.webhooks["v"] = webhookConfig{name: "v", version: "9", bundles: map[string][]byte{"pods": nil}}
		},
		"all of the above": func() {
			w.secret = nil
			w.webhooks["m"] = webhookConfig{mutating: true, name: "m", version: "9", bundles: map[string][]byte{"pvs": nil}}
		},
		"the configuration": func() { delete(w.webhooks, "v") },
	} {
		take()
		k.work(t.Context(), "")
		after, err := k.Certificate(nil)
		if err != nil || !after.Leaf.Equal(before.Leaf) || stateOf(w.secret).Current == nil {
			t.Errorf("%s: another is presented, or none stored: %v", sentence, err)
		}
		if _, err := after.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: w.roots("m", "pvs")}); err != nil {
			t.Errorf("%s: not trusted: %v", sentence, err)
		}
	}
}

func TestRetryAfterFailure(t *testing.T) {
	for _, what := range []string{"look", "store", "trust m", "issue"} {
		w := newWorld()
		k := keeper(t, w, nil)
		k.issue = func(names []string, lifetime time.Duration) (*keyPair, error) {
			if err := w.fail["issue"]; err != nil {
				return nil, err
			}
			return issueFast(names, lifetime)
		}
		w.fail[what] = errors.New("timeout")
		if next := k.work(t.Context(), ""); next.Backoff.First != time.Second {
			t.Errorf("%s: comes back %+v", what, next)
		}
		delete(w.fail, what)
		if next := k.work(t.Context(), ""); next.Backoff.First != k.cfg.PollInterval || !k.Ready() {
			t.Errorf("%s: afterwards it comes back %+v, ready %v", what, next, k.Ready())
		}
	}
}

func TestConfig(t *testing.T) {
	good := Config{Namespace: "ns", Secret: "s", Names: []string{"n"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for sentence, change := range map[string]func(*Config){
		"no Secret":                      func(c *Config) { c.Secret = "" },
		"no namespace":                   func(c *Config) { c.Namespace = "" },
		"no name":                        func(c *Config) { c.Names = nil },
		"looks back in time":             func(c *Config) { c.PollInterval = -1 },
		"settles before it begins":       func(c *Config) { c.PropagationDelay = -1 },
		"renews before it begins":        func(c *Config) { c.Lifetime, c.RenewBefore = time.Hour, time.Hour },
		"ends before it can be replaced": func(c *Config) { c.RenewBefore = 7 * time.Minute },
	} {
		c := good
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s: valid", sentence)
		}
		if _, err := newRotator(newWorld(), c); err == nil {
			t.Errorf("%s: taken", sentence)
		}
	}
	if _, err := New(nil, good); err == nil {
		t.Error("a keeper without a cluster")
	}
}

// Three replicas rotate their certificate again and again, until authorities have expired too. An API server that
// observes its bundle as late as API servers do asks each of them every 15 s, on a new connection each time. The
// bubble's time passes only while every goroutine waits, so that no machine is too slow for the delays.
func TestNoFailedRequestDuringRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		replicas := runReplicas(t, w, 3)
		for len(w.roots("m", "pvs").Subjects()) == 0 { //nolint:staticcheck // a pool of our own, not the system's
			time.Sleep(time.Second)
		}
		const every = 15 * time.Second
		late := replicas[0].cfg.PropagationDelay - time.Second
		asked, seen := 0, map[string]bool{}
		for begun := time.Now(); time.Since(begun) < replicas[0].cfg.Lifetime*3/2; {
			roots := w.roots("m", "pvs")
			for learned := time.Now(); time.Since(learned) < late; time.Sleep(every) {
				for _, k := range replicas {
					serial, err := ask(k, roots)
					if err != nil {
						t.Fatalf("request %d, %v after the bundle was learned: %v", asked, time.Since(learned), err)
					}
					asked++
					seen[serial] = true
				}
			}
		}
		t.Logf("%d requests, %d certificates", asked, len(seen))
		if len(seen) < 10 {
			t.Errorf("%d certificates were presented, want at least 10", len(seen))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if steps := strings.Join(w.diary, ","); !strings.Contains(steps, "store,trust") {
			t.Errorf("diary %s", steps)
		}
		for _, old := range stateOf(w.secret).Old {
			// One uninterrupted rotation takes a delay and a few polls.
			if late := time.Since(old.NotAfter); late > 2*replicas[0].cfg.PropagationDelay {
				t.Errorf("an authority is still trusted %v after it has expired", late)
			}
		}
	})
}

// runReplicas runs replicas with the default delays until the test ends, whose certificate is due for renewal as soon
// as it is issued, and returns them once each has one.
func runReplicas(t *testing.T, w *world, count int) (replicas []*Rotator) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for range count {
		k := keeper(t, w, func(c *Config) { c.Lifetime, c.RenewBefore = time.Hour, time.Hour-time.Millisecond })
		all.Go(func() { k.Run(ctx) })
		for !k.Ready() {
			time.Sleep(time.Second)
		}
		replicas = append(replicas, k)
	}
	return replicas
}

// ask connects to a replica and returns the serial number of the presented certificate.
func ask(k *Rotator, roots *x509.CertPool) (serial string, err error) {
	toServer, toClient := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server := tls.Server(toClient, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: k.Certificate})
		_, _ = server.Write([]byte("answer")) // the client sees the failure
		_ = server.Close()
	}()
	client := tls.Client(toServer, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host})
	_, err = io.ReadAll(client)
	_ = toServer.Close()
	<-ended
	if err != nil {
		return "", err
	}
	return client.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}
