package confirm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
)

func TestErrorsNameNextStep(t *testing.T) {
	t.Parallel()
	half := &unfinishedError{&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}}, "x",
		context.Canceled}
	for err, want := range map[error]string{
		errNotGone: "volume-guard runs", errNotProven: "kubectl reclaim explain", errWaitOver: "kubectl reclaim explain",
		errFenceOver: "kubectl reclaim explain", errNodeChanged: "run the same command again",
		errReplaced: "kubectl get pod", errChanged: "run the same command again",
		half: "to undo: kubectl annotate pod db-0 -n shop csi-reclaimer.io/confirm-force-delete-",
	} {
		if got := cli.ErrorText(fmt.Errorf("x: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
