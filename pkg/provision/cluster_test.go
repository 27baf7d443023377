package provision

import (
	"bytes"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestAClaimIsHeldOnlyAsItWasRead(t *testing.T) {
	var sent []byte
	client := fake.NewClientset()
	client.PrependReactor("patch", "persistentvolumeclaims", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if patch, ok := a.(k8stesting.PatchAction); ok {
			sent = patch.GetPatch()
		}
		return true, &v1.PersistentVolumeClaim{}, nil
	})
	server := apiServer{client.CoreV1(), nil, Finalizer}
	if err := server.protect(t.Context(), Claim{Namespace: "ns", Name: "data", UID: "u1", ResourceVersion: "7"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"resourceVersion":"7"`, `"uid":"u1"`, Finalizer} {
		if !bytes.Contains(sent, []byte(want)) {
			t.Errorf("no %s in %s", want, sent)
		}
	}
}
