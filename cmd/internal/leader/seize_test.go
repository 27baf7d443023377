package leader

import (
	"context"
	"errors"
	"testing"
	"time"

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
