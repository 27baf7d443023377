//go:build unix

package main

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	if got := wrap("one two  three\nfour-and-five six", 9); !slices.Equal(got,
		[]string{"one two", "three", "four-and-five", "six"}) {
		t.Errorf("got %q", got)
	}
	if got := wrap("", 9); len(got) != 0 {
		t.Errorf("got %q for nothing", got)
	}
}
