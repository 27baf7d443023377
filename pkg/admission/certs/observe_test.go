package certs

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// The time starts again with each change of the Secret, and with each interruption of the trust.
func TestTrustedSince(t *testing.T) {
	made := must.Get(issueFast([]string{host}, time.Hour))(t)
	state := State{Current: made}
	seen := func(version string, bundles ...[]byte) clusterState {
		v := clusterState{secret: state.data(), version: version}
		for _, bundle := range bundles {
			v.configs = append(v.configs, webhookConfig{bundles: map[string][]byte{"hook": bundle}})
		}
		return v
	}
	all, none := state.bundle(), []byte(nil)
	for sentence, c := range map[string]struct {
		looks []clusterState // a minute apart
		want  int            // the index of the look since which it is trusted, -1 if it is not
	}{
		"trusted from the first look":          {[]clusterState{seen("1", all, all), seen("1", all, all)}, 0},
		"no webhook, so no trust is needed":    {[]clusterState{seen("1")}, 0},
		"one does not trust":                   {[]clusterState{seen("1", all, none)}, -1},
		"trusted later":                        {[]clusterState{seen("1", all, none), seen("1", all, all)}, 1},
		"the Secret changed between two looks": {[]clusterState{seen("1", all), seen("2", all)}, 1},
		"the trust broke between two looks":    {[]clusterState{seen("1", all), seen("1", none), seen("1", all)}, 2},
		"one has more webhooks that do not": {[]clusterState{{secret: state.data(), version: "1",
			configs: []webhookConfig{{bundles: map[string][]byte{"a": all, "b": none}}}}}, -1},
		"the bundle of another replica": {[]clusterState{seen("1", []byte("another"))}, -1},
	} {
		t.Run(sentence, func(t *testing.T) {
			clock := testclock.NewFakeClock(start)
			k := keeper(t, newWorld(), func(c *Config) { c.Clock = clock })
			var got facts
			for _, look := range c.looks {
				got, _ = k.observe(look)
				clock.Step(time.Minute)
			}
			want := time.Time{}
			if c.want >= 0 {
				want = start.Add(time.Duration(c.want) * time.Minute)
			}
			if got.Trusted != (c.want >= 0) || !got.Since.Equal(want) {
				t.Errorf("trusted %v since %v, want %v", got.Trusted, got.Since, want)
			}
		})
	}
}

// A patch contains all keys of this package and no others: an unwanted key is removed.
func TestPatchesLeaveForeignFields(t *testing.T) {
	all := map[string][]byte{keyCert: []byte("c"), keyKey: []byte("k"), keyNextCert: []byte("nc"),
		keyNextKey: []byte("nk"), keyOldCAs: []byte("o")}
	for keep := range all {
		patch := must.Get(secretPatch(map[string][]byte{keep: all[keep]}, "7"))(t)
		var read struct{ Data map[string]*[]byte }
		must.OK(t, json.Unmarshal(patch, &read))
		for key := range all {
			value, there := read.Data[key]
			if !there || (value == nil) == (key == keep) || key == keep && !bytes.Equal(*value, all[key]) {
				t.Errorf("with %s alone, %s is written %t, %v", keep, key, there, value)
			}
		}
		if len(read.Data) != len(all) {
			t.Errorf("written: %s", patch)
		}
	}
	patch, err := bundlePatch(webhookConfig{name: "m", version: "7", bundles: map[string][]byte{"hook": nil}}, []byte("b"))
	if want := `{"metadata":{"resourceVersion":"7"},"webhooks":[{"clientConfig":{"caBundle":"Yg=="},"name":"hook"}]}`; err != nil ||
		string(patch) != want {
		t.Errorf("written: %s, %v", patch, err)
	}
}

// Another replica may have been faster.
func TestPatchPreconditions(t *testing.T) {
	store := must.Get(secretPatch(map[string][]byte{keyCert: []byte("c")}, "7"))(t)
	trust, err := bundlePatch(webhookConfig{name: "m", version: "7", bundles: map[string][]byte{"hook": nil}}, []byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	for what, patch := range map[string][]byte{"the Secret": store, "a configuration": trust} {
		var read struct{ Metadata map[string]string }
		if err := json.Unmarshal(patch, &read); err != nil || read.Metadata["resourceVersion"] != "7" {
			t.Errorf("%s: %s, %v", what, patch, err)
		}
	}
}
