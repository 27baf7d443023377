package snapshot

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// store serves one VolumeSnapshot, and accepts updates with its current resourceVersion.
type store struct {
	mu      sync.Mutex
	object  map[string]any
	version int
	// others, if set, is called before an update is processed, and simulates other writers.
	others func()
	// refuse, if set, answers updates.
	refuse *apierrors.StatusError
	// strips removes the finalizers in each update, as a webhook may.
	strips bool
	asked  []string
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method)
	fail := func(err *apierrors.StatusError) {
		status := err.ErrStatus
		status.Kind, status.APIVersion = "Status", "v1"
		s.answer(w, int(status.Code), status)
	}
	if r.Method == http.MethodPut {
		if s.others != nil {
			s.others()
		}
		var update map[string]any
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &update)
		}
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case s.refuse != nil:
			fail(s.refuse)
			return
		case s.object == nil:
			fail(apierrors.NewNotFound(groupResource(snapshotResource), "nightly"))
			return
		case meta(update)["resourceVersion"] != strconv.Itoa(s.version):
			fail(apierrors.NewConflict(groupResource(snapshotResource), "nightly", errors.New("changed")))
			return
		}
		s.object = update
		s.version++
		if s.strips {
			delete(meta(s.object), "finalizers")
		}
	}
	if s.object == nil {
		fail(apierrors.NewNotFound(groupResource(snapshotResource), "nightly"))
		return
	}
	meta(s.object)["resourceVersion"] = strconv.Itoa(s.version)
	s.answer(w, http.StatusOK, s.object)
}

func (s *store) answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func meta(object map[string]any) map[string]any {
	m, _ := object["metadata"].(map[string]any)
	return m
}

func (s *store) finalizers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, _ := meta(s.object)["finalizers"].([]any)
	var names []string
	for _, f := range list {
		name, _ := f.(string)
		names = append(names, name)
	}
	return names
}

// newStore serves a snapshot with a field that the Go types do not have.
func newStore(t *testing.T, finalizers []any, deleting bool) (*store, *Reader) {
	t.Helper()
	s := &store{version: 7}
	if err := json.Unmarshal([]byte(replace(ready, `"spec":{`, `"spec":{"fieldOfTomorrow":{"n":9007199254740993},`)),
		&s.object); err != nil {
		t.Fatal(err)
	}
	if finalizers != nil {
		meta(s.object)["finalizers"] = finalizers
	}
	if deleting {
		meta(s.object)["deletionTimestamp"] = "2030-01-02T03:04:05Z"
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	r := must.Get(New(&rest.Config{Host: server.URL}))(t)
	return s, r
}

const other = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"

func TestAddFinalizer(t *testing.T) {
	for name, c := range map[string]struct {
		before   []any
		deleting bool
		change   func(*store)
		want     []string
		err      error
		asked    []string
	}{
		"without": {nil, false, nil, []string{request.SnapshotFinalizer}, nil, []string{"GET", "PUT"}},
		"beside others": {[]any{other}, false, nil, []string{other, request.SnapshotFinalizer}, nil,
			[]string{"GET", "PUT"}},
		"with it: no write": {[]any{request.SnapshotFinalizer, other}, false, nil,
			[]string{request.SnapshotFinalizer, other}, nil, []string{"GET"}},
		"with it, deleting": {[]any{request.SnapshotFinalizer}, true, nil, []string{request.SnapshotFinalizer}, nil,
			[]string{"GET"}},
		"without it, deleting": {[]any{other}, true, nil, []string{other}, kube.ErrChanged, []string{"GET"}},
		"gone":                 {nil, false, func(s *store) { s.object = nil }, nil, kube.ErrGone, []string{"GET"}},
		"another of its name": {nil, false, func(s *store) { meta(s.object)["uid"] = "u2" }, nil, kube.ErrGone,
			[]string{"GET"}},
		"gone before the write": {nil, false, func(s *store) { s.others = func() { s.object = nil } }, nil, kube.ErrGone,
			[]string{"GET", "PUT"}},
		"changed by others once": {nil, false, func(s *store) {
			s.others = func() {
				s.others = nil
				s.version++
				meta(s.object)["finalizers"] = []any{other}
			}
		}, []string{other, request.SnapshotFinalizer}, nil, []string{"GET", "PUT", "GET", "PUT"}},
		"stripped in the write": {nil, false, func(s *store) { s.strips = true }, nil, kube.ErrUndone,
			[]string{"GET", "PUT"}},
		"changed by others again and again": {nil, false, func(s *store) { s.others = func() { s.version++ } }, nil,
			kube.ErrChanged, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := newStore(t, c.before, c.deleting)
			if c.change != nil {
				c.change(s)
			}
			err := r.AddFinalizer(t.Context(), nightly, "u1")
			if c.err == nil && err != nil || !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if got := s.finalizers(); !slices.Equal(got, c.want) {
				t.Errorf("finalizers %q, want %q", got, c.want)
			}
			if c.asked != nil && !slices.Equal(s.asked, c.asked) {
				t.Errorf("asked %q, want %q", s.asked, c.asked)
			}
		})
	}
}

func TestRemoveFinalizer(t *testing.T) {
	for name, c := range map[string]struct {
		before []any
		change func(*store)
		want   []string
		asked  []string
	}{
		"beside others": {[]any{other, request.SnapshotFinalizer, "example.com/x"}, nil,
			[]string{other, "example.com/x"}, []string{"GET", "PUT"}},
		"not there: no write": {[]any{other}, nil, []string{other}, []string{"GET"}},
		"gone":                {nil, func(s *store) { s.object = nil }, nil, []string{"GET"}},
		"another of its name": {[]any{request.SnapshotFinalizer}, func(s *store) { meta(s.object)["uid"] = "u2" },
			[]string{request.SnapshotFinalizer}, []string{"GET"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := newStore(t, c.before, true)
			if c.change != nil {
				c.change(s)
			}
			must.OK(t, r.RemoveFinalizer(t.Context(), nightly, "u1"))
			if got := s.finalizers(); !slices.Equal(got, c.want) || !slices.Equal(s.asked, c.asked) {
				t.Errorf("finalizers %q after %q, want %q after %q", got, s.asked, c.want, c.asked)
			}
		})
	}
}

// An update keeps all other stored fields, even the ones that our Go types do not have.
func TestUpdateKeepsUnknownFields(t *testing.T) {
	s, r := newStore(t, nil, false)
	must.OK(t, r.AddFinalizer(t.Context(), nightly, "u1"))
	text, err := json.Marshal(s.object["spec"])
	if err != nil || !strings.Contains(string(text), "fieldOfTomorrow") ||
		!strings.Contains(string(text), "persistentVolumeClaimName") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestAddFinalizerForbidden(t *testing.T) {
	s, r := newStore(t, nil, false)
	s.refuse = apierrors.NewForbidden(groupResource(snapshotResource), "nightly", errors.New("no"))
	if err := r.AddFinalizer(t.Context(), nightly, "u1"); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `"shop/nightly"`) {
		t.Errorf("%v, want Forbidden", err)
	}
}

func TestEachProtected(t *testing.T) {
	const path = api + "/volumesnapshots"
	item := func(name, more string) string {
		return `{"metadata":{"namespace":"shop","name":"` + name + `","uid":"u-` + name + `"` + more + `}}`
	}
	list := `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[` +
		strings.Join([]string{
			item("a", `,"finalizers":["`+other+`"]`),
			item("b", `,"finalizers":["`+other+`","`+request.SnapshotFinalizer+`"]`),
			item("c", `,"finalizers":["`+request.SnapshotFinalizer+`"],"deletionTimestamp":"2030-01-02T03:04:05Z"`),
			item("d", ""),
		}, ",") + `]}`
	s := serve(t, map[string]answer{path: {200, list}})
	var got []request.Snapshot
	must.OK(t, s.reader(t, nil).EachProtected(t.Context(), func(o request.Snapshot) { got = append(got, o) }))
	want := []request.Snapshot{
		{Namespace: "shop", Name: "b", UID: "u-b", Protected: true},
		{Namespace: "shop", Name: "c", UID: "u-c", Protected: true, Deleting: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	err := serve(t, nil).reader(t, nil).EachProtected(t.Context(), func(request.Snapshot) { t.Error("shows one") })
	if !errors.Is(err, ErrNotInstalled) {
		t.Errorf("%v, want ErrNotInstalled", err)
	}
	forbidden := status(t, apierrors.NewForbidden(groupResource(snapshotResource), "", nil))
	err = serve(t, map[string]answer{path: forbidden}).reader(t, nil).EachProtected(t.Context(),
		func(request.Snapshot) { t.Error("shows one") })
	if !apierrors.IsForbidden(err) {
		t.Errorf("%v, want Forbidden", err)
	}
}
