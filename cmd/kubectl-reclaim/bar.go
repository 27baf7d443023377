package main

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// barWidth is the width of the bar in a terminal.
const barWidth = 40

// bar shows progress: redrawn in a terminal, and elsewhere in ten lines. Its methods are
// called by one goroutine at a time.
type bar struct {
	w      io.Writer
	of     int
	redraw bool
	// drawn is how many tenths, or in a terminal parts of the bar, were shown.
	drawn int
}

func newBar(w io.Writer, of int) *bar {
	return &bar{w: w, of: of, redraw: printers.IsTerminal(w), drawn: -1}
}

// show shows how many are done and failed, of how many.
func (b *bar) show(done, failed, of int) {
	b.of = of
	steps := 10
	if b.redraw {
		steps = barWidth
	}
	at := steps
	if of > 0 {
		at = steps * (done + failed) / of
	}
	if at == b.drawn {
		return
	}
	b.drawn = at
	text := fmt.Sprintf("%d of %d released", done, of)
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if b.redraw {
		fmt.Fprintf(b.w, "\r[%s%s] %s", strings.Repeat("#", at), strings.Repeat(".", steps-at), text)
		return
	}
	fmt.Fprintln(b.w, text)
}

// end ends the line of the bar.
func (b *bar) end() {
	if b.redraw && b.drawn >= 0 {
		fmt.Fprintln(b.w)
	}
}
