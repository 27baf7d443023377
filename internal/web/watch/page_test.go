package watch

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// lister is an API server that lists one object of a kind, or answers with a status other than OK.
type lister struct {
	status atomic.Int64
	gone   atomic.Bool
}

func (l *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	of, listed := map[string][2]string{
		"persistentvolumes":      {"PersistentVolume", ""},
		"persistentvolumeclaims": {"PersistentVolumeClaim", "shop"},
		"pods":                   {"Pod", "shop"},
		"nodes":                  {"Node", ""},
	}[path.Base(r.URL.Path)]
	switch status := int(l.status.Load()); {
	case status != http.StatusOK:
		w.WriteHeader(status)
		return
	case !listed:
		http.NotFound(w, r)
		return
	}
	item := fmt.Sprintf(`{"metadata":{"name":"data","namespace":%q,"uid":"u","resourceVersion":"1",
		"creationTimestamp":"2026-01-02T03:04:05Z"}}`, of[1])
	if l.gone.Load() {
		item = ""
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"%sList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, of[0], item)
}

// open opens the page of an object of an API server.
func open(t *testing.T, api http.Handler, ref view.Ref) (*Cluster, *Page) {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c := must.Get(New(&rest.Config{Host: server.URL}, Config{}))(t)
	page := must.Get(c.Open(t.Context(), ref))(t)
	t.Cleanup(page.Close)
	return c, page
}

func look(t *testing.T, page *Page) (view.Object, []view.Entry) {
	t.Helper()
	return page.Look(t.Context(), func(string) (row view.Row, has bool) { return row, has })
}

// The caches have most pods not at all, so the last explanation decides whether a pod exists.
// Only an API server that answers that there is no such pod shows that it is gone.
func TestPageSaysThatPodIsGone(t *testing.T) {
	for status, refused := range map[int]bool{http.StatusNotFound: false, http.StatusForbidden: true} {
		for _, known := range []bool{true, false} {
			api := &lister{}
			api.status.Store(int64(status))
			_, page := open(t, api, view.Ref{Kind: view.KindPod, Namespace: "shop", Name: "data"})
			if known {
				page.shown.Explanation, page.shown.Exists = &explain.Explanation{}, true
				page.shown.Row = view.Row{ID: page.ref.ID(), Ref: page.ref, Phase: "Running"}
			}
			object, _ := look(t, page)
			if object.Exists != (known && refused) || (object.Unread != "") != refused || known != (object.Phase != "") {
				t.Errorf("%d, known is %v: %+v", status, known, object)
			}
		}
	}
}

// The stream of a page has no heartbeat during an explanation, which therefore ends although the API server is silent.
func TestExplanationThatHangsIsUnread(t *testing.T) {
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, page := open(t, silent, view.Ref{Kind: view.KindPod, Namespace: "shop", Name: "data"})
	if page.patience != liveTimeout {
		t.Errorf("an explanation may take %s", page.patience)
	}
	page.patience = time.Millisecond
	if object, _ := look(t, page); object.Unread == "" {
		t.Errorf("%+v", object)
	}
}

// An API server that refuses a read shows neither that an object is gone, nor later that it is new.
func TestRefusedReadIsNotAbsence(t *testing.T) {
	for _, ref := range []view.Ref{{Kind: view.KindPV, Name: "data"}, {Kind: view.KindNode, Name: "data"},
		{Kind: view.KindClaim, Namespace: "shop", Name: "data"}} {
		api := &lister{}
		c, page := open(t, api, ref)
		for _, step := range []struct {
			what                          string
			refuses, gone, exists, unread bool
			change                        string
		}{
			{what: "refused from the start", refuses: true, unread: true},
			{what: "read", exists: true},
			{what: "refused", refuses: true, exists: true, unread: true},
			{what: "read again", exists: true},
			{what: "gone", gone: true, change: "Removed"},
			{what: "made again", exists: true, change: "Added"},
		} {
			api.gone.Store(step.gone)
			api.status.Store(http.StatusOK)
			if step.refuses {
				api.status.Store(http.StatusForbidden)
			}
			for _, load := range []func(context.Context) error{c.pvs.load, c.claims.load, c.pods.load, c.nodes.load} {
				if err := load(t.Context()); (err != nil) != step.refuses {
					t.Fatalf("%s, %s: %v", ref.ID(), step.what, err)
				}
			}
			object, entries := look(t, page)
			if object.Exists != step.exists || (object.Unread != "") != step.unread ||
				step.exists && len(object.Graph.Nodes) == 0 {
				t.Errorf("%s, %s: %+v", ref.ID(), step.what, object)
			}
			changes := slices.DeleteFunc(entries, func(e view.Entry) bool { return e.Reason == "Created" })
			if step.change == "" && len(changes) > 0 || step.change != "" && (len(changes) != 1 ||
				changes[0].Reason != step.change) {
				t.Errorf("%s, %s: changes are %+v, want %q", ref.ID(), step.what, changes, step.change)
			}
		}
	}
}

// A client that connects again has the timeline of an earlier page.
func TestPagesOfObjectShareNoChanges(t *testing.T) {
	api := &lister{}
	api.status.Store(http.StatusOK)
	c, first := open(t, api, view.Ref{Kind: view.KindPV, Name: "data"})
	second := must.Get(c.Open(t.Context(), first.ref))(t)
	t.Cleanup(second.Close)
	ids := map[string]bool{}
	for _, gone := range []bool{false, true} {
		api.gone.Store(gone)
		for _, load := range []func(context.Context) error{c.pvs.load, c.claims.load, c.pods.load} {
			must.OK(t, load(t.Context()))
		}
		for _, page := range []*Page{first, second} {
			_, entries := look(t, page)
			for _, entry := range entries {
				if entry.Reason == "Removed" {
					ids[entry.ID] = true
				}
			}
		}
	}
	if len(ids) != 2 {
		t.Errorf("two pages have the IDs %v", ids)
	}
}
