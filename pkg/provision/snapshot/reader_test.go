package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// answer is a server's answer for one path.
type answer struct {
	code int
	body string
}

// server gives the configured answers, and for any other path the answer of an API server that does not serve it.
type server struct {
	*httptest.Server
	answers map[string]answer

	mu    sync.Mutex
	asked []string
	heads []http.Header
}

func serve(t *testing.T, answers map[string]answer) *server {
	t.Helper()
	s := &server{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked, s.heads = append(s.asked, r.Method+" "+r.URL.RequestURI()), append(s.heads, r.Header)
	s.mu.Unlock()
	a, told := s.answers[r.URL.Path]
	if !told {
		http.NotFound(w, r) // plain text without a Status
		return
	}
	if strings.HasPrefix(a.body, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.code)
	_, _ = w.Write([]byte(a.body))
}

func (s *server) reader(t *testing.T, change func(*rest.Config)) *Reader {
	t.Helper()
	config := &rest.Config{Host: s.URL}
	if change != nil {
		change(config)
	}
	r := must.Get(New(config))(t)
	return r
}

const (
	api          = "/apis/snapshot.storage.k8s.io/v1"
	snapshotPath = api + "/namespaces/shop/volumesnapshots/nightly"
	contentPath  = api + "/volumesnapshotcontents/content-1"

	ready = `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot",
		"metadata":{"namespace":"shop","name":"nightly","uid":"u1"},
		"spec":{"source":{"persistentVolumeClaimName":"data"}},
		"status":{"boundVolumeSnapshotContentName":"content-1","readyToUse":true,"restoreSize":"1Gi"}}`
	content = `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContent",
		"metadata":{"name":"content-1","annotations":{"snapshot.storage.kubernetes.io/allow-volume-mode-change":"true"}},
		"spec":{"driver":"disk.csi.example.com","deletionPolicy":"Delete","source":{"volumeHandle":"vol-1"},
			"sourceVolumeMode":"Block",
			"volumeSnapshotRef":{"namespace":"shop","name":"nightly","uid":"u1"}},
		"status":{"snapshotHandle":"snap-1","readyToUse":true,"restoreSize":1073741824}}`
)

// nightly is the snapshot that the tests read.
var nightly = types.NamespacedName{Namespace: "shop", Name: "nightly"}

// status returns an API server's error.
func status(t *testing.T, err *apierrors.StatusError) answer {
	t.Helper()
	s := err.ErrStatus
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, encoded := json.Marshal(s)
	if encoded != nil {
		t.Fatal(encoded)
	}
	return answer{int(s.Code), string(body)}
}

func groupResource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: resource}
}

func TestRead(t *testing.T) {
	whole := func(change func(*request.Snapshot)) *request.Snapshot {
		s := &request.Snapshot{
			Namespace: "shop", Name: "nightly", UID: "u1", Ready: true, RestoreSize: ptr.To[int64](1 << 30),
			ContentName: "content-1",
			Content: &request.SnapshotContent{
				Name: "content-1", Driver: "disk.csi.example.com", Handle: "snap-1", Snapshot: nightly, SnapshotUID: "u1",
				SourceMode: ptr.To(v1.PersistentVolumeBlock), AllowModeChange: "true",
			},
		}
		change(s)
		return s
	}
	noSnapshot := status(t, apierrors.NewNotFound(groupResource(snapshotResource), "nightly"))
	noContent := status(t, apierrors.NewNotFound(groupResource(contentResource), "content-1"))
	for name, c := range map[string]struct {
		snapshot, content answer
		want              *request.Snapshot
		// gets is the number of requests.
		gets int
	}{
		"a snapshot and its content": {answer{200, ready}, answer{200, content}, whole(func(*request.Snapshot) {}), 2},
		"a snapshot whose content is gone": {answer{200, ready}, noContent,
			whole(func(s *request.Snapshot) { s.Content = nil }), 2},
		"a snapshot that is being taken": {answer{200, replace(ready, `"readyToUse":true,"restoreSize":"1Gi"`,
			`"readyToUse":false`)},
			answer{200, replace(content, `"snapshotHandle":"snap-1",`, "")},
			whole(func(s *request.Snapshot) { s.Ready, s.RestoreSize, s.Content.Handle = false, nil, "" }), 2},
		"a snapshot that is being deleted": {answer{200, replace(ready, `"uid":"u1"}`,
			`"uid":"u1","deletionTimestamp":"2030-01-02T03:04:05Z"}`)},
			answer{200, content}, whole(func(s *request.Snapshot) { s.Deleting = true }), 2},
		"a snapshot without status": {answer{200, replace(ready, `"status":`, `"ignored":`)}, answer{200, content},
			&request.Snapshot{Namespace: "shop", Name: "nightly", UID: "u1"}, 1},
		"a content without status": {answer{200, ready}, answer{200, replace(content, `"status":`, `"ignored":`)},
			whole(func(s *request.Snapshot) { s.Content.Handle = "" }), 2},
		"a content of a snapshotter that knew no modes": {answer{200, ready},
			answer{200, replace(content, `"sourceVolumeMode":"Block",`, "")},
			whole(func(s *request.Snapshot) { s.Content.SourceMode = nil }), 2},
		"a size that is no whole number of bytes": {answer{200, replace(ready, `"1Gi"`, `"1500m"`)}, answer{200, content},
			whole(func(s *request.Snapshot) { s.RestoreSize = ptr.To[int64](2) }), 2},
		"a snapshot whose content has a name that cannot exist": {
			answer{200, replace(ready, "content-1", "../../../../api/v1/secrets")}, answer{},
			whole(func(s *request.Snapshot) { s.ContentName, s.Content = "../../../../api/v1/secrets", nil }), 1},
		"no such snapshot": {noSnapshot, answer{200, content}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, map[string]answer{snapshotPath: c.snapshot, contentPath: c.content})
			got := must.Get(s.reader(t, nil).Read(t.Context(), nightly))(t)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(s.asked) != c.gets {
				t.Errorf("asked %q, want %d requests", s.asked, c.gets)
			}
		})
	}
}

// replace replaces a text that has to exist, because an unchanged input would test no new case.
func replace(text, old, with string) string {
	if !strings.Contains(text, old) {
		panic("no " + old)
	}
	return strings.ReplaceAll(text, old, with)
}

// An unknown snapshot must not be taken for a missing one, because its claim would be told so.
func TestUnknownIsNotAbsent(t *testing.T) {
	text := answer{404, "404 page not found\n"}
	for name, c := range map[string]struct {
		snapshot, content answer
		notInstalled      bool
	}{
		"an API server without snapshots":  {snapshot: text, notInstalled: true},
		"snapshots without contents":       {snapshot: answer{200, ready}, content: text, notInstalled: true},
		"a proxy that finds no API server": {snapshot: answer{404, "<html>nothing here</html>"}, notInstalled: true},
		"a 404 without a word":             {snapshot: answer{404, ""}, notInstalled: true},
		"a Status that is about a namespace": {snapshot: status(t, apierrors.NewNotFound(v1.Resource("namespaces"),
			"shop")), notInstalled: true},
		"a Status that is about another snapshot": {snapshot: status(t,
			apierrors.NewNotFound(groupResource(snapshotResource), "weekly")), notInstalled: true},
		"a Status that is about another API": {snapshot: status(t, apierrors.NewNotFound(
			schema.GroupResource{Group: "snapshot.example.com", Resource: snapshotResource}, "nightly")), notInstalled: true},
		"a Status that is about nothing": {snapshot: answer{404,
			`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`}, notInstalled: true},
		"a snapshot that may not be read": {snapshot: status(t,
			apierrors.NewForbidden(groupResource(snapshotResource), "nightly", nil))},
		"a content that may not be read": {snapshot: answer{200, ready},
			content: status(t, apierrors.NewForbidden(groupResource(contentResource), "content-1", nil))},
		"an API server in trouble": {snapshot: status(t,
			apierrors.NewInternalError(errors.New("etcd is away")))},
		"a content of an API server in trouble": {snapshot: answer{200, ready}, content: answer{500, "oops"}},
		"a content that lost its way": {snapshot: answer{200, ready},
			content: status(t, apierrors.NewNotFound(groupResource(snapshotResource), "content-1")), notInstalled: true},
		"an answer that is none":        {snapshot: answer{200, "<html>log in here</html>"}},
		"an answer that ends too early": {snapshot: answer{200, ready[:len(ready)/2]}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, map[string]answer{snapshotPath: c.snapshot, contentPath: c.content})
			got, err := s.reader(t, nil).Read(t.Context(), nightly)
			if err == nil || got != nil {
				t.Fatalf("got %+v, %v, want an error alone", got, err)
			}
			if errors.Is(err, ErrNotInstalled) != c.notInstalled || c.notInstalled &&
				!strings.Contains(err.Error(), "snapshots are not installed in this cluster") {
				t.Errorf("got %v, want ErrNotInstalled: %t", err, c.notInstalled)
			}
			if !strings.Contains(err.Error(), `"shop/nightly"`) {
				t.Errorf("%v: does not say of which snapshot", err)
			}
		})
	}
}

// Users write the names in claims.
func TestNoRequestForInvalidNames(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "../../pods/x", "%2e%2e"} {
		s := serve(t, nil)
		if got, err := s.reader(t, nil).Read(t.Context(), types.NamespacedName{Namespace: "shop",
			Name: name}); got != nil || (err == nil) != (name != "") {
			t.Errorf("%q: got %+v, %v, want an error only without a name", name, got, err)
		}
		if len(s.asked) > 0 {
			t.Errorf("%q: asked for %q", name, s.asked)
		}
	}
}

// A read is live: it has no resourceVersion, which would allow an older answer. It always uses JSON, although the other
// clients use protobuf.
func TestReadIsLiveAndUsesJSON(t *testing.T) {
	s := serve(t, map[string]answer{snapshotPath: {200, ready}, contentPath: {200, content}})
	r := s.reader(t, func(c *rest.Config) {
		c.ContentType = "application/vnd.kubernetes.protobuf"
		c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	})
	if _, err := r.Read(t.Context(), nightly); err != nil {
		t.Fatal(err)
	}
	if want := []string{"GET " + snapshotPath, "GET " + contentPath}; !slices.Equal(s.asked, want) {
		t.Errorf("asked %q, want %q", s.asked, want)
	}
	for i, head := range s.heads {
		if accept := head.Get("Accept"); accept != "application/json" {
			t.Errorf("%s: accepts %q, want JSON alone", s.asked[i], accept)
		}
	}
}

const contentsPath = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"

// listed returns a list of contents of one driver with these sources and statuses.
func listed(sourcesAndStatuses ...[2]string) answer {
	var items []string
	for i, c := range sourcesAndStatuses {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":"c%d","uid":"u%d"},"spec":{"driver":"d","source":%s},"status":%s}`, i, i, c[0], c[1]))
	}
	return answer{200, `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContentList","metadata":{},"items":[` + strings.Join(items, ",") + `]}`}
}

func TestEachContent(t *testing.T) {
	s := serve(t, map[string]answer{contentsPath: listed(
		[2]string{`{"volumeHandle":"v"}`, `{"snapshotHandle":"s","readyToUse":true}`},
		[2]string{`{"volumeHandle":"v"}`, `{"snapshotHandle":"s","readyToUse":false}`},
		[2]string{`{"volumeHandle":"v"}`, `null`},
		[2]string{`{"snapshotHandle":"was-there"}`, `{}`},
	)})
	var got []Content
	must.OK(t, s.reader(t, nil).EachContent(t.Context(), func(c Content) { got = append(got, c) }))
	want := []Content{
		{Name: "c0", UID: "u0", Driver: "d", Handle: "s"},
		{Name: "c1", UID: "u1", Driver: "d", Handle: "s", Making: true},
		{Name: "c2", UID: "u2", Driver: "d", Making: true},
		{Name: "c3", UID: "u3", Driver: "d", Handle: "was-there", Making: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEachContentErrors(t *testing.T) {
	for sentence, c := range map[string]struct {
		answer       answer
		notInstalled bool
	}{
		"no snapshots are served": {answer{404, "404 page not found\n"}, true},
		"they may not be listed":  {status(t, apierrors.NewForbidden(groupResource(contentResource), "", nil)), false},
		"the server is in need":   {answer{500, "oops"}, false},
	} {
		err := serve(t, map[string]answer{contentsPath: c.answer}).reader(t, nil).EachContent(t.Context(), func(Content) {})
		if err == nil || errors.Is(err, ErrNotInstalled) != c.notInstalled ||
			!strings.Contains(err.Error(), "list VolumeSnapshotContents") {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}
