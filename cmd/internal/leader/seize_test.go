package leader

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// A caller must not take work for done that never began.
func TestSeizeFailsIfItNeverLeads(t *testing.T) {
	t.Parallel()
	o := Options{Settings: Config{Namespace: "ns", Identity: "me", LeaseDuration: 3 * time.Second,
		RenewDeadline: 2 * time.Second, RetryPeriod: time.Second}}
	e := must.Get(o.Elector(&rest.Config{}, "lease", leadership.NewClock()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset()
	client.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, errors.New("forbidden")
	})
	e.client = client
	err := e.Seize(ctx, time.Minute, func(context.Context) error {
		t.Error("it leads without the Lease")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("seized: %v", err)
	}
}

// A request without an answer in time is repeated, and any other error ends the take-over.
func TestTakeOverRepeatsTimeouts(t *testing.T) {
	refused := errors.New("refused")
	for _, verb := range []string{"get", "update"} {
		for _, fails := range []error{context.DeadlineExceeded, refused} {
			client := fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk"}})
			calls := 0
			client.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				calls++
				return calls == 1, nil, fails
			})
			changed, err := newElector(time.Minute, client).hold(t.Context(), func(*coordinationv1.Lease) bool { return true })
			if again := !errors.Is(fails, refused); changed != again || (err == nil) != again {
				t.Errorf("%s answered with %v: changed %t, %v", verb, fails, changed, err)
			}
		}
	}
}
