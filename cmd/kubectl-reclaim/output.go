package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// apiVersion is that of what is printed as JSON or YAML. Fields are added to it, and not changed, as long as
// it stays.
const apiVersion = "csi-reclaimer.io/v1alpha1"

// formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
)

// output prints what a command has to say, as -o wants it.
type output struct {
	format  string
	formats []string
	printer printers.ResourcePrinter
}

// flags adds -o to the command, with the formats that all commands have and those that it alone has.
func (o *output) flags(cmd *cobra.Command, own ...string) {
	o.formats = append([]string{formatTable, formatWide, "json", "yaml"}, own...)
	last := len(o.formats) - 1
	cmd.Flags().StringVarP(&o.format, "output", "o", formatTable,
		"What is printed: "+strings.Join(o.formats[:last], ", ")+" or "+o.formats[last]+".")
	mustComplete(cmd, "output", o.formats)
}

// wide tells whether more is wanted for people.
func (o *output) wide() bool { return o.format == formatWide }

// prepare returns what is wrong with -o.
func (o *output) prepare() (err error) {
	if o.format == formatTable || o.format == formatWide {
		return nil
	}
	if o.printer, err = genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.format); err != nil {
		return fmt.Errorf("--output=%s: must be one of %s", o.format, strings.Join(o.formats, ", "))
	}
	return nil
}

// print writes value, a struct, as an object of the kind, or has people write what is for people.
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

// sayLine writes a line in which names and words of others may stand: what would steer a terminal is made
// visible. One that wants attention is red where colours are shown.
func sayLine(w io.Writer, text string, attention bool) {
	text = printers.EscapeTerminal(text)
	if attention && printers.AllowsColorOutput(w) {
		text = "\x1b[31m" + text + "\x1b[0m"
	}
	fmt.Fprintln(w, text)
}
