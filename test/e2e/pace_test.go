//go:build unix

package e2e

import (
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestABackfillObeysAnAPIServerThatIsBusy gives the sidecar one seat, and no queue: what comes at
// the same time is answered 429.
func TestABackfillObeysAnAPIServerThatIsBusy(t *testing.T) {
	s := newStage(t)
	vols := s.makeMany(size(150, 60), func(i int) storage.Spec { return storage.Spec{Dynamic: true, Handle: "vol"} })
	s.oneSeat()
	s.sidecar("--protect-threads=16")
	s.waitAll(vols, "protected", isProtected)
	ours := s.answers("csi-reclaimer")

	// The same by a client that does not mind.
	config, err := clientcmd.BuildConfigFromFlags("", s.kube)
	s.must(err)
	config.UserAgent, config.QPS = "careless", -1
	client, err := kubernetes.NewForConfig(config)
	s.must(err)
	var writers errgroup.Group
	writers.SetLimit(16)
	for _, vol := range vols {
		writers.Go(func() error {
			_, err := client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		})
	}
	s.must(writers.Wait())
	careless := s.answers("careless")
	t.Logf("%d PVs: the backfill was answered %v, a client without a pace %v", len(vols), ours, careless)
	if ours[429]*3 > careless[429]*2 {
		t.Errorf("%d answers 429, %d without a pace: little was learned from them", ours[429], careless[429])
	}
}

// answers counts the answers to patches of PVs that a program with this name sent.
func (s *stage) answers(agent string) map[int]int {
	s.t.Helper()
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Verb == "patch" && e.Resource == "persistentvolumes" && strings.Contains(e.UserAgent, agent)
	})
	s.must(err)
	codes := map[int]int{}
	for _, e := range events {
		codes[e.Code]++
	}
	return codes
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
