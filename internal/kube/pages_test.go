package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// Each page has its own timeout.
func TestEachPage(t *testing.T) {
	next := map[string]string{"": "a", "a": "b", "b": ""}
	var asked []string
	read := func(ctx context.Context, o metav1.ListOptions) (string, error) {
		asked = append(asked, o.Continue)
		if ends, limited := ctx.Deadline(); !limited || time.Until(ends) > pageTimeout {
			t.Errorf("page %q may take until %v", o.Continue, ends)
		}
		if o.Limit != 7 {
			t.Errorf("page %q is asked for with %+v", o.Continue, o)
		}
		return next[o.Continue], nil
	}
	if err := EachPage(t.Context(), metav1.ListOptions{Limit: 7}, read); err != nil ||
		!slices.Equal(asked, []string{"", "a", "b"}) {
		t.Errorf("asked for %q, %v", asked, err)
	}
}

func TestEachPageEndsWithFirstError(t *testing.T) {
	broken := errors.New("expired")
	calls := 0
	err := EachPage(t.Context(), metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (string, error) {
		calls++
		if calls == 2 {
			return "", broken
		}
		return "more", nil
	})
	if !errors.Is(err, broken) || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestEach(t *testing.T) {
	broken := errors.New("expired")
	var fails error
	list := func(_ context.Context, o metav1.ListOptions) (*v1.PodList, error) {
		if o.Limit != listPage {
			t.Errorf("asked for a page with %+v", o)
		}
		if o.Continue != "" {
			return &v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}}}, fails
		}
		return &v1.PodList{ListMeta: metav1.ListMeta{Continue: "more"},
			Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}, nil
	}
	var names []string
	visit := func(o *v1.Pod) { names = append(names, o.Name) }
	if err := Each(t.Context(), "pods", metav1.ListOptions{}, list, visit); err != nil ||
		!slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("visited %q, %v", names, err)
	}
	fails = broken
	if err := Each(t.Context(), "pods", metav1.ListOptions{}, list, visit); !errors.Is(err, broken) ||
		err.Error() != "list pods: expired" {
		t.Errorf("without the second page: %v", err)
	}
	keep := func(o *v1.Pod) string { return o.Name }
	if all, err := ListAll(t.Context(), list, metav1.ListOptions{}, keep); !errors.Is(err, broken) || all != nil {
		t.Errorf("without the second page: %q, %v", all, err)
	}
}

// Objects that users create may be as large as etcd stores them.
func TestPagesOfLargeObjectsAreSmaller(t *testing.T) {
	const all, fit = 1000, 60 // objects, of which so many fit into an answer
	for what, version := range map[string]string{"latest state": "", "cache of the API server": fromCache} {
		var asked []int64
		read := func(_ context.Context, o metav1.ListOptions) (string, error) {
			asked = append(asked, o.Limit)
			limit := o.Limit
			if o.ResourceVersion == fromCache {
				limit = all
			}
			if limit > fit {
				return "", fmt.Errorf("get pods: %w", ErrTooLarge)
			}
			from, _ := strconv.Atoi(o.Continue)
			if next := from + int(limit); next < all {
				return strconv.Itoa(next), nil
			}
			return "", nil
		}
		must.OK(t, EachPage(t.Context(), metav1.ListOptions{ResourceVersion: version}, read))
		if version == fromCache {
			asked = asked[1:]
		}
		if want := []int64{500, 250, 125, 62, 31, 62, 31}; !slices.Equal(asked[:len(want)], want) || len(asked) > 70 {
			t.Errorf("%s: %d pages, first %v", what, len(asked), asked[:10])
		}
	}
	one := func(context.Context, metav1.ListOptions) (string, error) { return "", ErrTooLarge }
	if err := EachPage(t.Context(), metav1.ListOptions{}, one); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one object alone: %v", err)
	}
}

func TestPagesGrowAgain(t *testing.T) {
	var asked []int64
	read := func(_ context.Context, o metav1.ListOptions) (string, error) {
		asked = append(asked, o.Limit)
		switch len(asked) {
		case 1, 2:
			return "", ErrTooLarge
		case 6:
			return "", nil
		}
		return "more", nil
	}
	must.OK(t, EachPage(t.Context(), metav1.ListOptions{}, read))
	if want := []int64{500, 250, 125, 250, 500, 500}; !slices.Equal(asked, want) {
		t.Errorf("pages of %v, want %v", asked, want)
	}
}

// pages is a server of pods with this many bytes, and a list that expires at its second page if it has to.
func pages(t *testing.T, pods, size int, expires bool) (*Cache[string], *[]url.Values) {
	t.Helper()
	var asked []url.Values
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q)
		w.Header().Set("Content-Type", "application/json")
		from, _ := strconv.Atoi(q.Get("continue"))
		if expires && from > 0 {
			expires = false
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
			return
		}
		limit, _ := strconv.Atoi(q.Get("limit"))
		next, end := "", pods
		if limit > 0 && from+limit < pods {
			end = from + limit
			next = strconv.Itoa(end)
		}
		_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":%q},"items":[`,
			next)
		for i := from; i < end; i++ {
			if i > from {
				_, _ = io.WriteString(w, ",")
			}
			_, _ = fmt.Fprintf(w, `{"metadata":{"name":"pod-%d"},"spec":{"hostname":%q}}`, i, strings.Repeat("x", size))
		}
		_, _ = io.WriteString(w, "]}")
	}))
	t.Cleanup(server.Close)
	clients := must.Get(NewClients(&rest.Config{Host: server.URL}))(t)
	record := func(runtime.Object, bool) (string, bool, error) { return "", true, nil }
	return NewCache(clients.Core.RESTClient(), "pods", &v1.Pod{}, record, OnChange[string](func(string, string) {})), &asked
}

// A list whose token has expired is read anew, and in pages.
func TestListOfAReflectorHasPages(t *testing.T) {
	const pods, mib = 40, 1 << 20
	for what, c := range map[string]struct {
		size    int
		expires bool
	}{"large pods": {mib, false}, "the list expires": {mib, true}, "small pods": {1, false}} {
		cache, asked := pages(t, pods, c.size, c.expires)
		list := pager.New(cache.source.ListWithContext)
		list.PageSize = 32
		got, _, err := list.List(t.Context(), metav1.ListOptions{})
		if err != nil || meta.LenList(got) != pods {
			t.Errorf("%s: %v, %d of %d", what, err, meta.LenList(got), pods)
		}
		for _, q := range *asked {
			if q.Get("limit") == "" || q.Get("resourceVersion") != "" || q.Get("resourceVersionMatch") != "" {
				t.Errorf("%s: asked with %v", what, q)
			}
		}
		if must.OK(t, cache.Load(t.Context())); cache.Len() != pods {
			t.Errorf("%s: loaded %d of %d", what, cache.Len(), pods)
		}
	}
}
