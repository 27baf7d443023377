package leaks

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// Report holds the findings of the leak checks of one driver. New fields may be added, and existing ones do not
// change.
type Report struct {
	Driver string `json:"driver"`
	// Off explains why no leak checks are made, and is empty otherwise.
	Off string `json:"off,omitempty"`
	// Completed is the end of the last complete leak check; zero before the first one, or on a replica that waits to
	// lead.
	Completed time.Time `json:"completed,omitzero"`
	// Failure is the error of a later leak check that is incomplete.
	Failure string `json:"failure,omitempty"`
	// Interval, Sightings and Grace repeat the settings of the Controller.
	Interval  string `json:"interval,omitempty"`
	Sightings int    `json:"sightings,omitempty"`
	Grace     string `json:"grace,omitempty"`
	// Listed and ListedBytes are the number of the driver's volumes, and their size as far as the driver reports it.
	// Nameless counts the entries of its list that lack a volume_id.
	Listed      int   `json:"listed"`
	ListedBytes int64 `json:"listedBytes"`
	Nameless    int   `json:"nameless,omitempty"`
	// Suspected and SuspectedBytes are the same figures for suspects.
	Suspected      int   `json:"suspected"`
	SuspectedBytes int64 `json:"suspectedBytes"`
	// InFlight holds entries of the in-flight log that are older than the grace period and whose claim and PV do not
	// exist: the driver does not answer whether it has created their volumes.
	InFlight []InFlight `json:"inFlight,omitempty"`
	// Volumes are the volumes without an owner: suspects first, larger ones before smaller ones.
	Volumes []Found `json:"volumes"`
}

// Found is a volume that no PV or snapshot accounts for.
type Found struct {
	Handle string `json:"handle"`
	// Bytes is the size, or 0 if the driver does not report it.
	Bytes     int64 `json:"bytes,omitempty"`
	Suspected bool  `json:"suspected"`
	// Reason is the verdict's reason, and Because names the object or node that prevents a suspicion.
	Reason  Reason `json:"reason"`
	Because string `json:"because,omitempty"`
	// Sightings is the number of consecutive leak checks without an owner, and FirstSeen the time of the first one.
	Sightings int       `json:"sightings,omitempty"`
	FirstSeen time.Time `json:"firstSeen,omitzero"`
	// Topology holds the segments from which the volume is accessible; empty means every node, or not reported.
	Topology []map[string]string `json:"topology,omitempty"`
}

// InFlight is an entry of the in-flight log without a claim and a PV.
type InFlight struct {
	// Volume is the volume's name in the CreateVolume request.
	Volume string `json:"volume"`
	// Claim is the namespace and name of the claim that is gone.
	Claim string    `json:"claim"`
	Since time.Time `json:"since"`
	// Lease is the namespace and name of the Lease that holds the entry, and Annotation is the entry's key.
	Lease      string `json:"lease"`
	Annotation string `json:"annotation"`
}

// Report returns the findings of the last leak checks.
func (a *Controller) Report() Report {
	all, last := a.tracker.state()
	r := Report{
		Driver: a.name, Completed: last.completed.UTC(), Failure: last.failure,
		Interval: a.cfg.Interval.String(), Sightings: a.cfg.Sightings, Grace: a.cfg.Grace.String(),
		Listed: last.listed, ListedBytes: last.bytes, Nameless: last.nameless, Volumes: []Found{},
	}
	for _, e := range last.forgotten {
		r.InFlight = append(r.InFlight, InFlight{
			Volume: e.Volume, Claim: e.Claim.Namespace + "/" + e.Claim.Name, Since: e.Begun.UTC(), Lease: e.Lease.String(),
			Annotation: e.Annotation,
		})
	}
	for _, u := range all {
		if u.verdict.Suspected {
			r.Suspected++
			r.SuspectedBytes = max(r.SuspectedBytes, r.SuspectedBytes+u.volume.Bytes)
		}
		r.Volumes = append(r.Volumes, Found{
			Handle: u.volume.Handle, Bytes: u.volume.Bytes, Suspected: u.verdict.Suspected, Reason: u.verdict.Reason,
			Because:   u.because,
			Sightings: u.sightings, FirstSeen: u.firstSeen.UTC(), Topology: u.volume.Topology,
		})
	}
	return r
}

// Find returns the volume with this handle, and false if the report does not have it.
func (r Report) Find(handle string) (Found, bool) {
	for _, v := range r.Volumes {
		if v.Handle == handle {
			return v, true
		}
	}
	return Found{}, false
}

// Headline summarizes the report for people in one or two sentences.
func (r Report) Headline() string {
	switch {
	case r.Off != "":
		return "No leak checks are made: " + r.Off + "."
	case r.Completed.IsZero() && r.Failure != "":
		return "No leak check of " + r.Driver + " could be completed yet: " + r.Failure
	case r.Completed.IsZero():
		return "No leak check of " + r.Driver + " was completed yet."
	}
	text := fmt.Sprintf("%s of driver %s %s suspected to be %s (%s), of %d that it lists (%s); the last "+
		"complete leak check ended %s.",
		plural.Count(r.Suspected, "volume"), r.Driver, plural.Verb(r.Suspected, "is", "are"),
		plural.Verb(r.Suspected, "a leak", "leaks"), sizeWords(r.SuspectedBytes), r.Listed, sizeWords(r.ListedBytes),
		timeOrDash(r.Completed))
	if r.Failure != "" {
		text += " Later ones could not be completed: " + r.Failure
	}
	return text
}

// WriteTable writes the report as a table for people: suspects, and with all also the other volumes without an owner.
// It quotes texts with non-graphic characters, which could control a terminal.
func (r Report) WriteTable(w io.Writer, all bool) error {
	out := bufio.NewWriter(w) // keeps the first error for Flush
	fmt.Fprintln(out, printable(r.Headline()))
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	rows, hidden := 0, 0
	for _, v := range r.Volumes {
		if !v.Suspected && !all {
			hidden++
			continue
		}
		if rows == 0 {
			fmt.Fprintln(table, "\nHANDLE\tSIZE\tREASON\tSIGHTINGS\tFIRST SEEN\tBECAUSE OF")
		}
		rows++
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", shown(v.Handle), sizeOrDash(v.Bytes), v.Reason, v.Sightings,
			timeOrDash(v.FirstSeen), cmp.Or(printable(v.Because), "-"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if hidden > 0 {
		fmt.Fprintf(out, "\n%d more have no PV and are no suspects: %s.\n", hidden, r.others())
	}
	for _, e := range r.InFlight {
		fmt.Fprintf(out, "\nVolume %s is in flight since %s, and claim %s and its PV do not exist: kubectl reclaim explain "+
			"pvc/NAME -n NAMESPACE shows the way out.\n", shown(e.Volume), timeOrDash(e.Since), printable(e.Claim))
	}
	if r.Nameless > 0 {
		fmt.Fprintf(out, "\n%d entries of the driver's list have no id, so nothing can be said of them.\n", r.Nameless)
	}
	return out.Flush()
}

// others lists the number of unsuspected volumes for each reason.
func (r Report) others() string {
	var words []string
	for _, reason := range Reasons() {
		n := 0
		for _, v := range r.Volumes {
			if v.Reason == reason && !v.Suspected {
				n++
			}
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%s %d", reason, n))
		}
	}
	return strings.Join(words, ", ")
}

// WriteCSV writes the volumes without an owner as comma-separated values with a header (RFC 4180).
func (r Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"driver", "handle", "bytes", "suspected", "reason", "sightings", "first_seen", "because"}}
	for _, v := range r.Volumes {
		first := ""
		if !v.FirstSeen.IsZero() {
			first = v.FirstSeen.Format(time.RFC3339)
		}
		rows = append(rows, []string{
			cell(r.Driver), cell(v.Handle), strconv.FormatInt(v.Bytes, 10), strconv.FormatBool(v.Suspected), string(v.Reason),
			strconv.Itoa(v.Sightings), first, cell(v.Because),
		})
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write the report as CSV: %w", err)
	}
	return nil
}

// cell keeps a spreadsheet from interpreting foreign text as a formula (OWASP, "CSV Injection").
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// maxShown bounds the printed part of a handle, in bytes; the CSI specification allows 128.
const maxShown = 256

func shown(handle string) string { return printable(text.Truncate(handle, maxShown)) }

// printable quotes a text that contains non-graphic characters, and returns any other text unchanged.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return strconv.QuoteToGraphic(text)
	}
	return text
}

// sizeWords formats a size as a Quantity, such as 10Gi.
func sizeWords(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

func sizeOrDash(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return sizeWords(bytes)
}

func timeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

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

// register registers the tracker's state, which is counted at each scrape.
func (a *Controller) register(to prometheus.Registerer) error {
	driver := prometheus.Labels{"driver_name": a.name}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, driver)
	}
	suspects := desc("csi_reclaimer_suspected_leaks", "Volumes for which nothing in the cluster accounts.")
	bytes := desc("csi_reclaimer_suspected_leak_bytes", "Size of these volumes, as far as the driver reports it.")
	volumes := desc("csi_reclaimer_unaccounted_volumes", "Volumes without a PV, by verdict of the leak check.", "reason")
	completed := desc("csi_reclaimer_leak_check_last_complete_timestamp_seconds",
		"When the last complete leak check ended, in seconds since 1970, 0 if there was none.")
	return events.Register(to, events.Gauges(func(set events.SetGauge) {
		all, last := a.tracker.state()
		var leaks, size int64
		by := map[Reason]int{}
		for _, u := range all {
			by[u.verdict.Reason]++
			if u.verdict.Suspected {
				leaks++
				size = max(size, size+u.volume.Bytes)
			}
		}
		set(suspects, float64(leaks))
		set(bytes, float64(size))
		for _, reason := range Reasons() {
			set(volumes, float64(by[reason]), string(reason))
		}
		ended := 0.0
		if !last.completed.IsZero() {
			ended = float64(last.completed.UnixMilli()) / 1000
		}
		set(completed, ended)
	}, suspects, bytes, volumes, completed), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "csi_reclaimer_leak_check_failures_total", ConstLabels: driver,
		Help: "Leak checks that could not be completed.",
	}, func() float64 { return float64(a.tracker.failures()) }))
}
