package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// TestALogInAnotherNamespaceIsReported, and nothing is written because of it.
func TestALogInAnotherNamespaceIsReported(t *testing.T) {
	const driver, log = "disk.csi.example.com", "disk-csi-example-com-in-flight"
	lease := func(namespace, name, driver string, entries int) *coordinationv1.Lease {
		o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			UID: types.UID(namespace + name), Labels: map[string]string{inflight.LabelLog: "true"},
			Annotations: map[string]string{inflight.LabelLog: fmt.Sprintf(`{"version":1,"driver":%q,"uid":%q}`, driver,
				namespace+name)}}}
		for n := range entries {
			o.Annotations[fmt.Sprintf("in-flight.csi-reclaimer.io/pvc-%d", n)] = "?"
		}
		return o
	}
	may := true
	report := func(client *fake.Clientset, name string, shards int) string {
		t.Helper()
		own, err := inflight.New(inflight.Config{Leases: client.CoordinationV1(), Namespace: "new", Name: name,
			Driver: driver, Shards: shards})
		if err != nil {
			t.Fatal(err)
		}
		var written bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&written))))
		(&inFlightLog{Log: own, namespace: "new", authorization: client.AuthorizationV1()}).reportStrays(ctx)
		for _, action := range client.Actions() {
			lists := may && action.Matches("list", "leases")
			if !lists && !action.Matches("create", "selfsubjectaccessreviews") {
				t.Errorf("it sent %v", action)
			}
		}
		return written.String()
	}
	client := fake.NewClientset(lease("new", log+"-0", driver, 1), lease("old", log+"-0", driver, 0),
		lease("old", log+"-1", driver, 3), lease("old", "tape-in-flight-0", "tape", 5),
		lease("new", log+"-worker-1-0", driver, 2), lease("old", log+"-worker-1-0", driver, 4))
	client.PrependReactor("create", "selfsubjectaccessreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: may}}, nil
	})
	got := report(client, log, 0)
	for _, want := range []string{`lease="old/` + log + `-1" entries=3`, `lease="new/` + log + `-worker-1-0" entries=2`,
		`lease="old/` + log + `-worker-1-0" entries=4`, "kubectl reclaim settle"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if n := strings.Count(got, "entries="); n != 3 {
		t.Errorf("%d lines, want 3: %s", n, got)
	}
	client.ClearActions()
	got = report(client, log+"-worker-1", 1)
	if n := strings.Count(got, "entries="); n != 1 || !strings.Contains(got, `lease="old/`+log+`-worker-1-0" entries=4`) {
		t.Errorf("on a node: %s", got)
	}
	list, ok := client.Actions()[1].(k8stesting.ListAction)
	if !ok || list.GetListRestrictions().Fields.String() != "metadata.name="+log+"-worker-1-0" {
		t.Errorf("a node lists %v", client.Actions()[1])
	}

	may = false
	client.ClearActions()
	if got := report(client, log, 0); got != "" {
		t.Errorf("where Leases may not be listed: %s", got)
	}
}
