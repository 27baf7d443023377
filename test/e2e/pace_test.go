//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestABackfillEndsThoughTheAPIServerIsBusy gives the sidecar one seat, and no queue: what comes at
// the same time is answered 429.
func TestABackfillEndsThoughTheAPIServerIsBusy(t *testing.T) {
	s := newStage(t)
	vols := s.makeMany(size(150, 60), func(i int) storage.Spec { return storage.Spec{Dynamic: true, Handle: "vol"} })
	s.oneSeat()
	s.sidecar("--protect-threads=16")
	s.waitAll(vols, "protected", isProtected)
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Verb == "patch" && e.Resource == "persistentvolumes"
	})
	s.must(err)
	codes := map[int]int{}
	for _, e := range events {
		codes[e.Code]++
	}
	t.Logf("%d PVs: the answers were %v", len(vols), codes)
	if codes[200] != len(vols) {
		t.Errorf("%d writes for %d PVs", codes[200], len(vols))
	}
}

// TestABackfillLearnsFrom429 refuses the first write of each thread. How many writes are under way
// is counted where they arrive: each is there for at least the time that its answer is kept back.
func TestABackfillLearnsFrom429(t *testing.T) {
	const (
		threads, pause = 16, time.Second
		kept           = 300 * time.Millisecond
		// most are half of the threads and, of the 40 PVs, what 8, 9, 10 and 11 good answers add.
		pvs, most = 40, threads/2 + 4
	)
	s := newStage(t)
	vols := s.makeMany(pvs, func(i int) storage.Spec { return storage.Spec{Dynamic: true, Handle: "vol"} })
	account, err := s.plane.ServiceAccount(s.ctx, s.Namespace, "csi-reclaimer")
	s.must(err)
	line, err := proxy.Start(account, proxy.Options{})
	s.must(err)
	t.Cleanup(func() { s.must(line.Close()) })
	write := proxy.Rule{Verb: "patch", Resource: "persistentvolumes"}
	refuse, late := write, write
	refuse.Name, refuse.First, refuse.Effect, refuse.Code, refuse.RetryAfter = "refused", threads, proxy.Fail, http.StatusTooManyRequests, int(pause.Seconds())
	late.Effect, late.Delay = proxy.LateAnswer, proxy.Duration(kept)
	s.must(line.SetRules(refuse, late))
	s.kube = filepath.Join(t.TempDir(), "proxied")
	s.must(controlplane.WriteKubeconfig(s.kube, line.Config()))
	s.sidecar(fmt.Sprintf("--protect-threads=%d", threads))
	s.waitAll(vols, "protected", isProtected)

	var first time.Time
	refused := map[string]bool{}
	// began are the writes of PVs that were never refused: those that a thread took up later.
	var began []time.Time
	for _, q := range line.Requests() {
		switch {
		case q.Verb != write.Verb || q.Resource != write.Resource:
		case q.Rule == refuse.Name:
			if refused[q.Name] = true; first.IsZero() {
				first = q.Received
			}
		case !refused[q.Name]:
			began = append(began, q.Received)
		}
	}
	if len(began) < pvs-threads {
		t.Fatalf("%d of %d PVs were taken up after the 429", len(began), pvs)
	}
	crowd := 0
	for i := range began {
		under := 1
		for j := i - 1; j >= 0 && began[i].Sub(began[j]) < kept; j-- {
			under++
		}
		crowd = max(crowd, under)
	}
	t.Logf("%d writes at once after the 429; the first of them %v later", crowd, began[0].Sub(first))
	if crowd > most {
		t.Errorf("%d writes at once after 429, want at most %d of the %d threads", crowd, most, threads)
	}
	if waited := began[0].Sub(first); waited < pause {
		t.Errorf("the next PV was taken up %v after the 429, which asked for %v", waited, pause)
	}
}

// oneSeat limits the stage's account to one call at a time.
func (s *stage) oneSeat() {
	s.t.Helper()
	one, zero := int32(1), int32(0)
	api := s.client.FlowcontrolV1()
	_, err := api.PriorityLevelConfigurations().Create(s.ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &one, LendablePercent: &zero, BorrowingLimitPercent: &zero,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = api.FlowSchemas().Create(s.ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: s.Namespace},
			MatchingPrecedence:         100,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
					ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: s.Namespace, Name: "csi-reclaimer"}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, ClusterScope: true,
				}},
			}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		_ = api.FlowSchemas().Delete(s.clean(), s.Namespace, metav1.DeleteOptions{})
		_ = api.PriorityLevelConfigurations().Delete(s.clean(), s.Namespace, metav1.DeleteOptions{})
	})
}
