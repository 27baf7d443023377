package permission

import (
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMissing(t *testing.T) {
	client := fake.NewClientset()
	var fail error
	client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object,
		error) {
		review, ok := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		if !ok {
			return false, nil, nil
		}
		asked := *review.Spec.ResourceAttributes
		review.Status.Allowed = asked == authorizationv1.ResourceAttributes{Namespace: "ns", Verb: "get", Group: "g",
			Resource: "things", Name: "one"}
		return true, review, fail
	})
	granted := Permission{Group: "g", Resource: "things", Verb: "get", Namespace: "ns", Name: "one"}
	all, other := granted, granted
	all.Name = ""
	other.Verb = "patch"
	rights := []Permission{all, granted, other}
	if got, err := Missing(t.Context(), client.AuthorizationV1(), rights); err != nil ||
		!slices.Equal(got, []Permission{all, other}) {
		t.Errorf("missing %v, %v", got, err)
	}
	if got, err := NewChecker(client.AuthorizationV1(), rights).MissingPermissions(t.Context()); err != nil ||
		!slices.Equal(got, []Permission{all, other}) {
		t.Errorf("a Checker misses %v, %v", got, err)
	}
	fail = errors.New("timeout")
	if got, err := Missing(t.Context(), client.AuthorizationV1(), rights); err == nil || got != nil {
		t.Errorf("what could not be found out is missing: %v, %v", got, err)
	}
}

func TestPermissionString(t *testing.T) {
	for want, right := range map[string]Permission{
		`may not get things: nothing. Add to the ClusterRole: {apiGroups: ["g"], resources: ["things"], verbs: ["get"]}`:    {Group: "g"},
		`Add to the Role in namespace ns: {apiGroups: [""], resources: ["things"], verbs: ["get"]}`:                         {Namespace: "ns"},
		`Add to the Role in namespace ns: {apiGroups: [""], resources: ["things"], resourceNames: ["one"], verbs: ["get"]}`: {Namespace: "ns", Name: "one"},
	} {
		right.Resource, right.Verb, right.Without = "things", "get", "nothing"
		if got := right.String(); !strings.HasSuffix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
