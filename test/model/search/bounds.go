package search

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// If returns a word about a world if it applies, and otherwise an empty word.
func If(applies bool, word string) string {
	if applies {
		return word
	}
	return ""
}

// Bounds describes the bounds of a world: words about it, some of which may be empty, and the events of its budget, a
// struct of numbers.
func Bounds(budget any, words ...string) string {
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	value := reflect.ValueOf(budget)
	for i := range value.NumField() {
		if n := value.Field(i).Uint(); n > 0 {
			words = append(words, fmt.Sprintf("%s %d", value.Type().Field(i).Name, n))
		}
	}
	return strings.Join(words, ", ")
}
