package main

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// table is a table for people. A list of all namespaces begins with a column for the namespace.
type table struct {
	metav1.Table
	namespaces bool
}

// newTable returns a table with these columns, followed by the columns of -o wide.
func newTable(namespaces bool, columns, wide []string) *table {
	t := &table{namespaces: namespaces}
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

// add adds a row about an object in a namespace, "" for objects without one.
func (t *table) add(namespace string, cells ...any) {
	if t.namespaces {
		cells = append([]any{namespace}, cells...)
	}
	t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
}

// table prints a table.
func (o *output) table(w io.Writer, t *table) error {
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: o.wide()}).PrintObj(&t.Table, w); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// printUnread names the kinds that could not be read.
func printUnread(w io.Writer, kinds []string) {
	for _, unread := range kinds {
		printLine(w, "Not read: "+unread, false)
	}
}

// within says where a list has looked.
func within(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "in any namespace"
	}
	return "in namespace " + namespace
}

// namespaceOr returns the namespace of the command line, or all.
func (s *shared) namespaceOr(all bool) (string, error) {
	if all {
		return metav1.NamespaceAll, nil
	}
	return s.namespace()
}
