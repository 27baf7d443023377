package main

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
	formatName  = "name"
)

// output prints the result of a command in the format of -o.
type output struct {
	format  string
	formats []string
	printer printers.ResourcePrinter
}

// flags adds -o to the command, with the common formats and its own ones.
func (o *output) flags(cmd *cobra.Command, own ...string) {
	o.formats = append([]string{formatTable, formatWide, "json", "yaml"}, own...)
	last := len(o.formats) - 1
	cmd.Flags().StringVarP(&o.format, "output", "o", formatTable,
		"Output format: "+strings.Join(o.formats[:last], ", ")+" or "+o.formats[last]+".")
	mustComplete(cmd, "output", o.formats)
}

func (o *output) wide() bool { return o.format == formatWide }

func (o *output) prepare() (err error) {
	named := o.format == formatName && slices.Contains(o.formats, formatName)
	if o.format == formatTable || o.format == formatWide || named {
		return nil
	}
	if o.printer, err = genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.format); err != nil {
		return fmt.Errorf("--output=%s: must be one of %s", o.format, strings.Join(o.formats, ", "))
	}
	return nil
}

// print writes value, a struct, as an object of the kind, or calls people for text output.
func (o *output) print(w io.Writer, kind string, value any, people func(io.Writer) error) error {
	if o.printer == nil {
		return people(w)
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
	if err := o.printer.PrintObj(object, w); err != nil {
		return fmt.Errorf("print %s: %w", kind, err)
	}
	return nil
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

// writeExplanation writes an explanation as wide as the terminal.
func writeExplanation(w io.Writer, e explain.Explanation, wide bool) error {
	return printers.WriteEscaped(w, e.Wrapped(wide, widthOf(w)))
}

// beginAgain separates a repeated output from the previous one.
func beginAgain(w io.Writer, again bool) {
	switch {
	case again && printers.IsTerminal(w):
		fmt.Fprint(w, "\x1b[H\x1b[2J")
	case again:
		fmt.Fprintln(w)
	}
}

// repeat reads a list and shows it, and with watch again at each interval until ctx ends. A list that has not changed
// is not shown again.
func repeat[L any](ctx context.Context, watch bool, interval time.Duration, read func() (L, time.Time, error),
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
		if !watch || !sleep(ctx, interval) {
			return nil
		}
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// printLine writes a line that may contain text from the cluster, so it escapes control sequences. A line for
// attention is red if the terminal shows colors.
func printLine(w io.Writer, text string, attention bool) {
	text = printers.EscapeTerminal(text)
	if attention && printers.AllowsColorOutput(w) {
		text = "\x1b[31m" + text + "\x1b[0m"
	}
	fmt.Fprintln(w, text)
}
