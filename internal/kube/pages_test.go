package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
		if want := []int64{500, 250, 125, 62, 31, 31, 31}; !slices.Equal(asked[:len(want)], want) || len(asked) > 43 {
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
		case 4 + 3*growAfter:
			return "", nil
		}
		return "more", nil
	}
	must.OK(t, EachPage(t.Context(), metav1.ListOptions{}, read))
	want := []int64{500, 250}
	want = append(want, slices.Repeat([]int64{125}, growAfter)...)
	want = append(want, slices.Repeat([]int64{250}, growAfter)...)
	want = append(want, slices.Repeat([]int64{500}, growAfter+2)...)
	if !slices.Equal(asked, want) {
		t.Errorf("pages of %v, want %v", asked, want)
	}
}

// A list of a reflector has pages, also after the token of a page has expired.
func TestListOfAReflectorHasPages(t *testing.T) {
	const pods, fit = 100, 8
	for what, expires := range map[string]bool{"a list": false, "a list that expires": true} {
		list := func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			from, _ := strconv.Atoi(o.Continue)
			switch {
			case o.Limit == 0, o.ResourceVersion != "", o.ResourceVersionMatch != "":
				t.Errorf("%s: asked with %+v", what, o)
			case expires && from > 0:
				expires = false
				return nil, apierrors.NewResourceExpired("the token is too old")
			case o.Limit > fit:
				return nil, ErrTooLarge
			}
			page := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for i := from; i < min(from+int(o.Limit), pods); i++ {
				page.Items = append(page.Items, v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}})
			}
			if next := from + int(o.Limit); next < pods {
				page.Continue = strconv.Itoa(next)
			}
			return page, nil
		}
		record := func(runtime.Object, bool) (string, bool, error) { return "", true, nil }
		c := newCache(Selection{}, calls{list: list}, "pods", &v1.Pod{}, record, OnChange[string](func(string, string) {}))
		pages := pager.New(c.source.ListWithContext)
		pages.PageSize = newReflector(c.source, store[any]{}).WatchListPageSize
		got, _, err := pages.List(t.Context(), metav1.ListOptions{ResourceVersion: fromCache})
		if err != nil || meta.LenList(got) != pods {
			t.Errorf("%s: %v, %d of %d", what, err, meta.LenList(got), pods)
		}
		if must.OK(t, c.Load(t.Context())); c.Len() != pods {
			t.Errorf("%s: loaded %d of %d", what, c.Len(), pods)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	padding := strings.Repeat(" ", maxAnswer)
	body := padding
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	pods := must.Get(NewClients(&rest.Config{Host: server.URL}))(t).Core.Pods("ns")
	const list = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`
	body = list + padding[len(list):]
	if got, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil || got.ResourceVersion != "7" {
		t.Errorf("the largest answer: %v", err)
	}
	body = list + padding[len(list)-1:]
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a larger answer: %v", err)
	}
	body = padding + `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}}`
	if _, err := pods.ProxyGet("http", "driver", "1", "leaks", nil).DoRaw(t.Context()); err != nil {
		t.Errorf("another program's answer: %v", err)
	}
	w := must.Get(pods.Watch(t.Context(), metav1.ListOptions{}))(t)
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Errorf("a watch: %+v", event)
	}
}
