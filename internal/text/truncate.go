// Package text keeps words that come from elsewhere (names, handles, a driver's messages) within
// what logs, Events and metrics can take.
package text

import (
	"strings"
	"unicode/utf8"
)

// Truncate returns the text in at most so many bytes, cut between characters and marked as cut, and
// valid UTF-8, as JSON, protobuf and Prometheus want it. limit is at least 3.
func Truncate(text string, limit int) string {
	const more = "…"
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	cut := limit - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
