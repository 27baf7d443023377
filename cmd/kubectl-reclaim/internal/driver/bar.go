package driver

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

const barWidth = 40

// bar shows progress: it redraws one line in a terminal, and prints up to eleven lines elsewhere. Its methods must not
// be called concurrently.
type bar struct {
	w      io.Writer
	redraw bool
	// drawn is the last step shown, of ten or, in a terminal, of barWidth; -1 for none.
	drawn int
}

func newBar(w io.Writer) *bar {
	return &bar{w: w, redraw: printers.IsTerminal(w), drawn: -1}
}

func (b *bar) show(done, failed, of int) {
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

func (b *bar) end() {
	if b.redraw && b.drawn >= 0 {
		fmt.Fprintln(b.w)
	}
}
