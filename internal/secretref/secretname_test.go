package secretref

import (
	"errors"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

const csi = "csi.storage.k8s.io/"

func TestFind(t *testing.T) {
	cases := map[string]struct {
		parameters map[string]string
		want       Template
		unclear    bool
	}{
		"nothing is named": {map[string]string{"type": "ssd"}, Template{}, false},
		"the call's own": {map[string]string{csi + "node-stage-secret-name": "a", csi + "node-stage-secret-namespace": "b"},
			Template{"a", "b"}, false},
		"the one of old": {map[string]string{"csiNodeStageSecretName": "a", "csiNodeStageSecretNamespace": "b"},
			Template{"a", "b"}, false},
		"half of it as of old": {map[string]string{csi + "node-stage-secret-name": "a", "csiNodeStageSecretNamespace": "b"},
			Template{"a", "b"}, false},
		"the Secret of all calls": {map[string]string{csi + "secret-name": "a", csi + "secret-namespace": "b"},
			Template{"a", "b"}, false},
		"its own Secret overrides the common one": {map[string]string{csi + "secret-name": "x", csi + "secret-namespace": "x",
			csi + "node-stage-secret-name": "a", csi + "node-stage-secret-namespace": "b"}, Template{"a", "b"}, false},
		"half of its own does not fall back to the Secret of all calls": {map[string]string{csi + "secret-name": "x",
			csi + "secret-namespace":       "x",
			csi + "node-stage-secret-name": "a"}, Template{}, true},
		"two spellings": {map[string]string{csi + "node-stage-secret-name": "a", csi + "node-stage-secret-namespace": "b",
			"csiNodeStageSecretName": "a"}, Template{}, true},
		"a name without a namespace": {map[string]string{csi + "secret-name": "a"}, Template{}, true},
		"an empty name": {map[string]string{csi + "secret-name": "", csi + "secret-namespace": "b"},
			Template{}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Find(c.parameters, NodeStage(), Default())
			if got != c.want || errors.Is(err, ErrUnclear) != c.unclear {
				t.Errorf("Find = %+v, %v", got, err)
			}
		})
	}
}

func TestFor(t *testing.T) {
	volume := Volume{PV: "pv-1", ClaimNamespace: "team", ClaimName: "data",
		ClaimAnnotations: map[string]string{"example.com/s": "mine"}}
	cases := map[string]struct {
		template        Template
		namespace, name string
	}{
		"without tokens": {Template{"s", "ns"}, "ns", "s"},
		"the name knows PV, claim and its own": {Template{"${pv.name}-${pvc.namespace}.${pvc.name}", "ns"},
			"ns", "pv-1-team.data"},
		"the name knows an annotation": {Template{"${pvc.annotations['example.com/s']}", "ns"}, "ns",
			"mine"},
		"the namespace knows PV and namespace": {Template{"s", "${pvc.namespace}-${pv.name}"}, "team-pv-1",
			"s"},
		"a namespace by the claim's name is not to be had":   {Template{"s", "${pvc.name}"}, "", ""},
		"a namespace by an annotation is not to be had":      {Template{"s", "${pvc.annotations['example.com/s']}"}, "", ""},
		"an annotation that is not there":                    {Template{"${pvc.annotations['x']}", "ns"}, "", ""},
		"a token that does not end":                          {Template{"${pv.name", "ns"}, "", ""},
		"a shell variable is no name":                        {Template{"$HOME", "ns"}, "", ""},
		"a name that no Secret can have":                     {Template{"A", "ns"}, "", ""},
		"a namespace that there cannot be":                   {Template{"s", "n.s"}, "", ""},
		"a value is not looked through for tokens once more": {Template{"${pvc.annotations['${pv.name}']}", "ns"}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			namespace, secret, err := c.template.For(volume)
			if namespace != c.namespace || secret != c.name || (err == nil) != (c.name != "") || err != nil &&
				!errors.Is(err, ErrUnclear) {
				t.Errorf("For = %q, %q, %v", namespace, secret, err)
			}
		})
	}
}

// FuzzFor checks that the Secret is the one that external-provisioner chooses, which replaces tokens with os.Expand, or
// unclear.
func FuzzFor(f *testing.F) {
	for _, seed := range [][2]string{
		{"${pvc.name}", "${pvc.namespace}"}, {"${pvc.annotations['k']}", "ns"}, {"a-${pv.name}", "ns"},
		{"${pvc.name}", "${pvc.name}"}, {"$pv", "ns"}, {"$$", "ns"},
		{"a${}", "ns"}, {"a${", "ns"}, {"${pv.${pv.name}}", "ns"}, {"..", "ns"}, {"a/b", "ns"}, {"A", "ns"}, {"a", "n.s"},
		{"", ""},
	} {
		f.Add(seed[0], seed[1], "data", "value")
	}
	f.Fuzz(func(t *testing.T, name, namespace, claim, annotation string) {
		namespaces := map[string]string{"pv.name": "pv-1", "pvc.namespace": "team"}
		names := map[string]string{"pv.name": "pv-1", "pvc.namespace": "team", "pvc.name": claim,
			"pvc.annotations['k']": annotation}
		known := true
		expand := func(template string, values map[string]string) string {
			return os.Expand(template, func(token string) string {
				value, found := values[token]
				known = known && found
				return value
			})
		}
		wantNamespace, wantName := expand(namespace, namespaces), expand(name, names)
		can := known && len(validation.IsDNS1123Label(wantNamespace)) == 0 &&
			len(validation.IsDNS1123Subdomain(wantName)) == 0

		gotNamespace, gotName, err := Template{name, namespace}.For(Volume{"pv-1", "team", claim,
			map[string]string{"k": annotation}})
		// os.Expand ignores these mistakes, which are no reason to guess.
		mistaken := func(template string) bool {
			return strings.Contains(template, "${}") || strings.Count(template, "${") > strings.Count(template, "}")
		}
		switch {
		case err == nil && (!can || gotNamespace != wantNamespace || gotName != wantName):
			t.Errorf("For(%q, %q) = %q, %q; external-provisioner: %q, %q, %v", name, namespace, gotNamespace, gotName,
				wantNamespace, wantName, can)
		case err != nil && (gotNamespace != "" || gotName != "" || !errors.Is(err, ErrUnclear)):
			t.Errorf("For(%q, %q) = %q, %q, %v", name, namespace, gotNamespace, gotName, err)
		case err != nil && can && !mistaken(name) && !mistaken(namespace):
			t.Errorf("For(%q, %q): %v; external-provisioner takes %q, %q", name, namespace, err, wantNamespace, wantName)
		}
	})
}
