package cli

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// Table is a table for people. A list of all namespaces begins with a column for the namespace.
type Table struct {
	metav1.Table
	namespaces bool
}

// NewTable returns a table with these columns, followed by the columns of -o wide.
func NewTable(namespaces bool, columns, wide []string) *Table {
	t := &Table{namespaces: namespaces}
	if namespaces {
		columns = append([]string{"Namespace"}, columns...)
	}
	for i, name := range append(columns, wide...) {
		var priority int32
		if i >= len(columns) {
			priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions,
			metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority})
	}
	return t
}

// Add adds a row about an object in a namespace, "" for objects without one.
func (t *Table) Add(namespace string, cells ...any) {
	if t.namespaces {
		cells = append([]any{namespace}, cells...)
	}
	t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
}

// Table prints a table.
func (o *Output) Table(w io.Writer, t *Table) error {
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: o.Wide()}).PrintObj(&t.Table, w); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// TableOr prints a table, or says that it has no rows.
func (o *Output) TableOr(w io.Writer, t *Table, none string) error {
	if len(t.Rows) > 0 {
		return o.Table(w, t)
	}
	fmt.Fprintln(o.ErrOut, none)
	return nil
}

// PrintWarnings prints lines that need a person's attention.
func PrintWarnings(w io.Writer, warnings []string) {
	for _, warning := range warnings {
		PrintLine(w, "! "+warning, true)
	}
}

// PrintUnread names the kinds that could not be read.
func PrintUnread(w io.Writer, kinds []string) {
	for _, unread := range kinds {
		PrintLine(w, "Not read: "+unread, false)
	}
}

// Within says where a list has looked.
func Within(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "in any namespace"
	}
	return "in namespace " + namespace
}
