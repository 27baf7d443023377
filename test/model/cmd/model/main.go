//go:build model

// Command model explores the worlds of test/model and prints what it found.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/model"
)

func main() {
	only := flag.String("world", "", "")
	limit := flag.Int("max-states", 3_000_000, "")
	flag.Parse()
	for _, w := range model.Worlds() {
		if *only != "" && !strings.Contains(w.Name, *only) {
			continue
		}
		r := model.Explore(context.Background(), &w, model.Options{MaxStates: *limit})
		fmt.Println(w.Name, r.States, r.Depth, r.Took, r.Exhausted, len(r.Violations), r.Stuck)
		for _, v := range r.Violations {
			fmt.Println(v.Promise)
			for i, l := range model.Story(&w, v) {
				fmt.Println(i+1, l)
			}
		}
		if r.StuckHere != nil {
			fmt.Println(r.StuckHere.Promise)
			for i, l := range model.Story(&w, *r.StuckHere) {
				fmt.Println(i+1, l)
			}
		}
	}
}
