//go:build unix

package operations

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
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
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			if format != "json" {
				suite.Deep(t, suite.Variant)
			}
			t.Parallel()
			const secret, attribute, parameter = "SeCr3t", "AtTr1b", "PaRaM5"
			env := newEnvironment(t)
			env.GrantSecrets()
			vol := env.createWithMarkers(marker(secret), marker(attribute), marker(parameter))
			env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
				{Method: "DeleteVolume", Nth: 1, Action: faults.Fail, Code: "Internal",
					Message: "wrong password " + marker(secret) + " at login"},
				{Method: "DeleteVolume", Nth: 2, Action: faults.Fail, Code: "FailedPrecondition",
					Message: "refused " + marker(secret)},
			}}))
			traces := otelcollector.Start(t)
			car := env.StartSidecar(append(fixture.FastRetries(), "-v=10", "--tracing-endpoint="+traces.URL,
				"--logging-format="+format, "--leader-election", "--leader-election-namespace="+env.Namespace)...)
			env.WaitProtected(vol)
			env.Must(vol.DeleteClaim(env.Ctx))
			env.Must(vol.WaitGone(env.WithTimeout()))
			env.ExpectDeleted(vol, 3)
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
	class := "class-" + rand.String(8)
	_, err := env.Client.StorageV1().StorageClasses().Create(env.Ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: env.Driver,
		Parameters: map[string]string{
			"csi.storage.k8s.io/secret-name": "array", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
			"tenant": parameter,
		},
	}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() {
		_ = env.Client.StorageV1().StorageClasses().Delete(env.CleanupContext(), class, metav1.DeleteOptions{})
	})
	_, err = env.Client.CoreV1().Secrets(env.Namespace).Create(env.Ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "array"}, StringData: map[string]string{"password": secret},
	}, metav1.CreateOptions{})
	env.Must(err)
	return env.MakeVolume(objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
		pv.Spec.CSI.VolumeAttributes = map[string]string{"context": attribute}
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
			v1.BetaStorageClassAnnotation: class}
	}})
}
