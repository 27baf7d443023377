//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
)

// table plays scenarios, reports findings at once, and counts.
type table struct {
	bench    *faults.Bench
	parallel int
	rows     []row
	found    int

	mu sync.Mutex // also orders the output
}

// row counts one kind of scenario.
type row struct {
	name                                                         string
	scenarios, faults, crashes, creates, deletes, findings, errs int
	took                                                         time.Duration
}

func newTable(bench *faults.Bench, parallel int) *table {
	return &table{bench: bench, parallel: max(parallel, 1)}
}

// play plays all scenarios of a source, some at once, and returns how they ended, in no order.
func (t *table) play(ctx context.Context, name string, from source) (results []faults.Result) {
	began := time.Now()
	t.rows = append(t.rows, row{name: name})
	r := &t.rows[len(t.rows)-1]
	var players sync.WaitGroup
	for range t.parallel {
		players.Go(func() {
			for ctx.Err() == nil {
				t.mu.Lock()
				sc, more := from()
				t.mu.Unlock()
				if !more {
					return
				}
				result, err := t.bench.Run(ctx, sc)
				if ctx.Err() != nil {
					return
				}
				t.mu.Lock()
				results = append(results, result)
				r.count(result, err)
				t.tell(result, err)
				t.mu.Unlock()
			}
		})
	}
	players.Wait()
	r.took = time.Since(began)
	return results
}

func (r *row) count(result faults.Result, err error) {
	r.scenarios++
	r.faults += result.Faults
	r.crashes += result.Crashes
	r.creates += result.Calls[scenario.CreateVolume]
	r.deletes += result.Calls[scenario.DeleteVolume]
	r.findings += len(result.Findings)
	if err != nil {
		r.errs++
	}
}

// tell prints the findings in a scenario, with the scenario itself.
func (t *table) tell(result faults.Result, err error) {
	if err == nil && len(result.Findings) == 0 {
		fmt.Printf("  %-50s %6.1fs %3d faults %d crashes\n", result.Scenario.Name, result.Took.Seconds(), result.Faults,
			result.Crashes)
		return
	}
	t.found++
	fmt.Printf("FOUND in %s:\n", result.Scenario.Name)
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range result.Findings {
		fmt.Println(f)
	}
	text, wrong := result.Scenario.Marshal()
	if wrong != nil {
		fmt.Println(wrong)
	}
	fmt.Printf("To play it again, put this into a file for --scenario:\n%s\nThe sidecar's log ends:\n%s\n", text,
		result.Log)
}

// complain reports something that only a comparison shows.
func (t *table) complain(result faults.Result, what string) {
	t.found++
	t.rows[len(t.rows)-1].findings++
	fmt.Printf("FOUND in %s: %s\n", result.Scenario.Name, what)
}

func (t *table) print() {
	fmt.Printf("\n%-16s %9s %7s %7s %12s %12s %8s %6s %6s\n", "", "scenarios", "faults", "crashes", "CreateVolume",
		"DeleteVolume", "findings", "errors", "s")
	for _, r := range t.rows {
		fmt.Printf("%-16s %9d %7d %7d %12d %12d %8d %6d %6.0f\n", r.name, r.scenarios, r.faults, r.crashes, r.creates,
			r.deletes, r.findings, r.errs, r.took.Seconds())
	}
}
