package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
	if err := s.reader(t, nil).EachContent(t.Context(), func(c Content) { got = append(got, c) }); err != nil {
		t.Fatal(err)
	}
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
