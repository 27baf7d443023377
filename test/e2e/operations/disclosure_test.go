//go:build unix

package operations

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/otelcollector"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// marker is a value that is found again however it is written: it repeats six letters, which
// stand whole in each 16 bytes of a hex dump, and make whole groups of base64.
func marker(letters string) string { return strings.Repeat(letters, 12) }

// occurrences counts how often the letters of a canary stand in a text, plainly, in base64 or in hex.
func occurrences(text, letters string) int {
	return strings.Count(text, letters) + strings.Count(text, base64.StdEncoding.EncodeToString([]byte(letters))) +
		strings.Count(text, hex.EncodeToString([]byte(letters)))
}

func TestMarkersAreFound(t *testing.T) {
	const letters = "CaNaRy"
	for i := range 40 {
		dump := hex.Dump([]byte(strings.Repeat("x", i) + marker(letters) + "x"))
		if occurrences(dump, letters) == 0 {
			t.Errorf("not found in\n%s", dump)
		}
	}
	secret, err := json.Marshal(v1.Secret{Data: map[string][]byte{"key": []byte(marker(letters))}})
	if err != nil || occurrences(string(secret), letters) == 0 {
		t.Errorf("not found in %s (%v)", secret, err)
	}
	if occurrences(strings.ToLower(marker(letters)), letters) != 0 {
		t.Error("found where there is none")
	}
}

// TestSecretsAreRedacted places markers in all confidential fields, has the driver repeat the secrets it received, and
// sets the highest log level.
func TestSecretsAreRedacted(t *testing.T) {
	fixture.Begin(t, fixture.AboutProgram)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			if format != "json" {
				suite.Deep(t, suite.Variant)
			}
			t.Parallel()
			const secret, attribute, parameter = "SeCr3t", "AtTr1b", "PaRaM5"
			env := &environment{fixture.New(t)}
			env.GrantSecrets()
			vol := env.createWithMarkers(marker(secret), marker(attribute), marker(parameter))
			env.SetFaults(faults.Rule{Method: "DeleteVolume", Nth: 1, Action: faults.Fail, Code: "Internal",
				Message: "wrong password " + marker(secret) + " at login"},
				faults.Rule{Method: "DeleteVolume", Nth: 2, Action: faults.Fail, Code: "FailedPrecondition",
					Message: "refused " + marker(secret)})
			traces := otelcollector.Start(t)
			car := env.StartSidecar(append(fixture.FastRetries(), "-v=10", "--tracing-endpoint="+traces.URL,
				"--logging-format="+format, "--leader-election", "--leader-election-namespace="+env.Namespace)...)
			env.WaitProtected(vol)
			env.Must(vol.DeleteClaim(env.Ctx))
			env.ExpectReclaimed(vol, 3)
			if keys := env.DeleteCalls(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"password"}) {
				t.Fatalf("the driver got the secrets %v: there was nothing to redact", keys)
			}
			env.WaitPVEvent(vol, "VolumeFailedDelete", "refused ***") // the message is reported without the secret
			env.Eventually("the traces name the driver's error",
				func() bool { return occurrences(fmt.Sprint(traces.Spans()), "refused ***") > 0 })
			metrics, err := car.Get(env.Ctx, "/metrics")
			env.Must(err)
			env.Must(car.Terminate())
			log, err := os.ReadFile(car.LogPath())
			env.Must(err)
			list, err := env.Client.CoreV1().Events(metav1.NamespaceAll).List(env.Ctx, metav1.ListOptions{})
			env.Must(err)
			events, err := json.Marshal(list)
			env.Must(err)
			config, err := clientcmd.BuildConfigFromFlags("", env.Kubeconfig)
			env.Must(err)
			token := config.BearerToken[len(config.BearerToken)-32:]

			for where, text := range map[string]string{"log": string(log), "events": string(events), "metrics": metrics,
				"traces": fmt.Sprint(traces.Spans())} {
				for what, letters := range map[string]string{"secret": secret, "volume attribute": attribute,
					"class's parameter": parameter, "token": token} {
					if n := occurrences(text, letters); n > 0 {
						at := max(0, strings.Index(text, letters)-200)
						t.Errorf("%d hits of the %s in the %s, such as …%.500s…", n, what, where, text[at:])
					}
				}
			}
			// The search finds existing texts at this verbosity, by this function.
			for _, text := range []string{vol.Name, "Decided", "Calling DeleteVolume", "refused ***"} {
				if occurrences(string(log), text) == 0 {
					t.Errorf("the log does not have %q: was it searched?", text)
				}
			}
			if occurrences(string(events), vol.Name) == 0 || occurrences(metrics,
				env.Driver) == 0 || occurrences(fmt.Sprint(traces.Spans()), "refused ***") == 0 {
				t.Error("the events, the metrics or the traces do not name the PV, the driver or its error: were they searched?")
			}
		})
	}
}

// createWithMarkers creates a volume with a Secret named by its StorageClass.
func (env *environment) createWithMarkers(secret, attribute, parameter string) *objects.Volume {
	env.T.Helper()
	class := env.CreateStorageClass(func(class *objects.Class) {
		class.Parameters = map[string]string{
			"csi.storage.k8s.io/secret-name": "array", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
			"tenant": parameter,
		}
	})
	env.Secrets().Create(&v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "array"}, StringData: map[string]string{"password": secret},
	})
	return env.MakeVolume(objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
		pv.Spec.CSI.VolumeAttributes = map[string]string{"context": attribute}
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
			v1.BetaStorageClassAnnotation: class}
	}})
}

// TestReclaimIsOneTrace kills the sidecar in the middle of the reclaim that it reports to a collector.
func TestReclaimIsOneTrace(t *testing.T) {
	env := begin(t)
	spans := otelcollector.Start(t)
	// A sidecar that does not provision watches no claims, so it reads each of them.
	args := append(fixture.FastRetries(), "--tracing-endpoint="+spans.URL, "--provision=false")
	car := env.StartSidecar(args...)
	whole, cut := env.MakeProtected(objects.Spec{}), env.MakeProtected(objects.Spec{})
	root := func(vol *objects.Volume) func(otelcollector.Span) bool {
		return func(span otelcollector.Span) bool {
			return span.GetName() == "Reclaim" && span.Attributes["k8s.persistentvolume.name"] == vol.Name
		}
	}

	env.DeletePVFirst(whole)
	env.Must(whole.WaitGone(env.WithTimeout()))
	trace, all := spans.Wait(t, fixture.WaitTimeout, root(whole))
	if trace.Attributes["csi.volume.handle"] != whole.Handle ||
		trace.Attributes["csi_reclaimer.reason"] != "VolumeDeleted" {
		t.Errorf("the trace is of %v", trace.Attributes)
	}
	env.expectSteps(trace, all, "ReadSecrets", "ReadClaim", "ReadPV", "csi.v1.Controller/DeleteVolume", "DeleteVolume",
		"FinalizePV")

	env.SetFaults(faults.Rule{Method: "DeleteVolume", Volume: cut.Handle, Action: faults.Fail, Code: "Internal"})
	env.Must(cut.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(cut, 1)
	env.Must(car.Terminate())
	interrupted, _ := spans.Wait(t, fixture.WaitTimeout, root(cut))
	if interrupted.Attributes["csi_reclaimer.interrupted"] != "true" {
		t.Errorf("the trace that ends with the process says %v", interrupted.Attributes)
	}
	env.SetFaults()
	env.StartSidecar(args...)
	env.Must(cut.WaitGone(env.WithTimeout()))
	spans.Wait(t, fixture.WaitTimeout, func(span otelcollector.Span) bool {
		return root(cut)(span) && span.Attributes["csi_reclaimer.interrupted"] == "" &&
			span.Attributes["csi_reclaimer.resumed"] == "true"
	})
}

// expectSteps looks whether these spans, and no others, are in the trace, all within its time.
func (env *environment) expectSteps(trace otelcollector.Span, all []otelcollector.Span, names ...string) {
	env.T.Helper()
	left := map[string]int{}
	for _, name := range names {
		left[name]++
	}
	for _, span := range all {
		if string(span.GetTraceId()) != string(trace.GetTraceId()) || len(span.GetParentSpanId()) == 0 {
			continue
		}
		left[span.GetName()]--
		if span.GetStartTimeUnixNano() < trace.GetStartTimeUnixNano() ||
			span.GetEndTimeUnixNano() > trace.GetEndTimeUnixNano() {
			env.T.Errorf("%s is not within its trace", span.GetName())
		}
	}
	for name, n := range left {
		if n != 0 {
			env.T.Errorf("%s: %d too few in the trace", name, n)
		}
	}
}

// TestUnresponsiveCollectorDelaysNoDeletion sends spans to a port that accepts connections and answers nothing.
func TestUnresponsiveCollectorDelaysNoDeletion(t *testing.T) {
	fixture.Begin(t, suite.WaitsForClock, fixture.AboutProgram)
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = silent.Close() }()
	env := &environment{fixture.New(t)}
	car := env.StartSidecar(append(fixture.FastRetries(), "--tracing-endpoint="+silent.Addr().String(),
		"--shutdown-grace=1s")...)
	vol := env.MakeProtected(objects.Spec{})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.ExpectReclaimed(vol, 1)
	env.Must(car.Terminate())
}
