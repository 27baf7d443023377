package certs

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// issuedElsewhere returns a Secret as cert-manager writes it.
func issuedElsewhere(t *testing.T, lifetime time.Duration, names ...string) map[string][]byte {
	t.Helper()
	p := must.Get(issueFast(names, lifetime))(t)
	leaf := p.Chain[:bytes.LastIndex(p.Chain, []byte("-----BEGIN"))]
	return map[string][]byte{keyCert: leaf, keyKey: p.Key, keyCA: p.CA.PEM}
}

func external(c *Config) { c.External = true }

func TestExternalCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld()
	k := keeper(t, w, external)
	w.secret, w.version = issuedElsewhere(t, time.Hour, k.cfg.Names...), 1
	k.work(t.Context(), "")
	pair := must.Get(k.Certificate(nil))(t)
	if p := k.current.Load(); !bytes.Equal(p.Chain, w.secret[keyCert]) || !p.NotAfter.Equal(pair.Leaf.NotAfter) {
		t.Errorf("presented is %+v", p)
	}
	for _, h := range w.webhooks {
		for name, bundle := range h.bundles {
			if !bytes.Equal(bundle, w.secret[keyCA]) {
				t.Errorf("%s of %s trusts %q", name, h.name, bundle)
			}
		}
	}
	// A renewal by the same authority, and a second authority, follow without a write of the Secret.
	renewed := issuedElsewhere(t, 2*time.Hour, k.cfg.Names...)
	renewed[keyCA] = append(bytes.Clone(w.secret[keyCA]), renewed[keyCA]...)
	w.secret, w.version = renewed, 2
	k.work(t.Context(), "")
	if after, err := k.Certificate(nil); err != nil || after.Leaf.Equal(pair.Leaf) {
		t.Errorf("the renewed certificate is not presented: %v", err)
	}
	if got := w.webhooks["m"].bundles["pvs"]; !bytes.Equal(got, renewed[keyCA]) {
		t.Errorf("trusted is %q", got)
	}
	if slices.Contains(w.diary, "store") {
		t.Errorf("a Secret of others was written: %q", w.diary)
	}
}

// TestUnusableExternalCertificateLeavesThePresentedPair covers Secrets that volume-guard cannot present.
func TestUnusableExternalCertificateLeavesThePresentedPair(t *testing.T) {
	t.Parallel()
	w := newWorld()
	k := keeper(t, w, external)
	good := issuedElsewhere(t, time.Hour, k.cfg.Names...)
	other := issuedElsewhere(t, time.Hour, k.cfg.Names...)
	w.secret, w.version = good, 1
	k.work(t.Context(), "")
	before := must.Get(k.Certificate(nil))(t)
	w.diary = nil
	with := func(key string, value []byte) map[string][]byte {
		changed := maps.Clone(good)
		changed[key] = value
		return changed
	}
	for sentence, secret := range map[string]map[string][]byte{
		"no Secret":                nil,
		"no authority":             with(keyCA, nil),
		"the authority of another": with(keyCA, other[keyCA]),
		"the key of another":       with(keyKey, other[keyKey]),
		"a certificate that ended": issuedElsewhere(t, -time.Minute, k.cfg.Names...),
		"a certificate of another": issuedElsewhere(t, time.Hour, host),
	} {
		w.secret, w.version = secret, w.version+1
		if next := k.work(t.Context(), ""); next.Backoff.First != time.Second {
			t.Errorf("%s: comes back %+v", sentence, next)
		}
		if after, err := k.Certificate(nil); err != nil || !after.Leaf.Equal(before.Leaf) {
			t.Errorf("%s: another is presented: %v", sentence, err)
		}
	}
	if len(w.diary) > 0 {
		t.Errorf("written was %q", w.diary)
	}
	fresh := keeper(t, newWorld(), external)
	fresh.work(t.Context(), "")
	if _, err := fresh.Certificate(nil); !errors.Is(err, errNoCertificate) || fresh.Ready() {
		t.Errorf("without a Secret a new process presents a certificate: %v", err)
	}
}

// TestSecretOfOthersIsNotOverwritten by a replica that still issues the certificate, while others take over.
func TestSecretOfOthersIsNotOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld()
	k := keeper(t, w, nil)
	k.work(t.Context(), "")
	before := must.Get(k.Certificate(nil))(t)
	w.diary = nil
	w.secret, w.version = issuedElsewhere(t, time.Hour, k.cfg.Names...), w.version+1
	fresh := keeper(t, w, nil)
	for _, replica := range []*Rotator{k, fresh} {
		if next := replica.work(t.Context(), ""); next.Backoff.First != time.Second {
			t.Errorf("comes back %+v", next)
		}
	}
	if after, err := k.Certificate(nil); err != nil || !after.Leaf.Equal(before.Leaf) || fresh.Ready() {
		t.Errorf("presented is another certificate: %v", err)
	}
	if len(w.diary) > 0 {
		t.Errorf("written was %q", w.diary)
	}
}

func TestDecideExternal(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		change func(*facts)
		want   action
	}{
		"all is well":         {func(*facts) {}, wait},
		"it is not trusted":   {func(s *facts) { s.Trusted = false }, trust},
		"nothing is known":    {func(s *facts) { *s = facts{External: true} }, wait},
		"there is none":       {func(s *facts) { s.State, s.Trusted = State{}, false }, wait},
		"it has ended":        {func(s *facts) { s.State.Current, s.Trusted = pair(0, "a"), false }, wait},
		"it ends soon":        {func(s *facts) { s.State.Current = pair(time.Hour, "a") }, wait},
		"an old one is there": {func(s *facts) { s.State.Old = old("!") }, wait},
	} {
		s := healthy()
		s.External = true
		c.change(&s)
		if got := decide(s, start); got != c.want {
			t.Errorf("%s: Decide = %s, want %s", sentence, got, c.want)
		}
	}
}

// TestExternalPermissions has no write of a Secret.
func TestExternalPermissions(t *testing.T) {
	t.Parallel()
	for _, p := range (Config{Namespace: "ns", Secret: "tls", Webhooks: []string{"m"}, External: true}).Permissions() {
		if p.Resource == "secrets" && p.Verb != "get" {
			t.Errorf("%s of secrets", p.Verb)
		}
	}
}
