package reclaim

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// stockSecret resolves the Secret of a deletion from a StorageClass as external-provisioner's documentation and its
// getSecretReference do.
func stockSecret(pv volume.PV, parameters map[string]string) (volume.SecretRef, error) {
	const csi = "csi.storage.k8s.io/"
	for _, keys := range [][2][]string{
		{{"csiProvisionerSecretName", csi + "provisioner-secret-name"}, {"csiProvisionerSecretNamespace",
			csi + "provisioner-secret-namespace"}},
		{{csi + "secret-name"}, {csi + "secret-namespace"}},
	} {
		var count [2]int
		var template [2]string
		for i, spellings := range keys {
			for _, key := range spellings {
				if value, found := parameters[key]; found {
					count[i]++
					template[i] = value
				}
			}
		}
		if count == [2]int{} {
			continue
		}
		if count != [2]int{1, 1} || template[0] == "" || template[1] == "" {
			return volume.SecretRef{}, errors.New("not one name and one namespace")
		}
		known := map[string]string{"pv.name": pv.Name, "pvc.namespace": pv.Claim.Namespace}
		var unknown bool
		value := func(token string) string {
			text, ok := known[token]
			unknown = unknown || !ok
			return text
		}
		ref := volume.SecretRef{Namespace: os.Expand(template[1], value)}
		known["pvc.name"] = pv.Claim.Name
		ref.Name = os.Expand(template[0], value)
		if unknown || len(validation.IsDNS1123Label(ref.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(ref.Name)) > 0 {
			return volume.SecretRef{}, errors.New("no such name")
		}
		return ref, nil
	}
	return volume.SecretRef{}, nil
}

// The Secret is the same that external-provisioner would take, or unclear.
func FuzzSecretTemplates(f *testing.F) {
	for _, seed := range [][2]string{
		{"${pvc.name}", "${pvc.namespace}"}, {"a-${pv.name}", "ns"}, {"${pvc.annotations['x']}", "ns"},
		{"${pvc.name}", "${pvc.name}"},
		{"$pv", "ns"}, {"$$", "ns"}, {"a${}", "ns"}, {"a${", "ns"}, {"${pv.${pv.name}}", "ns"}, {"..", "ns"}, {"a/b", "ns"},
		{"A", "ns"}, {"a", "n.s"}, {"", "ns"}, {"", ""},
	} {
		f.Add(seed[0], seed[1], "pv", "claim", uint8(0))
		f.Add(seed[0], seed[1], "pv", "claim", uint8(2))
	}
	f.Add("a-${pv.name}-${pvc.name}", "${pvc.namespace}", "pv", "claim", uint8(1))
	f.Add("${pv.name", "}${", "pv", "claim", uint8(0))
	f.Add("$${pv.name}", "", "pv", "claim", uint8(0))
	f.Add("a", "b", "pv", "claim", uint8(3))
	f.Add("a", "b", "pv", "claim", uint8(4))
	f.Fuzz(func(t *testing.T, name, namespace, pvName, claim string, keys uint8) {
		pv := released().PV
		pv.Name, pv.Claim.Name = pvName, claim
		const csi = "csi.storage.k8s.io/"
		names := []string{csi + "provisioner-secret-name", "csiProvisionerSecretName", csi + "secret-name"}
		namespaces := []string{csi + "provisioner-secret-namespace", "csiProvisionerSecretNamespace",
			csi + "secret-namespace"}
		parameters := map[string]string{names[keys%3]: name, namespaces[keys%3]: namespace}
		switch keys / 3 % 4 {
		case 1: // twice, under two spellings
			parameters[names[(keys+1)%3]], parameters[namespaces[(keys+1)%3]] = "second", "second"
		case 2:
			delete(parameters, namespaces[keys%3])
		}
		got, err := secretOfClass(pv, csiClass(parameters))
		want, wantErr := stockSecret(pv, parameters)
		// os.Expand swallows these mistakes, which are no reason to guess.
		mistaken := func(template string) bool {
			return strings.Contains(template, "${}") || strings.Count(template, "${") > strings.Count(template, "}")
		}
		switch {
		case err == nil && (wantErr != nil || got != want):
			t.Errorf("secretOfClass(%q) = %v, external-provisioner: %v, %v", parameters, got, want, wantErr)
		case err != nil && !errors.Is(err, errSecretUnclear):
			t.Errorf("secretOfClass(%q): %v, want errSecretUnclear", parameters, err)
		case err != nil && wantErr == nil && !mistaken(name) && !mistaken(namespace):
			t.Errorf("secretOfClass(%q): %v, external-provisioner takes %v", parameters, err, want)
		}
	})
}

// The annotations name a valid Secret, or the Secret is unclear.
func FuzzSecretAnnotations(f *testing.F) {
	for _, seed := range [][2]string{{"a", "ns"}, {"", ""}, {"", "ns"}, {"a", ""}, {"../a", "ns"}, {"a", ".."},
		{"A", "ns"}, {"a.b", "n.s"}, {"é", "ns"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, namespace string) {
		ref, err := secretOf(volume.PV{SecretKnown: true, DeletionSecret: volume.SecretRef{Namespace: namespace, Name: name}})
		can := len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
		if ok := can || name+namespace == ""; ok != (err == nil) || (ok && ref != volume.SecretRef{Namespace: namespace,
			Name: name}) || (!ok && !errors.Is(err, errSecretUnclear)) {
			t.Errorf("secretOf(%q, %q) = %v, %v", namespace, name, ref, err)
		}
	})
}

// entries records each entry of a log.
type entries struct{ all []string }

func (e *entries) Write(p []byte) (int, error) {
	e.all = append(e.all, string(p))
	return len(p), nil
}

// FuzzReports passes names, handles and errors of any kind through Events, the log and the metrics. The output must be
// bounded and valid, and must not look like another entry of the log.
func FuzzReports(f *testing.F) {
	for reason := range Reasons() {
		f.Add("pv", "vol-1", "class", "driver says no", uint8(reason))
	}
	f.Add("pv", strings.Repeat("\U0001F4BE", 500), strings.Repeat("é", 200), strings.Repeat("x", 5000), uint8(5))
	f.Add("pv", "\nE0101 00:00:00.000000       1 main.go:1] \"forged\"", "\xff\xfe",
		"a\nE0101 00:00:00.000000       1 main.go:1] \"forged\"\n\xff", uint8(0))
	f.Fuzz(func(t *testing.T, name, handle, class, trouble string, which uint8) {
		heard, log := &heard{}, &entries{}
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log),
			textlogger.Verbosity(10))))
		registry := prometheus.NewRegistry()
		m := newMetrics(driver)
		must.OK(t, events.Register(registry, m.all()...))
		r := events.NewRecorder(events.Config[Reason]{Events: heard, Counter: m.reported})
		pv := released().PV
		pv.Name, pv.Handle, pv.StorageClass = name, handle, class
		pv.HeldBecause = text.Truncate(trouble, volume.MaxHoldReason)
		err := fmt.Errorf("delete volume %q: %s", handle, trouble)
		reason := Reasons()[int(which)%len(Reasons())]
		r.Report(ctx, object(pv), reason, reclaim.EventDetail(reclaim.Facts{PV: pv,
			Rules: reclaim.Rules{Driver: driver, Role: volume.RoleOwner}, Siblings: []volume.PV{{Name: name}}}, reason,
			reclaim.Moment{TookOver: true}))
		r.ReportFailure(ctx, object(pv), reason, err, true)
		r.ReportFailure(ctx, object(pv), reclaim.ReasonVolumeFailedDelete, err, true)
		r.ReportAside(ctx, object(pv), reason, trouble)
		deletion := reclaim.Ask{Decision: reclaim.Decision{Action: reclaim.DeleteVolume}, PV: pv}
		m.called(deletion, nil, 0)
		m.called(deletion, err, 0)
		if _, err := registry.Gather(); err != nil {
			t.Errorf("metrics: %v", err)
		}
		if len(heard.messages) == 0 || len(log.all) == 0 {
			t.Fatal("nothing was recorded")
		}
		for _, message := range heard.messages {
			if len(message) > events.MaxMessage || !utf8.ValidString(message) {
				t.Errorf("an Event with %d bytes: %q", len(message), message)
			}
		}
		const around = 800 // the record of one object without the detail
		if kept := fmt.Sprintf("%+v", r); len(kept) > events.MaxMessage+around {
			t.Errorf("%d bytes are kept: %s", len(kept), kept)
		}
		for _, entry := range log.all {
			for i, line := range bytes.Split(bytes.TrimSuffix([]byte(entry), []byte("\n")), []byte("\n")) {
				if i > 0 && !bytes.HasPrefix(line, []byte("\t")) && !bytes.HasPrefix(line, []byte(" >")) {
					t.Errorf("a line of an entry looks like one of its own: %q", line)
				}
			}
		}
	})
}
