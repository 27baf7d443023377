package explain

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestFenceRead(t *testing.T) {
	fences := nodefence.Kind.Resource
	other := apierrors.NewForbidden(fences, "n1", nil)
	for sentence, c := range map[string]struct {
		err error
		ok  bool
		is  error
	}{
		"it is there":         {nil, true, nil},
		"there is none":       {apierrors.NewNotFound(fences, "n1"), true, nil},
		"one of another name": {apierrors.NewNotFound(fences, "n2"), false, apierrors.NewNotFound(fences, "n2")},
		"the kind is not served": {apierrors.NewGenericServerResponse(404, "GET", fences, "n1", "", 0, true),
			false, ErrNoFencing},
		"it is not allowed": {other, false, other},
		"no answer":         {http.ErrHandlerTimeout, false, http.ErrHandlerTimeout},
		"the kind has no name yet": {apierrors.NewGenericServerResponse(404, "LIST", fences, "", "", 0, false),
			false, ErrNoFencing},
	} {
		read := FenceRead(&v1alpha1.NodeFence{}, c.err, "n1")
		if read.OK() != c.ok || c.is != nil && read.Err.Error() != c.is.Error() || NoFencing(read) != errors.Is(c.is,
			ErrNoFencing) {
			t.Errorf("%s: %+v", sentence, read)
		}
		if c.ok && (read.Value == nil) != (c.err != nil) {
			t.Errorf("%s: %+v", sentence, read)
		}
	}
}

// An API server that does not know the group answers with a plain 404 page.
func TestFencingErrorWithoutFencingAPI(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "404 page not found")
	}))
	t.Cleanup(server.Close)
	fences := must.Get(client.New(&rest.Config{Host: server.URL}))(t)
	o, err := fences.Fences.Get(t.Context(), "n1", metav1.GetOptions{})
	if read := FenceRead(o, err, "n1"); !NoFencing(read) {
		t.Errorf("GET: %v", err)
	}
	if _, err := fences.Fences.List(t.Context(), metav1.ListOptions{}); !errors.Is(FencingError(err), ErrNoFencing) {
		t.Errorf("LIST: %v", err)
	}
}
