package provision

import (
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
)

// TestPatchIsNotMissingBesideUpdate uses the permissions of the stock external-provisioner, and fewer.
func TestPatchIsNotMissingBesideUpdate(t *testing.T) {
	for name, c := range map[string]struct{ denied, want []string }{
		"all is granted":    {nil, nil},
		"no patch":          {[]string{"patch"}, nil},
		"no update":         {[]string{"update"}, []string{"update"}},
		"neither":           {[]string{"patch", "update"}, []string{"patch", "update"}},
		"no patch, no list": {[]string{"patch", "list"}, []string{"list"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.client.PrependReactor("create", "selfsubjectaccessreviews", func(a k8stesting.Action) (bool, runtime.Object,
				error) {
				create, _ := a.(k8stesting.CreateAction)
				review, ok := create.GetObject().(*authorizationv1.SelfSubjectAccessReview)
				if !ok {
					t.Errorf("a review of %T", create.GetObject())
					return false, nil, nil
				}
				asked := review.Spec.ResourceAttributes
				review.Status.Allowed = asked.Resource != "persistentvolumeclaims" || !slices.Contains(c.denied, asked.Verb)
				return true, review, nil
			})
			missing, err := w.make(Config{}).provisioner.MissingPermissions(t.Context())
			w.must(err)
			var verbs []string
			for _, p := range missing {
				verbs = append(verbs, p.Verb)
			}
			slices.Sort(verbs)
			if !slices.Equal(verbs, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("missing %q, want %q", verbs, c.want)
			}
		})
	}
}
