package leaks

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// ReportHandler serves a report over HTTP, and is safe for concurrent use. Its zero value serves a report that says
// that csi-reclaimer is starting.
type ReportHandler struct{ report atomic.Pointer[func() Report] }

// Show sets the function that returns the report for each request.
func (b *ReportHandler) Show(report func() Report) { b.report.Store(&report) }

// ServeHTTP writes the report in the form of the parameter format: json, csv, or table, which is the default. With
// the parameter all, the table also has volumes that are not suspected. Methods other than GET and HEAD are not
// allowed.
func (b *ReportHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
		return
	}
	current := Report{Off: "csi-reclaimer is still starting", Volumes: []Found{}}
	if report := b.report.Load(); report != nil {
		current = (*report)()
	}
	// Write errors are ignored, because they mean that the client is gone.
	switch r.URL.Query().Get("format") {
	case "json":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(current)
	case "csv":
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		_ = current.WriteCSV(w)
	case "", "table":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = current.WriteTable(w, r.URL.Query().Has("all"))
	default:
		http.Error(w, "format is table, json or csv", http.StatusBadRequest)
	}
}
