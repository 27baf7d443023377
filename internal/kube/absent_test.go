package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestAbsent(t *testing.T) {
	claims := v1.Resource("persistentvolumeclaims")
	without := apierrors.NewNotFound(claims, "data")
	without.ErrStatus.Details = nil
	foreign := schema.GroupResource{Group: "example.com", Resource: claims.Resource}
	generic := func(code int, of schema.GroupResource, name string, unexpected bool) error {
		return apierrors.NewGenericServerResponse(code, "GET", of, name, "", 0, unexpected)
	}
	for name, c := range map[string]struct {
		err         error
		absent, any bool
	}{
		"no error":                      {nil, false, false},
		"not found":                     {apierrors.NewNotFound(claims, "data"), true, true},
		"not found, wrapped":            {fmt.Errorf("read: %w", apierrors.NewNotFound(claims, "data")), true, true},
		"another name":                  {apierrors.NewNotFound(claims, "other"), false, true},
		"another resource":              {apierrors.NewNotFound(v1.Resource("persistentvolumes"), "data"), false, true},
		"another group":                 {apierrors.NewNotFound(foreign, "data"), false, true},
		"without details":               {without, false, false},
		"forbidden":                     {apierrors.NewForbidden(claims, "data", nil), false, false},
		"an error that is no answer":    {errors.New("not found"), false, false},
		"a 404 of something in between": {generic(http.StatusNotFound, claims, "data", true), false, false},
		"a resource that is not served": {generic(http.StatusNotFound, schema.GroupResource{}, "", false), false, false},
		"an internal error":             {generic(http.StatusInternalServerError, claims, "data", false), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Absent(c.err, claims, "data"); got != c.absent {
				t.Errorf("got %v for %v", got, c.err)
			}
			if got := AnyAbsent(c.err); got != c.any {
				t.Errorf("any object: got %v for %v", got, c.err)
			}
		})
	}
}

// The page of a proxy that cannot find the API server is no proof of absence.
func TestNotFoundOfProxyIsNotAbsence(t *testing.T) {
	for _, page := range []string{"", "404 page not found", `{"error":"no upstream"}`} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, page)
		}))
		client := must.Get(corev1.NewForConfig(&rest.Config{Host: proxy.URL}))(t)
		for what, write := range writes {
			if err := write(t.Context(), client); err == nil || errors.Is(err, ErrGone) {
				t.Errorf("%q: the answer to %s is %v", page, what, err)
			}
		}
		_, err := client.PersistentVolumeClaims("ns").Get(t.Context(), "data", metav1.GetOptions{})
		proxy.Close()
		if !apierrors.IsNotFound(err) || AnyAbsent(err) ||
			Absent(err, v1.Resource("persistentvolumeclaims"), "data") {
			t.Errorf("%q: got %v", page, err)
		}
	}
}

func TestAnswer(t *testing.T) {
	for err, want := range map[error]int32{
		fmt.Errorf("read: %w", apierrors.NewForbidden(v1.Resource("pods"), "a", nil)): http.StatusForbidden,
		errors.New("connection refused"):                                              0,
	} {
		if got := Answer(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// Neither client-go nor an HTTP server passes such names on.
func TestObjectOfImpossibleNameIsAbsent(t *testing.T) {
	get := func(context.Context, string, metav1.GetOptions) (*v1.PersistentVolumeClaim, error) {
		return nil, errors.New("asked")
	}
	for name, absent := range map[string]bool{
		"a/b": true, "100%": true, ".": true, "..": true, strings.Repeat("a", 254): true,
		"": false, "a": false, "a..b": false, "A b": false, strings.Repeat("a", 253): false,
	} {
		o, err := Read(t.Context(), Claim, "ns", name, get)
		if o != nil || (err == nil) != absent {
			t.Errorf("%q: %v, %v", name, o, err)
		}
		if _, err := GetObject(t.Context(), Claim.Resource, name, get); AnyAbsent(err) != absent {
			t.Errorf("%q without a record: %v", name, err)
		}
	}
}
