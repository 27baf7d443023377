//go:build unix

package e2e

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
	"github.com/csi-reclaimer/csi-reclaimer/test/collector"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// canary is a value that is found again however it is written: it repeats six letters, which
// stand whole in each 16 bytes of a hex dump, and make whole groups of base64.
func canary(letters string) string { return strings.Repeat(letters, 12) }

// hits counts how often the letters of a canary stand in a text, plainly, in base64 or in hex.
func hits(text, letters string) int {
	return strings.Count(text, letters) + strings.Count(text, base64.StdEncoding.EncodeToString([]byte(letters))) +
		strings.Count(text, hex.EncodeToString([]byte(letters)))
}

func TestCanariesAreFound(t *testing.T) {
	const letters = "CaNaRy"
	for i := range 40 {
		dump := hex.Dump([]byte(strings.Repeat("x", i) + canary(letters) + "x"))
		if hits(dump, letters) == 0 {
			t.Errorf("not found in\n%s", dump)
		}
	}
	secret, err := json.Marshal(v1.Secret{Data: map[string][]byte{"key": []byte(canary(letters))}})
	if err != nil || hits(string(secret), letters) == 0 {
		t.Errorf("not found in %s (%v)", secret, err)
	}
	if hits(strings.ToLower(canary(letters)), letters) != 0 {
		t.Error("found where there is none")
	}
}

// TestNothingSecretIsTold has canaries in everything that is nobody's business, a driver that
// repeats the secrets it was sent, and a sidecar that is told to log all it can.
func TestNothingSecretIsTold(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			const secret, attribute, parameter = "SeCr3t", "AtTr1b", "PaRaM5"
			s := newStage(t)
			s.grantSecrets()
			vol := s.makeWithCanaries(canary(secret), canary(attribute), canary(parameter))
			s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
				{Method: "DeleteVolume", Nth: 1, Action: faults.Fail, Code: "Internal", Message: "wrong password " + canary(secret) + " at login"},
				{Method: "DeleteVolume", Nth: 2, Action: faults.Fail, Code: "FailedPrecondition", Message: "refused " + canary(secret)},
			}}))
			traces := collector.Start(t)
			car := s.sidecar(append(eager(), "-v=10", "--tracing-endpoint="+traces.URL, "--logging-format="+format, "--leader-election", "--leader-election-namespace="+s.Namespace)...)
			s.waitProtected(vol)
			s.must(vol.DeleteClaim(s.ctx))
			s.must(vol.WaitGone(s.soon()))
			s.expectDeleted(vol, 3)
			if keys := s.deletions(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"password"}) {
				t.Fatalf("the driver got the secrets %v: there was nothing to tell", keys)
			}
			s.waitEvent(vol, "VolumeFailedDelete", "refused ***") // the message is told, without the secret
			metrics, err := car.Get(s.ctx, "/metrics")
			s.must(err)
			s.must(car.Terminate())
			log, err := os.ReadFile(car.LogPath())
			s.must(err)
			list, err := s.client.CoreV1().Events(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{})
			s.must(err)
			events, err := json.Marshal(list)
			s.must(err)
			config, err := clientcmd.BuildConfigFromFlags("", s.kube)
			s.must(err)
			token := config.BearerToken[len(config.BearerToken)-32:]

			for where, text := range map[string]string{"log": string(log), "events": string(events), "metrics": metrics, "traces": fmt.Sprint(traces.Spans())} {
				for what, letters := range map[string]string{"secret": secret, "volume attribute": attribute, "class's parameter": parameter, "token": token} {
					if n := hits(text, letters); n > 0 {
						at := max(0, strings.Index(text, letters)-200)
						t.Errorf("%d hits of the %s in the %s, such as …%.500s…", n, what, where, text[at:])
					}
				}
			}
			// The search does find what is there: at this verbosity, by this function.
			for _, told := range []string{vol.Name, "Decided", "Calling DeleteVolume", "refused ***"} {
				if hits(string(log), told) == 0 {
					t.Errorf("the log does not tell %q: was it searched?", told)
				}
			}
			if hits(string(events), vol.Name) == 0 || hits(metrics, s.Driver) == 0 || hits(fmt.Sprint(traces.Spans()), "refused ***") == 0 {
				t.Error("the events, the metrics or the traces do not name the PV, the driver or its error: were they searched?")
			}
		})
	}
}

// makeWithCanaries makes a volume whose Secret is named by its StorageClass.
func (s *stage) makeWithCanaries(secret, attribute, parameter string) *storage.Volume {
	s.t.Helper()
	class := "class-" + rand.String(8)
	_, err := s.client.StorageV1().StorageClasses().Create(s.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: s.Driver,
		Parameters: map[string]string{
			"csi.storage.k8s.io/secret-name": "array", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}", "tenant": parameter,
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = s.client.StorageV1().StorageClasses().Delete(s.clean(), class, metav1.DeleteOptions{}) })
	_, err = s.client.CoreV1().Secrets(s.Namespace).Create(s.ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "array"}, StringData: map[string]string{"password": secret},
	}, metav1.CreateOptions{})
	s.must(err)
	return s.make(storage.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
		pv.Spec.CSI.VolumeAttributes = map[string]string{"context": attribute}
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": s.Driver, v1.BetaStorageClassAnnotation: class}
	}})
}
