//go:build unix

package pods

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
)

// The API server ends a watch that it takes for slow, such as under load.
func TestPodsAreFollowedAfterTheirWatchEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, watches := fake.NewClientset(), 0
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		})
		client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			watches++
			w := watch.NewFakeWithChanSize(1, false)
			w.Delete(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: session.PodName(watches),
				ResourceVersion: strconv.Itoa(1 + watches)}})
			w.Stop()
			return true, w, nil
		})
		nothing := func(context.Context) error { return nil }
		if _, err := follow(t.Context(), client, "pods", 3, isGone, nothing); err != nil || watches != 3 {
			t.Errorf("after %d watches: %v", watches, err)
		}
	})
}
