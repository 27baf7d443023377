package leaks

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// sample has a suspect with control characters in its handle, one of unknown size, and an unsuspected volume.
func sample() Report {
	return Report{
		Driver: driverName, Completed: noon, Interval: "1h0m0s", Sightings: 3, Grace: "1h0m0s", Listed: 9,
		ListedBytes: 9 << 30,
		Suspected:   2, SuspectedBytes: 2 << 30, Nameless: 1,
		Volumes: []Found{
			{Handle: "=wild\x1b[2J", Bytes: 2 << 30, Suspected: true, Reason: ReasonLeakSuspected, Sightings: 4,
				FirstSeen: noon.Add(-time.Hour)},
			{Handle: "small", Suspected: true, Reason: ReasonLeakSuspected, Sightings: 3, FirstSeen: noon.Add(-time.Hour),
				Topology: []map[string]string{{"zone": "a"}}},
			{Handle: "young", Bytes: 1 << 30, Reason: ReasonBeingMade, Because: "claim ns/data"},
		},
	}
}

func ask(t *testing.T, b *ReportHandler, method, query string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	b.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, "/leaks"+query, http.NoBody))
	return answer.Code, answer.Body.String()
}

func TestReportHandler(t *testing.T) {
	var b ReportHandler
	if code, body := ask(t, &b, "GET", ""); code != 200 || !strings.Contains(body,
		"No leak checks are made: csi-reclaimer is still starting.") {
		t.Errorf("before there is one: %d %q", code, body)
	}
	b.Show(sample)
	_, table := ask(t, &b, "GET", "")
	want := strings.Join([]string{
		`2 volumes of driver disk.csi.example.com are suspected to be leaks (2Gi), of 9 that it lists (9Gi); the last complete leak check ended 2026-11-21T12:00:00Z.`,
		``,
		`HANDLE           SIZE   REASON          SIGHTINGS   FIRST SEEN             BECAUSE OF`,
		`"=wild\x1b[2J"   2Gi    LeakSuspected   4           2026-11-21T11:00:00Z   -`,
		`small            -      LeakSuspected   3           2026-11-21T11:00:00Z   -`,
		``,
		`1 more have no PV and are no suspects: MayBeBeingMade 1.`,
		``,
		`1 entries of the driver's list have no id, so nothing can be said of them.`,
		``,
	}, "\n")
	if table != want {
		t.Errorf("table:\n%s\nwant:\n%s", table, want)
	}
	if _, all := ask(t, &b, "GET", "?format=table&all"); !strings.Contains(all, "young") ||
		!strings.Contains(all, "claim ns/data") || strings.Contains(all, "more have no PV") {
		t.Errorf("all of it:\n%s", all)
	}
	_, text := ask(t, &b, "GET", "?format=json")
	var back Report
	if err := json.Unmarshal([]byte(text), &back); err != nil || len(back.Volumes) != 3 ||
		back.Volumes[0].Handle != sample().Volumes[0].Handle || !back.Completed.Equal(noon) ||
		back.Volumes[1].Topology[0]["zone"] != "a" {
		t.Errorf("JSON: %v, %+v", err, back)
	}
	if strings.Contains(text, "0001-01-01") {
		t.Errorf("a time that there is none of: %s", text)
	}
	_, text = ask(t, &b, "GET", "?format=csv")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 4 || rows[1][1] != "'=wild\x1b[2J" || rows[1][2] != "2147483648" ||
		rows[3][4] != "MayBeBeingMade" || rows[3][6] != "" {
		t.Errorf("CSV: %v, %q", err, rows)
	}
	if code, body := ask(t, &b, "GET", "?format=xml"); code != 400 {
		t.Errorf("XML: %d %q", code, body)
	}
	if code, _ := ask(t, &b, "POST", ""); code != 405 {
		t.Errorf("POST: %d", code)
	}
}

func TestHeadline(t *testing.T) {
	for want, change := range map[string]func(*Report){
		"No leak checks are made: because.":                        func(r *Report) { r.Off = "because" },
		"No leak check of disk.csi.example.com was completed yet.": func(r *Report) { r.Completed = time.Time{} },
		"could be completed yet: broken": func(r *Report) {
			r.Completed, r.Failure = time.Time{}, "broken"
		},
		"Later ones could not be completed: broken": func(r *Report) { r.Failure = "broken" },
	} {
		r := sample()
		change(&r)
		if got := r.Headline(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
