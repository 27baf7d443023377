package leaks

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// ReportHandler serves a report by HTTP, from before there is any. Its zero value says so. It is safe for concurrent
// use.
type ReportHandler struct{ report atomic.Pointer[func() Report] }

// Show has the board serve what report returns at each request.
func (b *ReportHandler) Show(report func() Report) { b.report.Store(&report) }

// ServeHTTP answers with the report: ?format=json, csv, or table for people, which is the default; with &all
// the table has the volumes too that are no suspects. It answers GET alone, and changes nothing.
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
	// An error of a write to the client is not reported: the client is gone.
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
