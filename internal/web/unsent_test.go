package web

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// entries returns entries of which each is a second younger than the one before.
func entries(n int) (all []view.Entry) {
	for i := range n {
		all = append(all, view.Entry{ID: fmt.Sprint(i), Time: metav1.Unix(int64(i), 0), Count: 1})
	}
	return all
}

func TestFullTimelineSaysSo(t *testing.T) {
	const full = "TimelineFull"
	sent, all := map[string]view.Entry{}, entries(maxEntries+2)
	if news := unsent(sent, all[2:]); len(news) != maxEntries || news[0].ID != "2" || news[0].Reason == full {
		t.Fatalf("of as many entries as there is room for, %d are sent, the first is %+v", len(news), news[0])
	}
	if news := unsent(sent, all); len(news) != 1 || news[0].Reason != full || !news[0].Time.Equal(&all[1].Time) {
		t.Errorf("of two entries more, %+v are sent", news)
	}
	all[7].Count++
	if news := unsent(sent, all); len(news) != 1 || news[0] != all[7] {
		t.Errorf("of one that has changed, %+v are sent", news)
	}
	if news := unsent(sent, all); len(news) > 0 {
		t.Errorf("of no news, %+v are sent", news)
	}
}

func TestTooManyEntriesLeaveOutTheOldest(t *testing.T) {
	news := unsent(map[string]view.Entry{}, entries(maxEntries+2))
	if len(news) != maxEntries+1 || news[0].Reason != "TimelineFull" || news[1].ID != "2" {
		t.Errorf("%d are sent, the first are %+v", len(news), news[:2])
	}
}
