package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// apiVersion is the version of the JSON and YAML output. Within a version, fields are added but not changed.
const apiVersion = "csi-reclaimer.io/v1alpha1"

const (
	formatTable = "table"
	formatWide  = "wide"
	// FormatName is the format of the names of objects, as in kubectl.
	FormatName = "name"
)

// Output prints the result of a command in the format of -o.
type Output struct {
	*Plugin
	Format  string
	formats []string
	// own are formats of this command alone, which it prints itself.
	own     []string
	Printer printers.ResourcePrinter
}

// AddOutput adds -o to the command, with the common formats and its own ones.
func (o *Output) AddOutput(cmd *cobra.Command, own ...string) {
	o.formats, o.own = append([]string{formatTable, formatWide, "json", "yaml"}, own...), own
	last := len(o.formats) - 1
	cmd.Flags().StringVarP(&o.Format, "output", "o", formatTable,
		"Output format: "+strings.Join(o.formats[:last], ", ")+" or "+o.formats[last]+".")
	MustComplete(cmd, "output", Words(o.formats...))
}

// Wide reports whether a table has all of its columns.
func (o *Output) Wide() bool { return o.Format == formatWide }

func (o *Output) prepare() (err error) {
	if o.Format == formatTable || o.Format == formatWide || slices.Contains(o.own, o.Format) {
		return nil
	}
	if o.Printer, err = genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.Format); err != nil {
		return fmt.Errorf("--output=%s: must be one of %s", o.Format, strings.Join(o.formats, ", "))
	}
	return nil
}

// Run returns the function that runs a command whose result is printed.
func (o *Output) Run(command func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := o.prepare(); err != nil {
			return err
		}
		err := command(cmd.Context(), args)
		if err == nil && o.Printer == nil && !slices.Contains(o.own, o.Format) {
			o.noteCluster()
		}
		return err
	}
}

// Print writes value, a struct, as an object of the kind, or calls people for text output.
func (o *Output) Print(kind string, value any, people func(io.Writer) error) error {
	if o.Printer == nil {
		return people(o.Out)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("print %s: %w", kind, err)
	}
	object := &unstructured.Unstructured{}
	if err := kubejson.Unmarshal(text, &object.Object); err != nil {
		return fmt.Errorf("print %s: %w", kind, err)
	}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	if err := o.Printer.PrintObj(object, o.Out); err != nil {
		return fmt.Errorf("print %s: %w", kind, err)
	}
	return nil
}

// Messages is the stream of sentences about a change: ErrOut beside an object of -o, which a program reads from Out.
func (o *Output) Messages() io.Writer {
	if o.Printer != nil {
		return o.ErrOut
	}
	return o.Out
}

// defaultWidth is the width of a terminal that does not tell its own.
const defaultWidth = 80

// widthOf returns the width of a terminal, 0 if w is none: a program that reads the output wants whole lines.
func widthOf(w io.Writer) int {
	file, is := w.(*os.File)
	if !is || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		return width
	}
	return defaultWidth
}

// WriteExplanation writes an explanation as wide as the terminal.
func WriteExplanation(w io.Writer, e explain.Explanation, wide bool) error {
	return printers.WriteEscaped(w, e.Wrapped(wide, widthOf(w)))
}

// OrDash returns a text, or a dash for none.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// PrintLine writes a line that may contain text from the cluster, so it escapes control sequences. A line for
// attention is red if the terminal shows colors.
func PrintLine(w io.Writer, text string, attention bool) {
	text = printers.EscapeTerminal(text)
	if attention && printers.AllowsColorOutput(w) {
		text = "\x1b[31m" + text + "\x1b[0m"
	}
	fmt.Fprintln(w, text)
}

// Poll has the flags of a command that may repeat its reads.
type Poll struct {
	watch    bool
	interval time.Duration
}

// AddPoll adds --watch and --interval. each describes a read.
func (p *Poll) AddPoll(cmd *cobra.Command, each string) {
	cmd.Flags().BoolVarP(&p.watch, "watch", "w", false, "Repeat until interrupted, and print changes.")
	cmd.Flags().DurationVar(&p.interval, "interval", 5*time.Second, "Time between two reads with --watch. "+each)
}

// Validate checks the flags.
func (p *Poll) Validate() error {
	if p.interval <= 0 {
		return fmt.Errorf("--interval=%s: must be above 0", p.interval)
	}
	return nil
}

// Repeat reads a list and shows it, and with --watch again at each interval until ctx ends. A list that has not changed
// is not shown again.
func Repeat[L any](ctx context.Context, p Poll, read func() (L, time.Time, error),
	show func(l L, now time.Time, again bool) error) error {
	var last *L
	for {
		now, at, err := read()
		switch {
		case ctx.Err() != nil && last != nil:
			return nil // interrupted during a repeated read
		case err != nil:
			return err
		}
		if last == nil || !reflect.DeepEqual(now, *last) {
			if err := show(now, at, last != nil); err != nil {
				return err
			}
		}
		last = &now
		if !p.watch || !Sleep(ctx, p.interval) {
			return nil
		}
	}
}

// BeginAgain separates a repeated output from the previous one.
func BeginAgain(w io.Writer, again bool) {
	switch {
	case again && printers.IsTerminal(w):
		fmt.Fprint(w, "\x1b[H\x1b[2J")
	case again:
		fmt.Fprintln(w)
	}
}

// Sleep waits, and reports whether the whole time has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
